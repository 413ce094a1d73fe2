"""What total retention ends: Kafka's rules over the ledger, and every reason to stop (H1, H4)."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from kip405.ids import Uuid
from kip405.lineage import Lineage
from kip405.segments import EpochEntry, RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.log_dir.scanner import Closed, LocalSegment, PartitionLog
from rlm.plans.expiry import (
    ExpiryPlan,
    ExpiryView,
    Held,
    NoExpiry,
    plan_expiry,
)
from rlmm.ledger import Hole
from rlmm.settings_records import TotalRetention
from tests.builders.ledger import OTHER_WRITER, PARTITION, MemoryLedger, metadata

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
NOW_MS = 1_000_000
SIZE = 100


def segment(
    number: int,
    start: int,
    end: int,
    *,
    epochs: dict[int, int] | None = None,
    age_ms: int = 0,
    size_bytes: int = SIZE,
) -> RemoteLogSegmentMetadata:
    """[start, end), whose newest record is that old."""
    return replace(
        metadata(number, start, end, epochs or {0: start}),
        max_timestamp_ms=NOW_MS - age_ms,
        segment_size_bytes=size_bytes,
    )


def lineage(*entries: tuple[int, int]) -> Lineage:
    return Lineage(tuple(EpochEntry(epoch=epoch, start_offset=at) for epoch, at in entries))


def local(base: int, end: int | None, size_bytes: int = SIZE) -> LocalSegment:
    return LocalSegment(
        base_offset=base,
        next_offset=end,
        closed=Closed.ACTIVE if end is None else Closed.CLOSED,
        size_bytes=size_bytes,
        inode=1,
        path=f"/data/orders-0/{base:020d}.log",
        max_timestamp_ms=NOW_MS,
    )


def log_of(*segments: LocalSegment) -> PartitionLog:
    return PartitionLog(
        topic=PARTITION.topic,
        partition=0,
        topic_id=PARTITION.topic_id,
        directory="/data/orders-0",
        segments=segments,
        lineage=lineage((0, 0)),
        recovery_point=None,
    )


def view(
    ledger: MemoryLedger | Sequence[RemoteLogSegmentMetadata],
    *,
    total: TotalRetention,
    start: int | None = 0,
    start_epoch: int = 9,
    of: Lineage | None = None,
    log: PartitionLog | None = None,
    local_start: int | None = None,
    holes: Sequence[Hole] = (),
    copying: Collection[Uuid] = (),
    now_ms: int | Held = NOW_MS,
    most_percent: int | None = None,
    log_end: int = 100_000,
) -> ExpiryView:
    if not isinstance(ledger, MemoryLedger):
        segments, ledger = ledger, MemoryLedger()
        ledger.copied(*segments)
    found = ledger.view
    return ExpiryView(
        ledger=found,
        lineage=of or lineage((0, 0)),
        log_end_offset=log_end,
        remote_log_start_offset=start,
        remote_log_start_epoch=start_epoch,
        log=log or log_of(),
        local_log_start_offset=found.readable_end if local_start is None else local_start,
        holes=holes,
        copying=copying,
        retention=total,
        now_ms=now_ms,
        most_percent=most_percent,
    )


def by_age(age_ms: int) -> TotalRetention:
    return TotalRetention(retention_ms=age_ms)


def by_size(size_bytes: int) -> TotalRetention:
    return TotalRetention(retention_bytes=size_bytes)


def offsets(plan: ExpiryPlan) -> list[int]:
    return [one.start_offset for one in plan.segments]


THREE = (segment(1, 0, 10), segment(2, 10, 20), segment(3, 20, 30))


@pytest.mark.parametrize(
    ("total", "starts", "new_start"),
    [
        (by_size(3 * SIZE), [], 0),
        (by_size(3 * SIZE - 1), [], 0),  # a whole segment must fit in what is too much
        (by_size(2 * SIZE), [0], 10),
        (by_size(2 * SIZE - 1), [0], 10),
        (by_size(1), [0, 10], 20),
        (by_size(0), [0, 10, 20], 30),
    ],
)
def test_size_ends_a_segment_only_if_all_of_it_is_too_much(
    total: TotalRetention, starts: list[int], new_start: int
) -> None:
    plan = plan_expiry(view(THREE, total=total))
    assert (offsets(plan), plan.new_start) == (starts, new_start)
    assert plan.held.reason is NoExpiry.WITHIN_RETENTION


@pytest.mark.parametrize(("age_ms", "is_gone"), [(999, False), (1_000, False), (1_001, True)])
def test_time_is_compared_strictly(age_ms: int, is_gone: bool) -> None:
    """KAFKA-20091."""
    plan = plan_expiry(view([segment(1, 0, 10, age_ms=age_ms)], total=by_age(1_000)))
    assert bool(plan.segments) is is_gone
    assert plan.new_start == (10 if is_gone else 0)


def test_it_stops_at_the_first_segment_that_stays() -> None:
    """An older record behind a newer one stays as long as that."""
    segments = [
        segment(1, 0, 10, age_ms=5_000),
        segment(2, 10, 20, age_ms=10),
        segment(3, 20, 30, age_ms=5_000),
    ]
    plan = plan_expiry(view(segments, total=by_age(1_000)))
    assert (offsets(plan), plan.new_start) == ([0], 10)


def test_what_goes_by_age_leaves_less_to_go_by_size() -> None:
    segments = [
        segment(1, 0, 10, age_ms=5_000),
        segment(2, 10, 20, age_ms=5_000),
        segment(3, 20, 30),
    ]
    total = TotalRetention(retention_ms=1_000, retention_bytes=2 * SIZE)
    plan = plan_expiry(view(segments, total=total))
    assert offsets(plan) == [0, 10]


def test_a_segment_without_timestamps_is_never_too_old() -> None:
    plan = plan_expiry(view([segment(1, 0, 10, age_ms=NOW_MS + 1)], total=by_age(1_000)))
    assert not plan.segments


@pytest.mark.parametrize("total", [TotalRetention(), TotalRetention(retention_ms=-1)])
def test_unlimited_retention_ends_nothing(total: TotalRetention) -> None:
    plan = plan_expiry(view([segment(1, 0, 10, age_ms=NOW_MS)], total=total))
    assert (plan.segments, plan.raises, plan.held.reason) == ((), False, NoExpiry.UNLIMITED)


def test_h02_without_a_known_remote_log_start_nothing_is_deleted() -> None:
    plan = plan_expiry(view([segment(1, 0, 10, age_ms=5_000)], total=by_age(0), start=None))
    assert (plan.segments, plan.raises, plan.held.reason) == ((), False, NoExpiry.NO_START)


def test_h16_without_a_certain_time_nothing_expires_and_what_has_ended_goes() -> None:
    held = Held(reason=NoExpiry.CLOCK, detail="why")
    segments = [segment(1, 0, 10, age_ms=5_000), segment(2, 10, 20, age_ms=5_000)]
    plan = plan_expiry(view(segments, total=by_age(0), start=10, now_ms=held))
    assert (offsets(plan), plan.raises, plan.held) == ([0], False, held)


def test_h01_the_brokers_log_start_ends_nothing() -> None:
    plan = plan_expiry(view(THREE, total=by_age(1_000), local_start=30))
    assert (plan.segments, plan.new_start) == ((), 0)


@pytest.mark.parametrize("local_start", [0, 25, 30])
def test_kafka_20732_bytes_that_are_in_both_tiers_are_counted_once(local_start: int) -> None:
    """The log of a fresh leader: it holds everything that is remote, and an active segment."""
    log = log_of(local(0, 10), local(10, 20), local(20, 30), local(30, None))
    total = by_size(4 * SIZE)
    assert not plan_expiry(view(THREE, total=total, log=log, local_start=local_start)).segments
    less = plan_expiry(view(THREE, total=by_size(3 * SIZE), log=log, local_start=local_start))
    assert offsets(less) == [0]


def test_a_local_segment_that_begins_below_the_remote_end_is_not_counted() -> None:
    log = log_of(local(25, 40), local(40, None))
    assert not plan_expiry(view(THREE, total=by_size(4 * SIZE), log=log)).segments


def test_offsets_of_overlapping_segments_are_counted_once() -> None:
    """Another leader's segments have other borders: 0 to 20 is in three of them."""
    segments = [segment(1, 0, 20), segment(2, 10, 30), segment(3, 10, 20)]
    assert not plan_expiry(view(segments, total=by_size(150))).segments
    plan = plan_expiry(view(segments, total=by_size(50)))
    assert (offsets(plan), plan.new_start) == ([0], 20)
    with_the_copy = plan_expiry(view(segments, total=by_size(49)))
    assert (offsets(with_the_copy), with_the_copy.new_start) == ([0, 10], 20)


def test_a_segment_that_reaches_beyond_the_new_start_stays() -> None:
    segments = [
        segment(1, 0, 20, age_ms=5_000),
        segment(2, 10, 30, age_ms=5_000),
        segment(3, 25, 40, age_ms=10),
    ]
    plan = plan_expiry(view(segments, total=by_age(1_000)))
    assert (offsets(plan), plan.new_start) == ([0, 10], 30)
    kept = replace(segments[1], max_timestamp_ms=NOW_MS)
    plan = plan_expiry(view([segments[0], kept, segments[2]], total=by_age(1_000)))
    assert (offsets(plan), plan.new_start) == ([0], 20)


def test_h04_a_segment_of_a_dead_lineage_is_passed_over_and_kept() -> None:
    """Epoch 2 began at 10: what epoch 1 has written from there on counts nothing."""
    dead = segment(2, 10, 20, epochs={1: 10}, age_ms=5_000)
    segments = [
        segment(1, 0, 10, epochs={1: 0}, age_ms=5_000),
        dead,
        segment(3, 10, 20, epochs={2: 10}, age_ms=5_000),
    ]
    of = lineage((1, 0), (2, 10))
    plan = plan_expiry(view(segments, total=by_age(1_000), of=of))
    assert dead not in plan.segments
    assert plan.new_start == 20
    sized = plan_expiry(view(segments, total=by_size(2 * SIZE), of=of))
    assert not sized.segments


def test_h04_a_segment_that_ends_in_a_dead_lineage_counts_and_ends_up_to_there() -> None:
    half_dead = segment(1, 0, 20, epochs={1: 0}, age_ms=5_000)
    segments = [half_dead, segment(2, 10, 30, epochs={2: 10})]
    of = lineage((1, 0), (2, 10))
    assert not plan_expiry(view(segments, total=by_size(150), of=of)).raises
    plan = plan_expiry(view(segments, total=by_age(1_000), of=of))
    assert (plan.new_start, plan.segments) == (10, ())  # it has offsets beyond the new start


def test_being_copied_stops_the_walk() -> None:
    ledger = MemoryLedger()
    ledger.copied(segment(1, 0, 10, age_ms=5_000), segment(2, 10, 20, age_ms=5_000))
    attempt = metadata(3, 10, 20, {0: 10}, STARTED)
    ledger.write(attempt)
    copying = {attempt.segment_id.id}
    plan = plan_expiry(view(ledger, total=by_age(1_000), copying=copying))
    assert (offsets(plan), plan.held.reason) == ([0], NoExpiry.COPYING)
    assert plan_expiry(view(ledger, total=by_age(1_000))).new_start == 20


def test_an_attempt_counts_nothing_for_retention_by_size() -> None:
    ledger = MemoryLedger()
    ledger.copied(*THREE)
    attempt = replace(metadata(9, 30, 40, {0: 30}, STARTED), segment_size_bytes=10 * SIZE)
    ledger.write(attempt)
    assert not plan_expiry(view(ledger, total=by_size(3 * SIZE))).segments


@pytest.mark.parametrize("state", [STARTED, DELETING])
def test_h15_the_walk_stops_before_offsets_that_an_unsettled_segment_may_hold(
    state: RemoteLogSegmentState,
) -> None:
    ledger = MemoryLedger()
    ledger.copied(segment(1, 0, 10, age_ms=5_000), segment(3, 20, 30, age_ms=5_000))
    unsettled = segment(2, 10, 20).in_state(state, event_timestamp_ms=0, broker_id=2)
    ledger.write(unsettled, writer=OTHER_WRITER)
    plan = plan_expiry(view(ledger, total=by_age(1_000), local_start=30))
    assert (offsets(plan), plan.held.reason) == ([0], NoExpiry.UNSETTLED)


def test_the_walk_stops_before_offsets_that_only_the_local_log_holds() -> None:
    segments = [segment(1, 0, 10, age_ms=5_000), segment(3, 20, 30, age_ms=5_000)]
    held = view(segments, total=by_age(1_000), local_start=19)
    assert plan_expiry(held).held.reason is NoExpiry.ONLY_LOCAL
    assert plan_expiry(held).new_start == 10
    lost = view(segments, total=by_age(1_000), local_start=20)
    assert plan_expiry(lost).new_start == 30
    hole = Hole(start=10, end=20, cause="accepted loss")
    recorded = view(segments, total=by_age(1_000), local_start=0, holes=[hole])
    assert plan_expiry(recorded).new_start == 30


def test_h15_a_recorded_hole_does_not_end_what_the_local_log_has_after_all() -> None:
    """As where a replica that still has the records became the leader: they are copied first."""
    segments = [segment(1, 0, 10, age_ms=5_000), segment(3, 20, 30, age_ms=5_000)]
    hole = Hole(start=10, end=20, cause="accepted loss")
    for log in (log_of(local(10, 20)), log_of(local(0, 15), local(15, 40)), log_of(local(0, None))):
        plan = plan_expiry(
            view(segments, total=by_age(1_000), local_start=0, holes=[hole], log=log)
        )
        assert (plan.new_start, plan.held.reason) == (10, NoExpiry.ONLY_LOCAL)
    for log, local_start in ((log_of(local(10, 20)), 20), (log_of(local(10, 20, 0)), 0)):
        given = view(segments, total=by_age(1_000), local_start=local_start, holes=[hole], log=log)
        assert plan_expiry(given).new_start == 30


def disputed(ledger: MemoryLedger, one: RemoteLogSegmentMetadata) -> None:
    """A late writer's record hides that it is finished."""
    zombie = one.in_state(DELETING, event_timestamp_ms=0, broker_id=2)
    ledger.write(zombie, previous=0, writer=OTHER_WRITER)
    assert ledger.view.entries[one.segment_id.id].disputed


def test_h03_a_disputed_segment_stops_the_walk_and_is_not_deleted() -> None:
    ledger = MemoryLedger()
    one = segment(1, 0, 10, age_ms=5_000)
    ledger.copied(one, segment(2, 10, 20, age_ms=5_000))
    disputed(ledger, one)
    plan = plan_expiry(view(ledger, total=by_age(1_000)))
    assert (plan.segments, plan.held.reason) == ((), NoExpiry.DISPUTED)
    ended = plan_expiry(view(ledger, total=TotalRetention(), start=10))
    assert not ended.segments
    behind = plan_expiry(view(ledger, total=by_age(1_000), start=10))
    assert (offsets(behind), behind.new_start) == ([10], 20), "one that has ended stops nothing"


@pytest.mark.parametrize("again", [False, True], ids=["other offsets", "the same offsets"])
def test_h03_a_disputed_segment_counts_nothing_for_retention_by_size(again: bool) -> None:
    """Nor does it take the place of a segment that holds the same offsets."""
    ledger = MemoryLedger()
    two = segment(2, 10, 20)
    ledger.copied(segment(1, 0, 10), two, segment(3, *(10, 20) if again else (20, 30)))
    disputed(ledger, two)
    assert offsets(plan_expiry(view(ledger, total=by_size(2 * SIZE)))) == []
    assert offsets(plan_expiry(view(ledger, total=by_size(SIZE)))) == [0]


def test_h04_records_of_a_dead_lineage_count_nothing_for_retention_by_size() -> None:
    segments = (
        segment(1, 0, 10, size_bytes=10),
        segment(2, 10, 30),
        segment(3, 20, 30, epochs={1: 20}),
    )
    after_election = lineage((0, 0), (1, 20))
    kept = 10 + SIZE // 2 + SIZE
    assert offsets(plan_expiry(view(segments, total=by_size(kept), of=after_election))) == []
    assert offsets(plan_expiry(view(segments, total=by_size(kept - 10), of=after_election))) == [0]


def test_h06_what_ended_is_not_deleted_while_our_own_attempt_lasts() -> None:
    first = THREE[0].segment_id.id
    plan = plan_expiry(view(THREE, total=TotalRetention(), start=10, copying=[first]))
    assert plan.segments == ()
    assert offsets(plan_expiry(view(THREE, total=TotalRetention(), start=10))) == [0]


def test_what_ended_below_the_start_goes_whatever_raised_it() -> None:
    """As after a crash: one is FINISHED, one was begun to be deleted; retention has no limit."""
    ledger = MemoryLedger()
    one, two = segment(1, 0, 10), segment(2, 10, 20)
    ledger.copied(one, two, segment(3, 20, 30))
    deleting = two.in_state(DELETING, event_timestamp_ms=0, broker_id=2)
    ledger.write(deleting, previous=1, writer=OTHER_WRITER)
    plan = plan_expiry(view(ledger, total=TotalRetention(), start=25))
    assert plan.segments == (one, deleting)
    assert not plan.raises


def test_h04_records_of_a_later_epoch_than_the_decision_are_kept_below_the_start() -> None:
    """A log that started again: nobody has ended what it holds."""
    segments = [segment(1, 0, 10, epochs={3: 0}), segment(2, 0, 10, epochs={5: 0})]
    plan = plan_expiry(view(segments, total=TotalRetention(), start=50, start_epoch=4))
    assert plan.segments == (segments[0],)
    unknown = plan_expiry(view(segments, total=TotalRetention(), start=50, start_epoch=-1))
    assert not unknown.segments


TEN = tuple(segment(number, number * 10, number * 10 + 10, age_ms=5_000) for number in range(10))


@pytest.mark.parametrize(
    ("percent", "count"), [(10, 1), (1, 1), (19, 1), (20, 2), (100, 10), (None, 10)]
)
def test_h16_a_pass_takes_a_share_of_the_bytes_and_always_one_segment(
    percent: int | None, count: int
) -> None:
    plan = plan_expiry(view(TEN, total=by_age(1_000), most_percent=percent))
    assert len(plan.segments) == count
    assert plan.new_start == count * 10
    expected = NoExpiry.WITHIN_RETENTION if count == 10 else NoExpiry.LATER
    assert plan.held.reason is expected


def test_h16_one_segment_goes_even_if_it_is_larger_than_the_share() -> None:
    segments = [segment(1, 0, 10, age_ms=5_000, size_bytes=900), segment(2, 10, 20, age_ms=5_000)]
    plan = plan_expiry(view(segments, total=by_age(1_000), most_percent=10))
    assert offsets(plan) == [0]
