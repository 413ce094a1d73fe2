"""What connects to brokers goes on, and ends, where one of them does not answer."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from kafka_protocol.apis import METADATA
from kafka_protocol.error_codes import OFFSET_OUT_OF_RANGE
from kip405.errors import Unavailable
from kip405.ids import TopicPartition
from rlmm.clients import ConnectionSettings
from rlmm.end_offsets import EndOffsetClient
from rlmm.leader_answers import EpochEnd, EpochQuestion
from rlmm.log_reader import LogReader
from rlmm.tail import Tail
from tests.builders.two_brokers import FAILED_FETCH, TOPIC, TwoBrokers
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


async def _nobody(
    questions: Mapping[TopicPartition, EpochQuestion],
) -> dict[TopicPartition, EpochEnd]:
    return {}


async def _at_once(_: int) -> None:
    await asyncio.sleep(0)


def _tail(connect: Callable[[], LogReader]) -> Tail:
    return Tail(
        connect=connect,
        topic_partitions=[TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)],
        deliver=lambda _: None,
        start_over=lambda _: None,
        epoch_ends=_nobody,
        now_ms=lambda: 0,
        sleep_ms=_at_once,
        remembered={},
    )


async def test_a_tail_goes_on_where_a_log_was_lost_while_another_broker_is_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The fetch of the other broker waits to be tried again when the reader is stopped. aiokafka's
    own `stop` would end as cancelled, and with it the task of the tail, of which nobody hears.
    """
    async with TwoBrokers().running() as cluster:
        settings = ConnectionSettings(bootstrap_servers=(cluster.bootstrap,), client_id="test")
        connected: list[LogReader] = []

        def connect() -> LogReader:
            connected.append(_PatientReader(settings))
            return connected[-1]

        tail = _tail(connect)
        refusal = cluster.refusals[0] = asyncio.get_running_loop().create_future()
        following = asyncio.ensure_future(tail.run())
        await until(lambda: cluster.fetches(0) and FAILED_FETCH in caplog.text)
        assert len(connected) == 1
        refusal.set_result(OFFSET_OUT_OF_RANGE)
        await until(lambda: following.done() or len(connected) > 1)
        assert not following.done()
        following.cancel()
        await asyncio.wait({following})
        await until(lambda: not cluster.open_connections)


async def test_a_tail_that_is_cancelled_ends_also_where_its_reader_fails_to_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The error would take the place of the cancellation, and the tail would connect anew."""
    async with TwoBrokers().running() as cluster:
        settings = ConnectionSettings(bootstrap_servers=(cluster.bootstrap,), client_id="test")
        connected: list[LogReader] = []

        def connect() -> LogReader:
            connected.append(_BrokenReader(settings))
            return connected[-1]

        following = asyncio.ensure_future(_tail(connect).run())
        await until(lambda: "Unexpected error in fetcher routine" in caplog.text)
        following.cancel()
        await until(lambda: following.done() or len(connected) > 1)
        assert following.cancelled()
        await until(lambda: not cluster.open_connections)


async def test_a_tail_connects_again_where_nothing_fetches_any_more() -> None:
    """aiokafka only logs the error, and its consumer waits for records that never come."""
    async with TwoBrokers().running() as cluster:
        settings = ConnectionSettings(bootstrap_servers=(cluster.bootstrap,), client_id="test")
        connected: list[LogReader] = []

        def connect() -> LogReader:
            connected.append(_BrokenReader(settings))
            return connected[-1]

        following = asyncio.ensure_future(_tail(connect).run())
        await until(lambda: following.done() or len(connected) > 1)
        assert not following.done()
        following.cancel()
        await asyncio.wait({following})


async def test_who_asks_for_ends_is_closed_while_it_connects() -> None:
    async with TwoBrokers().running() as cluster:
        cluster.metadata_gate.clear()
        settings = ConnectionSettings(bootstrap_servers=(cluster.bootstrap,), client_id="test")
        client = EndOffsetClient(settings, _at_once)
        asking = asyncio.ensure_future(client.end_offset(TopicPartition(TOPIC, 0), 1))
        await until(lambda: cluster.brokers[0].asked(METADATA))
        await client.close()
        cluster.open_gates()
        with pytest.raises(Unavailable, match=f"end offset of {TOPIC}-0"):
            await asking
        await until(lambda: not cluster.open_connections)
