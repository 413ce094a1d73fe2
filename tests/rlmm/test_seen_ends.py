"""Where the metadata topics end, as their leaders have answered."""

from collections.abc import Mapping

import pytest

from kip405.errors import Unavailable
from kip405.ids import TopicPartition, Uuid
from rlmm.leader_answers import EpochEnd, EpochQuestion
from rlmm.seen_ends import SeenEnds
from tests.builders.clock import ManualClock

FIRST, SECOND = TopicPartition("ledger", 0), TopicPartition("ledger", 1)
OTHER = TopicPartition("settings", 0)


class Leaders:
    """Answers what `ends` has; None: no broker can be reached."""

    def __init__(self) -> None:
        self.ends: Mapping[TopicPartition, int] | None = {}
        self.is_closed = False

    async def end_offset(self, topic_partition: TopicPartition, min_insync_replicas: int) -> int:
        return self._known()[topic_partition]

    async def epoch_ends(
        self, questions: Mapping[TopicPartition, EpochQuestion]
    ) -> dict[TopicPartition, EpochEnd]:
        known = self._known()
        return {one: EpochEnd(3, end) for one, end in known.items()}

    async def recorded_ledger_id(self) -> Uuid | None:
        return Uuid(b"l" * 16)

    async def close(self) -> None:
        self.is_closed = True

    def _known(self) -> Mapping[TopicPartition, int]:
        if self.ends is None:
            raise Unavailable("no broker")
        return self.ends


async def test_what_is_not_read_is_counted_by_the_newest_ends() -> None:
    leaders, clock = Leaders(), ManualClock()
    ends, positions = SeenEnds(leaders, clock.monotonic_ms), {FIRST: 10, SECOND: 4}

    def unread(topic: str) -> int | None:
        return ends.unread_records(topic, lambda one: positions.get(one, 0))

    assert (unread("ledger"), ends.answered_at_ms) == (None, None)
    leaders.ends = {FIRST: 12, SECOND: 4, OTHER: 7}
    await ends.epoch_ends({})
    assert (unread("ledger"), unread("settings")) == (2, 7)
    leaders.ends = {SECOND: 9}
    assert await ends.end_offset(SECOND, 1) == 9
    assert unread("ledger") == 7
    positions |= {FIRST: 12, SECOND: 11}
    assert unread("ledger") == 0


async def test_an_older_epoch_ends_no_log_and_no_answer_is_no_answer() -> None:
    leaders, clock = Leaders(), ManualClock()
    ends = SeenEnds(leaders, clock.monotonic_ms)
    leaders.ends = {FIRST: 12}
    await ends.end_offset(FIRST, 1)
    answered_at_ms = clock.monotonic_ms()
    clock.advance(5_000)
    for unknown in ({}, {FIRST: -1}):
        leaders.ends = unknown
        await ends.epoch_ends({})
    leaders.ends = None
    with pytest.raises(Unavailable):
        await ends.epoch_ends({})
    assert ends.answered_at_ms == answered_at_ms
    leaders.ends = {FIRST: 8}
    await ends.epoch_ends({})
    assert ends.unread_records("ledger", lambda _: 0) == 12
    assert ends.answered_at_ms == clock.monotonic_ms()


async def test_the_rest_is_passed_on() -> None:
    leaders = Leaders()
    ends = SeenEnds(leaders, ManualClock().monotonic_ms)
    assert await ends.recorded_ledger_id() == Uuid(b"l" * 16)
    await ends.close()
    assert leaders.is_closed
