"""A record that cannot be read takes none of another partition with it."""

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.fetcher import FetchResult
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.structs import TopicPartition

from rlm_client.counters import ConsumerCounters, TierCounters
from rlm_client.pieces import PieceRecords, RecordFormat
from rlm_client.tiered_fetcher import TieredFetcher
from tests.kip405.batch_builder import batch
from tests.rlm_client.world import FakeClient, World
from tiered_reads.values import Fetched, ReadMode

READABLE, UNREADABLE = TopicPartition("t", 0), TopicPartition("t", 1)


def _refuse(value: bytes | None) -> Any:
    raise ValueError("cannot be read")


async def _filled(*partitions: TopicPartition) -> TieredFetcher:
    """A fetcher that has a piece of each partition and fetches no more."""
    subscription = SubscriptionState()
    subscription.assign_from_user([*partitions])
    assignment = subscription.subscription.assignment
    fetcher = TieredFetcher(
        FakeClient(World()),
        subscription,
        mode=ReadMode.REMOTE_ONLY,
        remote_log=SimpleNamespace(close=lambda: None),
        counters=ConsumerCounters(),
        auto_offset_reset="none",
    )
    fetcher._fetch_task.cancel()
    for one in partitions:
        assignment.state_value(one).seek(0)
        form = RecordFormat(
            key_deserializer=None,
            value_deserializer=_refuse if one is UNREADABLE else None,
            check_crcs=True,
            isolation_level=0,
        )
        piece = Fetched(batches=batch(0, 3), start_offset=0, next_offset=3)
        records = PieceRecords(one, piece, form, TierCounters())
        fetcher._records[one] = FetchResult(
            one, assignment=assignment, partition_records=records, backoff=0
        )
    return fetcher


@pytest.mark.parametrize("order", [(READABLE, UNREADABLE), (UNREADABLE, READABLE)])
async def test_one_call_for_two_partitions_loses_nothing(order: tuple[TopicPartition, ...]) -> None:
    fetcher = await _filled(*order)
    found = await fetcher.fetched_records(())
    assert [record.offset for record in found[READABLE]] == [0, 1, 2]
    with pytest.raises(ValueError, match="cannot be read"):
        await fetcher.fetched_records(())
    assert fetcher._subscriptions.subscription.assignment.state_value(UNREADABLE).position == 0
    await fetcher.close()


async def test_calls_that_wait_raise_at_once() -> None:
    fetcher = await _filled(UNREADABLE)
    with pytest.raises(ValueError, match="cannot be read"):
        await fetcher.next_record(())
    await fetcher.close()
    fetcher = await _filled(UNREADABLE)
    with pytest.raises(ValueError, match="cannot be read"):
        await fetcher.fetched_records((), 600)
    await fetcher.close()
