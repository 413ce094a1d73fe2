"""What all live brokers say of their own retention: one that is bounded, or silent, counts (G1)."""

import asyncio
from collections.abc import Mapping

import pytest

from kip405.errors import NotFound, RemoteStorageError, Unavailable
from rlm.broker.answers import TopicConfigValue
from rlm.plans.retention_contests import RetentionContests
from rlm.topics.cluster_retention import BrokersRetention
from tests.builders.clock import ManualClock

TOPIC = "orders"
OFF = {"retention.ms": "-1", "retention.bytes": "-1"}


class Source:
    """One broker; an error set = it answers that. It answers once `gate` is set."""

    def __init__(self, **config: str) -> None:
        self.config = OFF | {name.replace("_", "."): value for name, value in config.items()}
        self.error: RemoteStorageError | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    async def topic_config(
        self, topic: str, names: tuple[str, ...] = ()
    ) -> Mapping[str, TopicConfigValue]:
        self.asked.append((topic, names))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return {
            name: TopicConfigValue(value=value, is_topic_level=False)
            for name, value in self.config.items()
        }


class Cluster:
    def __init__(self, *sources: Source) -> None:
        self.brokers = dict(enumerate(sources, start=1))
        self.error: RemoteStorageError | None = None
        self.clock, self.contests = ManualClock(), RetentionContests()
        self.retention = BrokersRetention(self, self.contests, self.clock)

    async def sources(self) -> Mapping[int, Source]:
        if self.error is not None:
            raise self.error
        return dict(self.brokers)

    async def bounded(self, topic: str = TOPIC) -> str | None:
        return await self.retention.bounded(topic)

    @property
    def asked(self) -> int:
        return sum(len(one.asked) for one in self.brokers.values())


async def test_g1_every_broker_is_asked_and_all_say_off() -> None:
    cluster = Cluster(Source(), Source(), Source())
    assert await cluster.bounded() is None
    asked = [one.asked for one in cluster.brokers.values()]
    assert asked == [[(TOPIC, ("retention.ms", "retention.bytes"))]] * 3


@pytest.mark.parametrize("config", [{"retention_ms": "604800000"}, {"retention_bytes": "1"}])
@pytest.mark.parametrize("at", [0, 1, 2])
async def test_h14_a_retention_that_one_broker_has_is_named(
    config: dict[str, str], at: int
) -> None:
    """The others have read the change of the topic's configuration, or never will."""
    sources = [Source(), Source(), Source()]
    sources[at] = Source(**config)
    [(name, value)] = config.items()
    found = await Cluster(*sources).bounded()
    assert found == f"broker {at + 1}: {name.replace('_', '.')}={value}"


async def test_g1_a_retention_that_somebody_keeps_bounding_counts_as_bounded_in_between() -> None:
    cluster = Cluster(Source(), Source())
    assert await cluster.bounded() is None
    cluster.contests.bounded(TOPIC, "retention.ms=5", cluster.clock.monotonic_ms())
    assert await cluster.bounded() == "somebody bounded it 0 s ago (retention.ms=5)"
    assert await cluster.bounded("payments") is None


async def test_h38_a_value_that_a_broker_leaves_out_is_not_off() -> None:
    source = Source()
    del source.config["retention.bytes"]
    assert await Cluster(Source(), source).bounded() == "broker 2: retention.bytes="


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Unavailable("no answer in time"), "broker 2: no answer in time"),
        (NotFound("topic does not exist"), "broker 2 does not know the topic"),
    ],
)
async def test_g1_a_broker_without_an_answer_is_a_doubt(
    error: RemoteStorageError, text: str
) -> None:
    silent = Source()
    silent.error = error
    with pytest.raises(Unavailable, match=text):
        await Cluster(Source(), silent).bounded()


async def test_g1_a_bounded_retention_counts_before_a_doubt() -> None:
    silent = Source()
    silent.error = Unavailable("no answer")
    found = await Cluster(silent, Source(retention_ms="1")).bounded()
    assert found == "broker 2: retention.ms=1"


async def test_g1_without_a_list_of_brokers_nothing_is_known() -> None:
    with pytest.raises(Unavailable, match="no broker"):
        await Cluster().bounded()
    cluster = Cluster(Source())
    cluster.error = Unavailable("describe cluster: no answer")
    with pytest.raises(Unavailable, match="describe cluster"):
        await cluster.bounded()


async def test_one_question_serves_all_partitions_for_ten_seconds() -> None:
    cluster = Cluster(Source(), Source())
    await asyncio.gather(*(cluster.bounded() for _ in range(50)))
    assert cluster.asked == 2
    cluster.clock.advance(9_999)
    await cluster.bounded()
    assert cluster.asked == 2
    await cluster.bounded("another")
    assert cluster.asked == 4


async def test_h14_a_change_is_seen_after_ten_seconds() -> None:
    source = Source()
    cluster = Cluster(source)
    assert await cluster.bounded() is None
    source.config["retention.ms"] = "1"
    cluster.clock.advance(10_000)
    assert await cluster.bounded() == "broker 1: retention.ms=1"


async def test_g6_a_broker_that_hangs_holds_up_one_question_and_not_each_partition() -> None:
    silent = Source()
    silent.error = Unavailable("no answer")
    cluster = Cluster(silent)
    for _ in range(20):
        with pytest.raises(Unavailable):
            await cluster.bounded()
    assert cluster.asked == 1


async def test_a_question_that_was_abandoned_does_not_stop_the_next() -> None:
    source = Source()
    source.gate.clear()
    cluster = Cluster(source)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await cluster.bounded()
    source.gate.set()
    assert await cluster.bounded() is None


async def test_g10_topics_that_are_no_longer_asked_for_are_forgotten() -> None:
    cluster = Cluster(Source())
    for number in range(20):
        await cluster.bounded(f"topic-{number}")
        cluster.clock.advance(10_000)
    kept = vars(cluster.retention)
    assert (len(kept["_answers"]), len(kept["_asking"])) == (1, 1)
