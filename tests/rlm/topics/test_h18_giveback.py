"""Retention is given back while a broker's disk is nearly full, and taken over again (H18)."""

import contextlib
from collections.abc import Mapping
from dataclasses import replace

import pytest

from kip405.errors import Unavailable
from kip405.ids import PartitionKey
from kip405.lineage import Lineage
from kip405.segments import RemotePartitionDeleteState
from rlm.broker.answers import TopicConfigValue
from rlm.plans.giveback import FORGOTTEN_AFTER_MS
from rlm.plans.problems import ProblemKind
from rlm.topics.cluster_retention import ConfigSource
from rlm.topics.giveback import DiskGiveback
from rlm.topics.remarks import notes_of
from rlm.topics.verbs import EnableOptions
from rlmm.settings_records import FreezeRecord, GivenBack, HistoryRecord, ServiceRecord
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.hooks import Crash, CrashAt
from tests.rlm.topics.world import ServiceUnderTest

TAKEN = {"retention.ms": "-1", "retention.bytes": "-1"}
ORIGINAL = {"retention.ms": "60000", "segment.ms": "5"}
LIMITED = ORIGINAL | TAKEN | {"retention.bytes": "500"}
HEARTBEAT_MS = 30_000


class NotAsked:
    async def topic_config(
        self, topic: str, names: tuple[str, ...] = ()
    ) -> Mapping[str, TopicConfigValue]:
        raise AssertionError("only who is alive counts")


class Giving:
    """A service of node 1 that leads partition 0; node 2 has a replica too."""

    def __init__(self, cluster: Cluster, service: ServiceUnderTest) -> None:
        self.cluster, self.service = cluster, service
        self.alive: set[int] | None = {1, 2}
        self.giveback = DiskGiveback(
            settler=service.settler,
            brokers=self,
            settings=service.settings,
            ledger=service.ledger,
            lock=service.verbs.lock,
            clock=service.clock,
            interval_ms=lambda: 10_000,
            barrier_deadline_ms=1_000,
            heartbeat_max_age_ms=HEARTBEAT_MS,
        )

    async def sources(self) -> Mapping[int, ConfigSource]:
        """The brokers that are alive; None = nobody answers."""
        if self.alive is None:
            raise Unavailable("no answer")
        return dict.fromkeys(self.alive, NotAsked())

    async def beat(self, node_id: int, limit: int | None = None) -> None:
        record = ServiceRecord(
            node_id=node_id,
            listen={},
            advertised={},
            version="1",
            give_back={} if limit is None else {TOPIC_ID: limit},
        )
        await self.service.settings.publish(record)

    async def check(self, one: int | None = None, two: int | None = None) -> None:
        """After a heartbeat of each service."""
        await self.beat(1, one)
        await self.beat(2, two)
        await self.giveback.check()


@pytest.fixture
async def giving() -> Giving:
    cluster = Cluster(configs={TOPIC: dict(ORIGINAL)})
    service = ServiceUnderTest(cluster)
    await service.verbs.enable(TOPIC, EnableOptions(trim=True))
    return Giving(cluster, service)


async def test_h18_retention_is_given_back_while_a_broker_asks_and_then_taken_over_again(
    giving: Giving,
) -> None:
    await giving.check()
    assert giving.cluster.own_config() == ORIGINAL | TAKEN
    await giving.check(two=500)
    assert giving.cluster.own_config() == LIMITED
    [problem] = giving.giveback.findings()
    assert (problem.kind, problem.topic) == (ProblemKind.RETENTION_GIVEN_BACK, TOPIC)
    record = giving.cluster.record()
    assert record is not None
    assert "nearly full" in notes_of(record)[0]
    await giving.check()
    assert giving.cluster.own_config() == ORIGINAL | TAKEN
    assert list(giving.giveback.findings()) == []
    giving.service.clock.advance(FORGOTTEN_AFTER_MS)
    await giving.check()
    record = giving.cluster.record()
    assert record is not None
    assert (record.given_back, dict(record.originals)) == (
        None,
        {"retention.ms": "60000", "retention.bytes": None},
    )


async def test_h18_a_lower_limit_of_another_broker_counts_and_is_never_an_original(
    giving: Giving,
) -> None:
    await giving.check(two=500)
    await giving.check(one=300, two=500)
    assert giving.cluster.own_config()["retention.bytes"] == "300"
    await giving.check(two=500)
    assert giving.cluster.own_config()["retention.bytes"] == "300"
    await giving.check()
    await giving.service.verbs.disable(TOPIC, confirm=True, delete_remote=False)
    assert giving.cluster.own_config() == ORIGINAL


@pytest.mark.parametrize("end", ["disable", "trim off"])
async def test_h14_originals_come_back_when_the_topic_leaves_the_mode_meanwhile(
    giving: Giving, end: str
) -> None:
    await giving.check(two=500)
    if end == "disable":
        await giving.service.verbs.disable(TOPIC, confirm=True, delete_remote=False)
    else:
        await giving.service.verbs.trim_off(TOPIC, giveback=True)
    assert giving.cluster.own_config() == ORIGINAL
    record = giving.cluster.record()
    assert record is not None
    assert (record.given_back, dict(record.originals)) == (None, {})
    await giving.check(two=500)
    assert giving.cluster.own_config() == ORIGINAL


async def test_h18_a_change_of_options_does_not_end_it(giving: Giving) -> None:
    await giving.check(two=500)
    await giving.service.verbs.enable(TOPIC, EnableOptions(trim=True))
    assert giving.cluster.own_config() == LIMITED


async def test_h14_the_keeper_neither_reverts_nor_reports_it(giving: Giving) -> None:
    await giving.check(two=500)
    keeper = giving.service.keeper
    await keeper.repair()
    await keeper.repair()
    assert giving.cluster.own_config() == LIMITED
    assert not keeper.alarms


async def test_h18_a_broker_without_a_live_service_may_still_be_full(giving: Giving) -> None:
    await giving.check(two=500)
    giving.service.clock.advance(HEARTBEAT_MS + 1)
    await giving.beat(1)
    await giving.giveback.check()
    assert giving.cluster.own_config() == LIMITED
    await giving.check()
    assert giving.cluster.own_config() == ORIGINAL | TAKEN


@pytest.mark.parametrize(("alive", "ends"), [({1}, True), ({1, 2}, False), (None, False)])
async def test_h18_it_ends_although_a_broker_that_is_down_has_no_live_service(
    giving: Giving, alive: set[int] | None, ends: bool
) -> None:
    await giving.check(two=500)
    giving.service.clock.advance(HEARTBEAT_MS + 1)
    await giving.beat(1)
    giving.alive = alive
    await giving.giveback.check()
    assert (giving.cluster.own_config() == ORIGINAL | TAKEN) == ends
    await giving.check(two=500)
    assert giving.cluster.own_config() == LIMITED, "it came back"


async def test_h18_an_old_heartbeat_asks_for_nothing(giving: Giving) -> None:
    await giving.beat(2, 500)
    giving.service.clock.advance(HEARTBEAT_MS + 1)
    await giving.beat(1)
    await giving.giveback.check()
    assert giving.cluster.own_config() == ORIGINAL | TAKEN


async def test_h18_a_frozen_topic_is_not_given_back(giving: Giving) -> None:
    freeze = FreezeRecord(topic_id=TOPIC_ID, stopped=("trim",), by="op", why="audit")
    await giving.service.settings.publish(freeze)
    await giving.check(two=500)
    assert giving.cluster.own_config() == ORIGINAL | TAKEN


async def freeze(service: ServiceUnderTest, why: str | None) -> None:
    """As the leader of partition 1, which another broker has, publishes it."""
    key = PartitionKey(TOPIC_ID, 1)
    record = HistoryRecord(partition=key, frozen=why, lineage=Lineage(()))
    await service.settings.publish(record, 5)


async def forbid(service: ServiceUnderTest, how: str) -> None:
    """What forbids every deletion from the topic, as the services learn of it."""
    if how == "frozen by lineage":
        await freeze(service, "20 records differ")
    elif how == "ledger problem":
        service.ledger.problem = "a record is missing"
    elif how == "settings problem":
        service.settings.problem = "a record cannot be read"
    else:
        service.ledger.delete_partition(RemotePartitionDeleteState.DELETE_PARTITION_STARTED)


FORBIDDEN = ("frozen by lineage", "ledger problem", "settings problem", "partition deletion")


@pytest.mark.parametrize("how", FORBIDDEN)
async def test_h18_nothing_is_given_back_of_what_nothing_may_be_deleted(
    giving: Giving, how: str
) -> None:
    await forbid(giving.service, how)
    await giving.check(two=500)
    assert giving.cluster.own_config() == ORIGINAL | TAKEN


@pytest.mark.parametrize("how", FORBIDDEN)
async def test_h18_what_is_given_back_ends_once_nothing_may_be_deleted(
    giving: Giving, how: str
) -> None:
    await giving.check(two=500)
    assert giving.cluster.own_config() == LIMITED
    await forbid(giving.service, how)
    await giving.check(two=500)
    assert giving.cluster.own_config() == ORIGINAL | TAKEN
    await giving.check(two=500)
    assert giving.cluster.own_config() == ORIGINAL | TAKEN


async def test_h18_what_is_frozen_ends_also_while_a_service_is_absent(giving: Giving) -> None:
    await giving.check(two=500)
    await freeze(giving.service, "20 records differ")
    giving.service.clock.advance(HEARTBEAT_MS + 1)
    await giving.beat(1)
    await giving.giveback.check()
    assert giving.cluster.own_config() == ORIGINAL | TAKEN


async def test_h18_it_is_given_back_once_the_freeze_has_ended(giving: Giving) -> None:
    await freeze(giving.service, "20 records differ")
    await giving.check(two=500)
    await freeze(giving.service, None)
    await giving.check(two=500)
    assert giving.cluster.own_config() == LIMITED


async def test_h18_a_limit_that_a_crash_left_unset_is_not_set_after_a_freeze(
    giving: Giving,
) -> None:
    record = giving.cluster.record()
    assert record is not None
    given = GivenBack(limits={"retention.bytes": "500"}, since_ms=1)
    await giving.service.settings.publish(replace(record, given_back=given), 5)
    await freeze(giving.service, "20 records differ")
    giving.cluster.alters.clear()
    await giving.check(two=500)
    assert giving.cluster.own_config() == ORIGINAL | TAKEN
    assert giving.cluster.alters == []


async def test_h18_nothing_is_decided_before_the_ledger_was_read(giving: Giving) -> None:
    giving.service.ledger.is_ready = False
    await giving.check(two=500)
    assert giving.cluster.own_config() == ORIGINAL | TAKEN
    giving.service.ledger.is_ready = True
    await giving.check(two=500)
    giving.service.ledger.is_ready = False
    giving.service.ledger.problem = "the ledger was not read to its end yet"
    await giving.check(two=500)
    assert giving.cluster.own_config() == LIMITED


@pytest.mark.parametrize("leader", [2, -1])
async def test_h18_nothing_begins_while_no_service_watches_over_a_partition(
    giving: Giving, leader: int
) -> None:
    """Nobody could say that it must be frozen."""
    giving.cluster.leaders[1] = leader
    await giving.beat(1, 500)
    await giving.giveback.check()
    assert giving.cluster.own_config() == ORIGINAL | TAKEN
    giving.cluster.leaders.clear()
    await giving.giveback.check()
    assert giving.cluster.own_config() == LIMITED


async def test_h14_a_tool_that_insists_is_not_fought_while_retention_is_given_back(
    giving: Giving,
) -> None:
    await giving.check(two=500)
    giving.cluster.alters.clear()
    for _ in range(6):
        giving.cluster.configs[TOPIC]["retention.ms"] = "70000"
        await giving.check(two=500)
        await giving.service.keeper.repair()
        giving.service.clock.advance(5_000)
    assert len(giving.cluster.alters) == 2
    assert giving.cluster.own_config() == LIMITED | {"retention.ms": "70000"}
    [alarm] = giving.service.keeper.alarms.values()
    assert "left as it is, because somebody bounded it again" in alarm.text
    await giving.check()
    assert giving.cluster.own_config() == ORIGINAL | TAKEN | {"retention.ms": "70000"}


async def test_h14_warn_leaves_a_foreign_retention_also_when_retention_is_given_back() -> None:
    cluster = Cluster(configs={TOPIC: dict(ORIGINAL)})
    giving = Giving(cluster, ServiceUnderTest(cluster, takeover="warn"))
    await giving.service.verbs.enable(TOPIC, EnableOptions(trim=True))
    cluster.configs[TOPIC]["retention.bytes"] = "900"
    foreign = cluster.own_config()
    await giving.check(two=500)
    await giving.check(two=500)
    await giving.service.keeper.repair()
    assert cluster.own_config() == foreign
    [alarm] = giving.service.keeper.alarms.values()
    assert "retention.bytes=900" in alarm.text


async def test_h14_a_limit_that_stays_where_nothing_is_altered_any_more_is_an_alarm(
    giving: Giving,
) -> None:
    await giving.check(two=500)
    external = ServiceUnderTest(giving.cluster, takeover="external")
    await external.repair()
    [alarm] = external.keeper.alarms.values()
    assert "retention.bytes=500" in alarm.text


async def test_h18_trim_off_ends_it_and_prevents_it(giving: Giving) -> None:
    await giving.check(two=500)
    await giving.service.verbs.trim_off(TOPIC, giveback=False)
    await giving.check(two=500)
    assert giving.cluster.own_config() == ORIGINAL | TAKEN


async def test_h14_nothing_is_given_back_where_the_service_alters_no_configuration(
    giving: Giving,
) -> None:
    giving.service.settler.alters_configs = False
    await giving.check(two=500)
    assert giving.cluster.own_config() == ORIGINAL | TAKEN
    record = giving.cluster.record()
    assert record is not None
    assert record.given_back is None


async def test_only_the_leader_of_partition_0_gives_back(giving: Giving) -> None:
    giving.cluster.elect(2)
    await giving.check(two=500)
    assert giving.cluster.own_config() == ORIGINAL | TAKEN


async def test_a_topic_in_mode_copy_is_not_ours_to_give_back() -> None:
    cluster = Cluster(configs={TOPIC: dict(ORIGINAL)})
    service = ServiceUnderTest(cluster)
    await service.verbs.enable(TOPIC, EnableOptions())
    await Giving(cluster, service).check(two=500)
    assert cluster.own_config() == ORIGINAL


@pytest.mark.parametrize("is_end", [False, True])
async def test_h14_a_crash_at_any_await_is_finished_by_the_next_leader(is_end: bool) -> None:
    for number in range(1, 200):
        cluster = Cluster(configs={TOPIC: dict(ORIGINAL)})
        first = Giving(cluster, ServiceUnderTest(cluster))
        await first.service.verbs.enable(TOPIC, EnableOptions(trim=True))
        if is_end:
            await first.check(two=500)
        crash = CrashAt(number)
        dying = Giving(cluster, ServiceUnderTest(cluster, hook=crash))
        with contextlib.suppress(Crash):
            await dying.check(two=None if is_end else 500)
        next_leader = Giving(cluster, ServiceUnderTest(cluster))
        await next_leader.check(two=None if is_end else 500)
        assert cluster.own_config() == (ORIGINAL | TAKEN if is_end else LIMITED)
        record = cluster.record()
        assert record is not None
        assert record.originals["retention.ms"] == "60000"
        await next_leader.check()
        await next_leader.service.verbs.disable(TOPIC, confirm=True, delete_remote=False)
        assert cluster.own_config() == ORIGINAL
        if not crash.reached:
            return
    raise AssertionError("it never ended")
