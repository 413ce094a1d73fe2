"""Publishing: what is known after each way a publish can end (H6, H10)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from aiokafka import structs
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NotEnoughReplicasAfterAppendError,
    TopicAuthorizationFailedError,
)

from kip405.acls import MissingAcls, topic_acl
from kip405.errors import Invalid, Unavailable
from kip405.ids import TopicPartition
from rlmm.clients import ConnectionSettings, error_text
from rlmm.publisher import OutcomeUnknown, Publisher, Record
from tests.builders.clock import ManualClock
from tests.builders.producer import FakeCluster, Sent
from tests.waiting import pass_time, until

PARTITION = TopicPartition("facts", 3)
RECORD = Record(topic_partition=PARTITION, key=b"k", value=b"v", headers=(("h", b"1"),))
OTHER = Record(topic_partition=TopicPartition("settings", 0), key=b"k", value=None)
CONNECTION = ConnectionSettings(bootstrap_servers=("nowhere:1",), client_id="test")
LONG_MS, SHORT_MS = 60_000, 300
VERIFIED_FOR_MS = 10_000


class Rig:
    """A publisher over a fake cluster; `verified` topics in order, what was `read_back`, and how
    many `reads_begun`.
    """

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.clock = ManualClock()
        self.verified: list[str] = []
        self.problem: str | None = None
        self.reads_begun = 0
        self.read_back: list[tuple[TopicPartition, int]] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.verifies = asyncio.Event()
        self.verifies.set()
        self.publisher = Publisher(
            CONNECTION, now_ms=self.clock.now_ms, verify=self._verify, make=self.cluster.make
        )

    async def _verify(self, topic: str) -> None:
        self.verified.append(topic)
        await self.verifies.wait()
        if self.problem:
            raise Unavailable(self.problem)

    async def _read(self, topic_partition: TopicPartition, end: int) -> None:
        self.reads_begun += 1
        await self.reads.wait()
        self.read_back.append((topic_partition, end))

    async def publish(self, record: Record = RECORD, timeout_ms: int = LONG_MS) -> int:
        return await self.publisher.publish(record, timeout_ms, self._read)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    life = asyncio.ensure_future(made.publisher.run())
    yield made
    life.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await life
    await made.publisher.close()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_publish_returns_its_offset_once_it_was_read_back(rig: Rig) -> None:
    assert await rig.publish(OTHER) == 0
    assert await rig.publish() == 1
    assert rig.cluster.log[1] == Sent(
        topic="facts", partition=3, key=b"k", value=b"v", headers=(("h", b"1"),)
    )
    assert rig.read_back == [(OTHER.topic_partition, 1), (PARTITION, 2)]
    assert len(rig.cluster.producers) == 1


async def test_h10_a_late_ack_is_waited_for(rig: Rig) -> None:
    rig.cluster.acks = False
    publishing = asyncio.ensure_future(rig.publish())
    await settle()
    assert not publishing.done()
    assert rig.read_back == []
    rig.cluster.acknowledge()
    assert await publishing == 0


async def test_h10_no_read_back_before_the_ack_and_no_return_before_the_read_back(rig: Rig) -> None:
    rig.reads.clear()
    publishing = asyncio.ensure_future(rig.publish())
    await settle()
    assert len(rig.cluster.log) == 1
    assert not publishing.done()
    rig.reads.set()
    assert await publishing == 0


async def test_h10_no_ack_in_time_is_unknown_and_costs_the_producer(rig: Rig) -> None:
    """What that producer has not sent must not arrive later by its own retries."""
    rig.cluster.acks = False
    publishing = asyncio.ensure_future(rig.publish())
    await until(lambda: rig.cluster.log)
    pass_time(LONG_MS / 1000)
    with pytest.raises(OutcomeUnknown, match=f"no word within {LONG_MS} ms"):
        await publishing
    await settle()
    assert rig.cluster.producers[0].is_aborted
    assert len(rig.cluster.log) == 1  # it may be there, as here
    rig.cluster.acks = True
    assert await rig.publish() == 1
    assert len(rig.cluster.producers) == 2


async def test_h10_a_producer_sends_nothing_once_its_outcome_is_unknown(rig: Rig) -> None:
    """Though the one that was dropped before it takes its time to close."""
    rig.cluster.acks = False
    rig.cluster.holds_close = asyncio.Event()
    for number in range(2):
        publishing = asyncio.ensure_future(rig.publish())
        await until(lambda: len(rig.cluster.log) > number)  # noqa: B023 - waited for here
        publishing.cancel()
        await asyncio.wait({publishing})
        assert rig.cluster.producers[number].is_cut
    assert not rig.cluster.producers[1].is_aborted
    rig.cluster.holds_close.set()
    await until(lambda: rig.cluster.producers[1].is_aborted)


async def test_h10_a_producer_that_another_publish_has_dropped_is_sent_nothing(rig: Rig) -> None:
    """It would take the record and never send it: unknown after a long wait, and yet certain."""
    rig.cluster.acks = False
    leaving = asyncio.ensure_future(rig.publish())
    await until(lambda: rig.cluster.log)
    rig.verifies.clear()
    other = asyncio.ensure_future(rig.publish(OTHER))
    await until(lambda: len(rig.verified) == 2)
    leaving.cancel()
    await asyncio.wait({leaving})
    rig.cluster.acks = True
    rig.verifies.set()
    with pytest.raises(Unavailable, match="dropped meanwhile, nothing was sent") as failed:
        await other
    assert not isinstance(failed.value, OutcomeUnknown)
    assert await rig.publish(OTHER) == 1


async def test_h10_no_read_back_in_time_is_unknown_but_the_record_is_written(rig: Rig) -> None:
    rig.reads.clear()
    publishing = asyncio.ensure_future(rig.publish())
    await until(lambda: rig.reads_begun)
    pass_time(LONG_MS / 1000)
    with pytest.raises(OutcomeUnknown):
        await publishing
    await settle()
    assert not rig.cluster.producers[0].is_aborted


@pytest.mark.parametrize("failure", [NotEnoughReplicasAfterAppendError(), KafkaTimeoutError()])
async def test_h10_an_error_instead_of_an_ack_is_unknown(rig: Rig, failure: KafkaError) -> None:
    rig.cluster.failure = failure
    with pytest.raises(OutcomeUnknown):
        await rig.publish()
    await settle()
    assert rig.cluster.producers[0].is_aborted
    assert rig.read_back == []


async def test_h10_what_was_never_sent_is_not_unknown(rig: Rig) -> None:
    rig.cluster.refusal = KafkaConnectionError()
    with pytest.raises(Unavailable, match="nothing was sent") as raised:
        await rig.publish()
    assert not isinstance(raised.value, OutcomeUnknown)
    rig.cluster.refusal = MessageSizeTooLargeError()
    with pytest.raises(Invalid, match="publish to facts-3"):
        await rig.publish()
    assert rig.cluster.log == []


async def test_h40_a_publish_that_is_refused_names_the_acl_that_is_missing(rig: Rig) -> None:
    acl = topic_acl("Write", "facts")
    rig.cluster.refusal = TopicAuthorizationFailedError("facts")
    with pytest.raises(MissingAcls) as refused:
        await rig.publish()
    assert refused.value.acls == (acl,)
    assert rig.cluster.log == []
    rig.cluster.refusal = None
    rig.cluster.failure = TopicAuthorizationFailedError("facts")
    with pytest.raises(OutcomeUnknown, match=f"missing ACL: {acl}"):
        await rig.publish()


async def test_h10_time_that_passed_before_anything_was_sent_is_not_unknown(rig: Rig) -> None:
    rig.cluster.holds_start = asyncio.Event()
    with pytest.raises(Unavailable, match="nothing was sent") as raised:
        await rig.publish(timeout_ms=SHORT_MS)
    assert not isinstance(raised.value, OutcomeUnknown)
    await settle()
    assert rig.cluster.producers[0].is_aborted
    rig.cluster.holds_start.set()
    assert await rig.publish() == 0


async def test_h10_a_cancellation_between_send_and_ack_drops_the_producer(rig: Rig) -> None:
    rig.cluster.acks = False
    publishing = asyncio.ensure_future(rig.publish())
    await settle()
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    await settle()
    assert rig.cluster.producers[0].is_aborted


async def test_a_producer_that_cannot_start_is_closed_and_made_again(rig: Rig) -> None:
    rig.cluster.unreachable = OSError("refused")
    with pytest.raises(Unavailable, match="cannot start"):
        await rig.publish()
    assert rig.cluster.producers[0].is_aborted
    rig.cluster.unreachable = None
    assert await rig.publish() == 0


async def test_h06_a_topic_that_is_not_ours_takes_no_record(rig: Rig) -> None:
    rig.problem = "topic facts was recreated"
    for _ in range(2):
        with pytest.raises(Unavailable, match="recreated"):
            await rig.publish()
    assert rig.cluster.log == []
    assert rig.verified == ["facts", "facts"]
    rig.problem = None
    assert await rig.publish() == 0


async def test_h06_a_topic_is_looked_at_again_after_a_while(rig: Rig) -> None:
    await rig.publish()
    rig.clock.advance(VERIFIED_FOR_MS - 1)
    await rig.publish()
    assert rig.verified == ["facts"]
    rig.clock.advance(1)
    await rig.publish()
    assert rig.verified == ["facts"] * 2


async def test_h06_a_clock_that_was_set_back_does_not_stretch_the_while(rig: Rig) -> None:
    await rig.publish()
    rig.clock.wall_ahead_ms = -1
    await rig.publish()
    assert rig.verified == ["facts"] * 2


async def test_h06_every_topic_is_looked_at_by_itself(rig: Rig) -> None:
    await rig.publish()
    await rig.publish(OTHER)
    assert rig.verified == ["facts", "settings"]


async def test_h06_a_topic_is_described_again_when_the_cluster_is_another(rig: Rig) -> None:
    """The topic may have been recreated: its leaders are others now."""
    await rig.publish()
    rig.cluster.layout = frozenset({"another broker"})
    rig.problem = "topic facts was recreated"
    with pytest.raises(Unavailable, match="recreated"):
        await rig.publish()
    assert len(rig.cluster.log) == 1


async def test_closing_drops_what_is_under_way_and_a_later_publish_connects_again(rig: Rig) -> None:
    await rig.publish()
    await rig.publisher.close()
    assert rig.cluster.producers[0].is_aborted
    assert await rig.publish() == 1
    assert len(rig.cluster.producers) == 2


def test_h40_an_error_of_the_client_names_the_acl_where_one_is_missing_and_only_there() -> None:
    needs = topic_acl("Describe", "facts")
    assert error_text(TopicAuthorizationFailedError("facts"), needs).endswith(
        f"missing ACL: {needs}"
    )
    assert "ACL" not in error_text(KafkaConnectionError(), needs)


@pytest.mark.parametrize("named", ["facts", structs.TopicPartition("facts", 0)])
def test_h40_of_two_topics_the_one_that_was_refused_is_named(named: object) -> None:
    needs = [topic_acl("Read", topic) for topic in ("facts", "others")]
    text = error_text(TopicAuthorizationFailedError(named), *needs)
    assert text.endswith(f"missing ACL: {needs[0]}")
    unnamed = error_text(TopicAuthorizationFailedError(), *needs)
    assert unnamed.endswith(f"missing ACL: {needs[0]}; {needs[1]}")
