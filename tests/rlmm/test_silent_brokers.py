"""What connects to brokers goes on, and ends, where one of them does not answer."""

import asyncio
from collections.abc import Mapping

import pytest

from kafka_protocol.apis import METADATA
from kafka_protocol.error_codes import OFFSET_OUT_OF_RANGE
from kip405.errors import Unavailable
from kip405.ids import TopicPartition
from rlmm.end_offsets import EndOffsetClient
from rlmm.log_reader import LogReader
from tests.builders.two_brokers import FAILED_FETCH, TOPIC, TwoBrokers
from tests.rlmm.two_broker_tails import at_once, settings_of, tail_of
from tests.waiting import until

_LONG_S = 100.0


class _PatientReader(LogReader):
    """What it has asked for in vain it does not ask again during the test."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        super().assign(positions)
        self._consumer._fetcher._retry_backoff = _LONG_S


class _BrokenReader(LogReader):
    """What fetches in it has failed for a reason that is unknown here, which its stop says."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        super().assign(positions)
        self._consumer._fetcher._get_actions_per_node = _fails


def _fails(_: object) -> None:
    raise ValueError("what nobody expects")


class _Connecting:
    """A tail whose readers are of this kind; `readers`: those that have connected."""

    def __init__(self, cluster: TwoBrokers, kind: type[LogReader]) -> None:
        self.readers: list[LogReader] = []
        self._settings, self._kind = settings_of(cluster), kind
        self.following = asyncio.ensure_future(tail_of(self._connect).run())

    def _connect(self) -> LogReader:
        self.readers.append(self._kind(self._settings))
        return self.readers[-1]

    def has_ended_or_again(self) -> bool:
        """Whether the tail has ended, or has connected again."""
        return self.following.done() or len(self.readers) > 1


async def test_a_tail_goes_on_where_a_log_was_lost_while_another_broker_is_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The fetch of the other broker waits to be tried again when the reader is stopped. aiokafka's
    own `stop` would end as cancelled, and with it the task of the tail, of which nobody hears.
    """
    async with TwoBrokers().running() as cluster:
        refusal = cluster.refusals[0] = asyncio.get_running_loop().create_future()
        tail = _Connecting(cluster, _PatientReader)
        await until(lambda: cluster.fetches(0) and FAILED_FETCH in caplog.text)
        assert len(tail.readers) == 1
        refusal.set_result(OFFSET_OUT_OF_RANGE)
        await until(tail.has_ended_or_again)
        assert not tail.following.done()
        tail.following.cancel()
        await asyncio.wait({tail.following})
        await until(lambda: not cluster.open_connections)


async def test_a_tail_that_is_cancelled_ends_also_where_its_reader_fails_to_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The error would take the place of the cancellation, and the tail would connect anew."""
    async with TwoBrokers().running() as cluster:
        tail = _Connecting(cluster, _BrokenReader)
        await until(lambda: "Unexpected error in fetcher routine" in caplog.text)
        tail.following.cancel()
        await until(tail.has_ended_or_again)
        assert tail.following.cancelled()
        await until(lambda: not cluster.open_connections)


async def test_a_tail_connects_again_where_nothing_fetches_any_more() -> None:
    """aiokafka only logs the error, and its consumer waits for records that never come."""
    async with TwoBrokers().running() as cluster:
        tail = _Connecting(cluster, _BrokenReader)
        await until(tail.has_ended_or_again)
        assert not tail.following.done()
        tail.following.cancel()
        await asyncio.wait({tail.following})


async def test_who_asks_for_ends_is_closed_while_it_connects() -> None:
    async with TwoBrokers().running() as cluster:
        cluster.metadata_gate.clear()
        client = EndOffsetClient(settings_of(cluster), at_once)
        asking = asyncio.ensure_future(client.end_offset(TopicPartition(TOPIC, 0), 1))
        await until(lambda: cluster.brokers[0].asked(METADATA))
        await client.close()
        cluster.open_gates()
        with pytest.raises(Unavailable, match=f"end offset of {TOPIC}-0"):
            await asking
        await until(lambda: not cluster.open_connections)
