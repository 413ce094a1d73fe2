"""A partition of very many segments is listed in turns, so that the event loop serves others."""

import asyncio
import random

from rlm.api.remote_fetch import entries_in_turns
from rlmm.ledger import PartitionLedger
from rlmm.records import LedgerKey, LedgerRecord, RecordHeaders
from rlmm.replay import LedgerState
from tests.rlmm.builders import DELETING, FINISHED, KEY, STARTED, segment, uuid

SEGMENTS = 3_000
MOST_A_TURN = 256


def large_ledger() -> PartitionLedger:
    """Its ids, by which it is sorted, have nothing to do with the order of the offsets."""
    chance, state = random.Random(1), LedgerState()
    numbers = list(range(SEGMENTS))
    chance.shuffle(numbers)
    headers = RecordHeaders(leader_epoch=5, expected_previous=-1, writer=uuid(1))
    for at, number in enumerate(numbers):
        kind = (FINISHED, FINISHED, FINISHED, STARTED, DELETING)[number % 5]
        metadata = segment(at, kind, start=number * 10, end=number * 10 + 9)
        key = LedgerKey.of(metadata.segment_id)
        state.apply(
            LedgerRecord(key=key, metadata=metadata, headers=headers, offset=at, timestamp_ms=0)
        )
    return PartitionLedger.of(KEY, state.partitions[KEY])


async def test_what_is_listed_in_turns_is_what_is_in_the_state() -> None:
    ledger = large_ledger()
    for states in ((FINISHED,), (STARTED, DELETING), (FINISHED, STARTED, DELETING)):
        found = [entry async for entry in entries_in_turns(ledger, states)]
        assert tuple(found) == ledger.in_state(*states)
    empty = PartitionLedger.empty(KEY)
    assert [entry async for entry in entries_in_turns(empty, (FINISHED,))] == []


async def test_others_have_their_turn_before_and_between_the_segments() -> None:
    ledger, turns, at_turns = large_ledger(), 0, list[int]()

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    beside = asyncio.ensure_future(others())
    async for _ in entries_in_turns(ledger, (FINISHED,)):
        at_turns.append(turns)
    beside.cancel()
    await asyncio.gather(beside, return_exceptions=True)
    assert at_turns[0] >= SEGMENTS // (4 * MOST_A_TURN), "they are sorted in turns"
    most = max(at_turns.count(turn) for turn in set(at_turns))
    assert most <= MOST_A_TURN, "they are decoded in turns"
