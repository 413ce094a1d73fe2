"""H14: a retention that somebody else has set becomes the total one if an operator says so."""

from dataclasses import replace

import pytest

from kip405.errors import Fenced, Invalid, NotFound, Unavailable
from rlm.topics.ports import NotLeader
from rlm.topics.rules import RetentionOptions
from rlm.topics.verbs import EnableOptions
from rlmm.settings_records import GivenBack, TotalRetention
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.retentions import WEEK_MS, enabled, in_force, pass_delay, total
from tests.rlm.topics.test_shortening import stored, with_three_segments
from tests.rlm.topics.world import ServiceUnderTest

TAKEN = {"retention.ms": "-1", "retention.bytes": "-1"}
BOUND_MS = 150_000


async def bounded(cluster: Cluster, **values: str) -> ServiceUnderTest:
    """Somebody has set these, and the service has seen it, with 200 s of data beyond 150 s."""
    service = await with_three_segments(cluster)
    await service.repair()
    cluster.configs[TOPIC] |= values or {"retention.ms": str(BOUND_MS)}
    await service.keeper.repair()
    return service


async def accept(service: ServiceUnderTest, *, yes: bool = True) -> TotalRetention:
    plan = await service.acceptance.plan(TOPIC)
    await service.acceptance.accept(TOPIC, plan.change.wanted, by="ada", yes=yes)
    return plan.change.wanted


async def test_h14_what_was_set_and_set_back_becomes_the_total_retention() -> None:
    cluster = Cluster()
    service = await bounded(cluster)
    assert cluster.own_config() == TAKEN
    assert "rlm topics accept-retention orders" in service.keeper.alarms[TOPIC_ID].text
    plan = await service.acceptance.plan(TOPIC)
    assert plan.change.wanted == total(BOUND_MS)
    assert [(one.start_offset, one.next_offset) for one in plan.deletable] == [(0, 200)]
    assert await accept(service) == total(BOUND_MS)
    record = cluster.record()
    assert record is not None
    assert (record.mode, record.trim, record.total) == ("tier", True, total(BOUND_MS))
    assert record.originals["retention.ms"] == str(BOUND_MS), "disable gives this back"
    assert not service.keeper.alarms
    assert service.audit.accepted == [("ada", total(BOUND_MS))]
    assert in_force(cluster) == total(WEEK_MS), "the delay of deletions"
    await pass_delay(service)
    assert in_force(cluster) == total(BOUND_MS)


async def test_h14_a_bound_that_is_left_is_accepted_and_set_back() -> None:
    """By `retention.takeover: warn`, after two reverts, or by a service that has just started."""
    cluster = Cluster()
    await bounded(cluster)
    cluster.configs[TOPIC] |= {"retention.ms": "1000", "retention.bytes": "9"}
    restarted = ServiceUnderTest(cluster, takeover="warn")
    assert await accept(restarted) == total(1_000, 9)
    assert cluster.own_config() == TAKEN


async def test_h14_an_accepted_retention_can_be_undone() -> None:
    cluster = Cluster()
    service = await bounded(cluster)
    await accept(service)
    assert (await service.deletions.undo(TOPIC)).total == total(WEEK_MS)


async def test_h14_a_shorter_retention_needs_yes_and_changes_nothing_without() -> None:
    cluster = Cluster()
    service = await bounded(cluster)
    written = len(cluster.records)
    with pytest.raises(Fenced, match=r"200 records \(200 B\) of orders deletable.*--yes"):
        await accept(service, yes=False)
    assert (len(cluster.records), service.audit.accepted) == (written, [])
    assert service.keeper.alarms


async def test_h14_what_becomes_deletable_in_the_last_moment_needs_yes_too() -> None:
    cluster = Cluster()
    service = await enabled(cluster)
    cluster.configs[TOPIC] |= {"retention.ms": str(BOUND_MS)}
    old = stored(1, 0, 100, at_ms=service.clock.now_ms() - 2 * BOUND_MS)
    service.audit.before_write = lambda: service.ledger.copied(old)
    with pytest.raises(Fenced, match="--yes"):
        await accept(service, yes=False)
    record = cluster.record()
    assert record is not None and record.retention_ms == WEEK_MS


async def test_h14_a_longer_retention_needs_no_yes() -> None:
    cluster = Cluster()
    service = await bounded(cluster, **{"retention.ms": str(2 * WEEK_MS)})
    assert await accept(service, yes=False) == total(2 * WEEK_MS)
    assert in_force(cluster) == total(2 * WEEK_MS)


async def test_h14_something_else_that_was_set_meanwhile_is_not_accepted() -> None:
    cluster = Cluster()
    service = await bounded(cluster)
    wanted = (await service.acceptance.plan(TOPIC)).change.wanted
    cluster.configs[TOPIC] |= {"retention.ms": "1"}
    with pytest.raises(Fenced, match=r"retention.ms=1, retention.bytes=-1; nothing was changed"):
        await service.acceptance.accept(TOPIC, wanted, by="ada", yes=True)
    assert service.audit.accepted == []


async def test_h14_without_a_line_in_the_audit_log_nothing_is_accepted() -> None:
    cluster = Cluster()
    service = await bounded(cluster)

    def refuse() -> None:
        raise Unavailable("the disk is full")

    service.audit.before_write = refuse
    with pytest.raises(Unavailable):
        await accept(service)
    record = cluster.record()
    assert record is not None and record.retention_ms == WEEK_MS


@pytest.mark.parametrize(("local_ms", "then_ms"), [(-1, -2), (BOUND_MS + 1, -2), (9_000, 9_000)])
async def test_a_local_retention_is_never_longer_than_the_accepted_total(
    local_ms: int, then_ms: int
) -> None:
    cluster = Cluster()
    service = await enabled(cluster, -1)
    local = EnableOptions(retention=RetentionOptions(local_retention_ms=local_ms))
    await service.verbs.enable(TOPIC, local)
    cluster.configs[TOPIC] |= {"retention.ms": str(BOUND_MS)}
    await accept(service)
    record = cluster.record()
    assert record is not None and record.local_retention_ms == then_ms


async def test_nothing_is_accepted_where_nobody_has_set_anything() -> None:
    cluster = Cluster(configs={TOPIC: {"retention.ms": "60000"}})
    service = await enabled(cluster)
    await service.repair()
    with pytest.raises(NotFound, match="there is nothing to accept; `rlm topics enable orders"):
        await service.acceptance.plan(TOPIC)


async def test_h18_a_retention_that_the_service_has_given_back_is_not_accepted() -> None:
    cluster = Cluster()
    service = await enabled(cluster)
    record = cluster.record()
    assert record is not None
    given_back = GivenBack(limits={"retention.bytes": "1000"}, since_ms=0)
    await service.settings.publish(replace(record, given_back=given_back), cluster.epoch)
    cluster.configs[TOPIC] |= {"retention.bytes": "1000"}
    with pytest.raises(NotFound, match="nothing to accept"):
        await service.acceptance.plan(TOPIC)
    cluster.configs[TOPIC] |= {"retention.ms": str(BOUND_MS)}
    assert await accept(service) == total(BOUND_MS)
    assert cluster.own_config() == {"retention.ms": "-1", "retention.bytes": "1000"}


async def test_topics_that_are_not_in_mode_tier_have_nothing_to_accept() -> None:
    cluster = Cluster(configs={TOPIC: {"retention.ms": "60000"}})
    service = ServiceUnderTest(cluster)
    with pytest.raises(NotFound, match="not enabled"):
        await service.acceptance.plan(TOPIC)
    await service.verbs.enable(TOPIC, EnableOptions())
    with pytest.raises(Invalid, match="mode copy"):
        await service.acceptance.plan(TOPIC)


async def test_h14_external_accepts_and_leaves_the_configuration_alone() -> None:
    cluster = Cluster(configs={TOPIC: dict(TAKEN)})
    service = ServiceUnderTest(cluster, takeover="external")
    await service.verbs.enable(TOPIC, EnableOptions(trim=True))
    cluster.configs[TOPIC] |= {"retention.ms": str(BOUND_MS)}
    await service.repair()
    plan = await service.acceptance.plan(TOPIC)
    done = await service.acceptance.accept(TOPIC, plan.change.wanted, by="ada", yes=True)
    assert done.record.total == total(BOUND_MS)
    assert any("before every broker says -1" in text for text in done.warnings)
    assert (cluster.alters, cluster.own_config()["retention.ms"]) == ([], str(BOUND_MS))
    assert service.keeper.alarms, "until somebody sets it"


async def test_h14_the_partition_0_leaders_service_accepts() -> None:
    cluster = Cluster()
    await bounded(cluster)
    other = ServiceUnderTest(cluster, node_id=2)
    with pytest.raises(NotLeader):
        await other.acceptance.plan(TOPIC)


@pytest.mark.parametrize("how", ["disabled", "given back"])
async def test_h14_a_topic_that_leaves_mode_tier_in_the_last_moment_stays_as_it_was_left(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Two operators at a time: the topic must not be enabled again."""
    cluster = Cluster()
    service = await bounded(cluster)

    async def leave(*_: object, **__: object) -> None:
        if how == "disabled":
            await service.verbs.disable(TOPIC, confirm=True, delete_remote=False)
        else:
            await service.verbs.trim_off(TOPIC, giveback=True)

    monkeypatch.setattr(service.audit, "retention_accepted", leave)
    with pytest.raises((Fenced, NotFound)):
        await accept(service)
    record = cluster.record()
    assert record is not None and record.retention_ms == WEEK_MS
    assert (record.mode, record.state) == ("copy", "kept" if how == "disabled" else "enabled")
