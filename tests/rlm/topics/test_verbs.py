"""The topic verbs: what is refused, what is stored, what is said."""

import pytest

from kip405.errors import Fenced, Invalid, NotFound, Unavailable
from kip405.segments import Layout
from rlm.broker.answers import TopicDescription
from rlm.plans.retention import Retention
from rlm.topics.cluster import ReaderCheck
from rlm.topics.local_logs import DAY_MS, Growth, bytes_a_day
from rlm.topics.ports import GroupOffset, NotLeader
from rlm.topics.remarks import notes_of
from rlm.topics.rules import RetentionOptions
from rlm.topics.verbs import EnableOptions
from tests.builders.clock import ManualClock
from tests.builders.ledger import metadata
from tests.builders.log_dir import TOPIC
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.world import ServiceUnderTest

TIER = EnableOptions(trim=True)


def cluster_with(**config: str) -> Cluster:
    return Cluster(configs={TOPIC: {name.replace("_", "."): v for name, v in config.items()}})


def with_retention(trim: bool = False, **values: int) -> EnableOptions:
    return EnableOptions(trim=trim, retention=RetentionOptions(**values))


async def test_h19_mode_copy_alters_nothing() -> None:
    cluster = cluster_with(retention_ms="60000")
    service = ServiceUnderTest(cluster)
    outcome = await service.verbs.enable(TOPIC, EnableOptions())
    assert (outcome.record.mode, outcome.record.trim) == ("copy", False)
    assert (outcome.record.retention_ms, outcome.record.retention_bytes) == (60_000, -1)
    assert outcome.record.local_retention_ms == -2
    await service.repair()
    await service.verbs.disable(TOPIC, confirm=False, delete_remote=False)
    assert cluster.alters == []
    assert cluster.own_config() == {"retention.ms": "60000"}


async def test_enable_again_changes_only_what_is_named() -> None:
    service = ServiceUnderTest(cluster_with())
    await service.verbs.enable(TOPIC, with_retention(retention_ms=1_000, local_retention_ms=100))
    await service.verbs.enable(TOPIC, with_retention(local_retention_ms=50))
    outcome = await service.verbs.enable(TOPIC, with_retention(retention_bytes=10))
    record = outcome.record
    assert (record.retention_ms, record.local_retention_ms) == (1_000, 50)
    assert (record.retention_bytes, record.local_retention_bytes) == (10, -2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (with_retention(retention_ms=10, local_retention_ms=11), "local.retention.ms=11"),
        (with_retention(retention_ms=10, local_retention_ms=-1), "must not be -1"),
        (with_retention(retention_bytes=-2), "retention.bytes=-2 is below -1"),
    ],
)
async def test_what_logconfig_refuses_is_refused(options: EnableOptions, words: str) -> None:
    cluster = cluster_with()
    with pytest.raises(Invalid, match=words):
        await ServiceUnderTest(cluster).verbs.enable(TOPIC, options)
    assert cluster.records == []


@pytest.mark.parametrize("policy", ["compact", "compact,delete", ""])
async def test_h35_only_exactly_delete_is_enabled(policy: str) -> None:
    with pytest.raises(Invalid, match=r"cleanup\.policy"):
        await ServiceUnderTest(cluster_with(cleanup_policy=policy)).verbs.enable(TOPIC, TIER)


async def test_native_tiering_and_internal_topics_are_refused() -> None:
    with pytest.raises(Invalid, match=r"remote\.storage\.enable=true"):
        await ServiceUnderTest(cluster_with(remote_storage_enable="true")).verbs.enable(TOPIC, TIER)
    cluster = cluster_with()
    cluster.internal = True
    with pytest.raises(Invalid, match="internal"):
        await ServiceUnderTest(cluster).verbs.enable(TOPIC, TIER)


async def test_unknown_topic_no_leader_other_leader() -> None:
    cluster = cluster_with()
    service = ServiceUnderTest(cluster)
    with pytest.raises(NotFound, match="nope"):
        await service.verbs.enable("nope", TIER)
    with pytest.raises(NotFound, match="not enabled"):
        await service.verbs.trim_on(TOPIC, force=False)
    cluster.leader = 2
    with pytest.raises(NotLeader) as caught:
        await service.verbs.enable(TOPIC, TIER)
    assert caught.value.leader == 2
    cluster.leader = -1
    with pytest.raises(Unavailable, match="no leader"):
        await service.verbs.enable(TOPIC, TIER)


async def test_h02_every_partition_has_its_start_before_the_mode_takes_effect() -> None:
    cluster = cluster_with()
    cluster.log_starts = {0: 5_000, 1: 7}
    service = ServiceUnderTest(cluster)
    await service.verbs.enable(TOPIC, TIER)
    assert (service.start_of(0), service.start_of(1)) == (5_000, 7)
    keys = [key.decode().split("/")[0] for key, _, _ in cluster.records]
    assert keys == ["start", "start", "topic"]
    cluster.log_starts = {0: 9_000, 1: 9_000}
    await service.verbs.enable(TOPIC, TIER)
    assert (service.start_of(0), service.start_of(1)) == (5_000, 7)


async def test_h19_groups_below_the_first_bound_need_force() -> None:
    cluster = cluster_with()
    cluster.ends = {0: 1_000, 1: 1_000}
    cluster.groups = (
        GroupOffset(group="late", partition=1, offset=10),
        GroupOffset(group="fresh", partition=0, offset=1_000),
    )
    service = ServiceUnderTest(cluster)
    options = with_retention(trim=True, retention_ms=1_000, local_retention_ms=1)
    with pytest.raises(Fenced, match="late at 10") as caught:
        await service.verbs.enable(TOPIC, options)
    assert "fresh" not in str(caught.value)
    assert cluster.alters == []
    forced = EnableOptions(trim=True, retention=options.retention, force=True)
    outcome = await service.verbs.enable(TOPIC, forced)
    assert "late at 10" in outcome.warnings[0]
    again = await service.verbs.enable(TOPIC, options)
    assert again.warnings == ()


async def test_h19_share_groups_are_refused_unless_forced() -> None:
    cluster = cluster_with()
    cluster.share_starts = {1: 40}
    service = ServiceUnderTest(cluster)
    await service.verbs.enable(TOPIC, EnableOptions())
    with pytest.raises(Fenced, match="share groups read this topic"):
        await service.verbs.trim_on(TOPIC, force=False)
    assert (await service.verbs.trim_on(TOPIC, force=True)).record.trim


async def test_logs_that_could_not_be_copied_are_refused_before_retention_is_touched() -> None:
    cluster = cluster_with(retention_ms="60000")
    cluster.uncopyable = "orders-0 at 300: its first batch is damaged"
    service = ServiceUnderTest(cluster)
    with pytest.raises(Fenced, match="orders-0 at 300"):
        await service.verbs.enable(TOPIC, TIER)
    assert (cluster.alters, cluster.records) == ([], [])
    await service.verbs.enable(TOPIC, EnableOptions())
    with pytest.raises(Fenced, match="orders-0 at 300"):
        await service.verbs.trim_on(TOPIC, force=False)
    outcome = await service.verbs.trim_on(TOPIC, force=True)
    assert outcome.record.trim and cluster.uncopyable in outcome.warnings
    assert (await service.verbs.enable(TOPIC, TIER)).warnings == ()


async def test_h19_readers_that_cannot_be_seen_need_force() -> None:
    cluster = cluster_with()
    cluster.groups_error = Unavailable("the coordinator is moving")
    service = ServiceUnderTest(cluster)
    with pytest.raises(Unavailable, match="coordinator"):
        await service.verbs.enable(TOPIC, TIER)
    assert cluster.records == []
    outcome = await service.verbs.enable(TOPIC, EnableOptions(trim=True, force=True))
    assert "are not known" in outcome.warnings[0]


class _UntilLoaded(ManualClock):
    """At 3 s from its begin the broker has loaded its groups."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._loaded_ms = self.now + 3_000

    def advance(self, duration_ms: int) -> None:
        super().advance(duration_ms)
        if self.now >= self._loaded_ms:
            self._cluster.groups_error = None


async def test_h19_groups_that_a_broker_still_loads_are_waited_for() -> None:
    cluster = cluster_with()
    cluster.groups_error = Unavailable("COORDINATOR_LOAD_IN_PROGRESS (14)")
    cluster.groups = (GroupOffset(group="lagging", partition=0, offset=1),)
    cluster.ends[0] = 300
    service = ServiceUnderTest(cluster, clock=_UntilLoaded(cluster))
    with pytest.raises(Fenced, match="lagging"):
        await service.verbs.enable(TOPIC, TIER)
    assert (cluster.records, cluster.alters) == ([], [])


class _Silent:
    """Each question for groups takes as long as its limit allows."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    async def committed(self, topic: TopicDescription) -> tuple[GroupOffset, ...]:
        self._clock.advance(10_000)
        raise Unavailable("broker 2 does not answer")


async def test_h19_a_broker_that_is_silent_is_asked_for_its_groups_once() -> None:
    """A service that forwards the command waits 20 s for the reason."""
    service = ServiceUnderTest(cluster_with())
    began_ms, broker = service.clock.now, service.broker
    readers = ReaderCheck(
        offsets=broker, groups=_Silent(service.clock), share_groups=broker, clock=service.clock
    )
    topic, retention = await broker.topic(TOPIC), Retention(total_ms=-1, total_bytes=-1)
    with pytest.raises(Unavailable, match="broker 2 does not answer"):
        await readers.check(topic, retention, force=False)
    assert service.clock.now - began_ms < 15_000


class _UntilCreated(ManualClock):
    """At 1 s from its begin the broker knows the topic."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._known_ms = self.now + 1_000

    def advance(self, duration_ms: int) -> None:
        super().advance(duration_ms)
        if self.now >= self._known_ms:
            self._cluster.configs.setdefault(TOPIC, {})


@pytest.mark.parametrize("is_planned", [False, True])
async def test_a_topic_that_the_broker_does_not_know_yet_is_waited_for(is_planned: bool) -> None:
    cluster = Cluster(configs={})
    service = ServiceUnderTest(cluster, clock=_UntilCreated(cluster))
    if is_planned:  # as `rlm topics enable` does first
        assert not (await service.verbs.plan_retention(TOPIC, EnableOptions())).deletable
    outcome = await service.verbs.enable(TOPIC, EnableOptions())
    assert outcome.record.state == "enabled"


async def test_a_topic_that_does_not_exist_is_refused_after_a_moment() -> None:
    service = ServiceUnderTest(Cluster(configs={}))
    for asked in (service.verbs.plan_retention, service.verbs.enable):
        began_ms = service.clock.now
        with pytest.raises(NotFound, match="does not exist"):
            await asked(TOPIC, EnableOptions())
        assert 1_000 < service.clock.now - began_ms < 5_000


async def test_h18_trim_off_says_how_long_the_disk_lasts() -> None:
    cluster = cluster_with(retention_ms="60000")
    service = ServiceUnderTest(cluster)
    await service.verbs.enable(TOPIC, TIER)
    outcome = await service.verbs.trim_off(TOPIC, giveback=False)
    assert (outcome.record.mode, outcome.record.trim) == ("tier", False)
    assert "grows from now on" in outcome.warnings[0]
    assert "100.0 GiB are free" in outcome.warnings[0]
    assert cluster.own_config() == {"retention.ms": "-1", "retention.bytes": "-1"}
    outcome = await service.verbs.trim_off(TOPIC, giveback=True)
    assert (outcome.record.mode, dict(outcome.record.originals)) == ("copy", {})
    assert cluster.own_config() == {"retention.ms": "60000"}


async def test_disable_is_refused_while_data_is_only_remote() -> None:
    cluster = cluster_with()
    service = ServiceUnderTest(cluster)
    await service.verbs.enable(TOPIC, TIER)
    service.ledger.copied(metadata(1, 0, 500, {0: 0}))
    cluster.log_starts = {0: 400}
    with pytest.raises(Fenced, match=f"{TOPIC}-0: 0 to 400"):
        await service.verbs.disable(TOPIC, confirm=False, delete_remote=False)
    record = cluster.record()
    assert record is not None
    assert record.state == "enabled"
    outcome = await service.verbs.disable(TOPIC, confirm=True, delete_remote=False)
    assert outcome.record.state == "kept"
    with pytest.raises(NotFound, match="is kept"):
        await service.verbs.trim_on(TOPIC, force=False)
    outcome = await service.verbs.disable(TOPIC, confirm=True, delete_remote=True)
    assert outcome.record.state == "deleting"


async def test_enabling_again_after_disable_takes_fresh_originals() -> None:
    cluster = cluster_with(retention_ms="60000")
    service = ServiceUnderTest(cluster)
    await service.verbs.enable(TOPIC, TIER)
    await service.verbs.disable(TOPIC, confirm=True, delete_remote=False)
    cluster.configs[TOPIC] = {"retention.bytes": "99"}
    outcome = await service.verbs.enable(TOPIC, TIER)
    assert dict(outcome.record.originals) == {"retention.ms": None, "retention.bytes": "99"}
    assert any("total retention.bytes stays -1" in text for text in outcome.warnings)


async def test_notes_say_what_does_not_act() -> None:
    service = ServiceUnderTest(cluster_with())
    copy = await service.verbs.enable(TOPIC, EnableOptions())
    assert any("local retention does not" in note for note in notes_of(copy.record))
    tier = await service.verbs.enable(TOPIC, with_retention(trim=True, retention_ms=-1))
    assert any("nothing is trimmed" in note for note in notes_of(tier.record))


def test_growth_is_scaled_to_a_day_and_shown_with_its_end() -> None:
    segment = metadata(1, 0, 10, {0: 0})
    size = segment.segment_size_bytes
    at_ms = segment.max_timestamp_ms
    assert bytes_a_day([segment], at_ms + DAY_MS // 4) == 4 * size
    assert bytes_a_day([segment], at_ms + 2 * DAY_MS) == 0
    words = Growth(bytes_a_day=1 << 30, free_bytes=10 << 30).words("t", 0)
    assert "1.0 GiB a day" in words
    assert "until about 1970-01-11" in words


async def test_a_topic_keeps_the_layout_that_it_has_chosen_until_it_chooses_another() -> None:
    cluster, asked = Cluster(), []

    def allow(topic: str, layout: Layout | None) -> None:
        asked.append(layout)

    service = ServiceUnderTest(cluster, refuse_untiered=allow)
    layouts = [None, Layout.BLOCKS, None, Layout.KAFKA, None]
    found = [
        (await service.verbs.enable(TOPIC, EnableOptions(layout=one))).record.layout
        for one in layouts
    ]
    kept = [None, Layout.BLOCKS, Layout.BLOCKS, Layout.KAFKA, Layout.KAFKA]
    assert (found, asked) == (kept, kept)
    await service.verbs.disable(TOPIC, confirm=False, delete_remote=False)
    assert (await service.verbs.enable(TOPIC, EnableOptions())).record.layout is Layout.KAFKA


async def test_a_layout_that_the_store_does_not_take_changes_nothing() -> None:
    cluster = Cluster()

    def refuse(topic: str, layout: Layout | None) -> None:
        if layout is Layout.BLOCKS:
            raise Invalid("its plugin does not write the layout blocks")

    service = ServiceUnderTest(cluster, refuse_untiered=refuse)
    await service.verbs.enable(TOPIC, EnableOptions())
    with pytest.raises(Invalid, match="does not write the layout blocks"):
        await service.verbs.enable(TOPIC, EnableOptions(layout=Layout.BLOCKS))
    record = cluster.record()
    assert record is not None and record.layout is None


async def test_a_topic_without_a_store_to_go_to_is_refused_and_left_alone() -> None:
    cluster = Cluster()

    def refuse(topic: str, layout: Layout | None) -> None:
        raise Invalid(f"no store is configured for {topic}")

    service = ServiceUnderTest(cluster, refuse_untiered=refuse)
    with pytest.raises(Invalid, match=f"no store is configured for {TOPIC}"):
        await service.verbs.enable(TOPIC, EnableOptions(trim=True))
    assert cluster.record() is None
    assert cluster.alters == []
