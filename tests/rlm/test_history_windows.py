"""Where windows of history begin, by the segments of a real ledger and by two clocks."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from kip405.ids import MAX_OFFSET, PartitionKey
from rlm.plans.client_history import Extent, WindowStart, window_start
from rlm.remote_log.history import RemoteHistory
from rlm.remote_log.history_windows import HistoryWindows
from rlm.remote_log.snapshot_cache import CoalescedSnapshots
from rlm.remote_log.tier import TierPartition
from rlmm.records import LedgerRecord
from tests.builders.clock import ManualClock
from tests.builders.ledger import PARTITION
from tests.rlm.tier_site import BY_NAME, Site, site
from tests.rlmm.builders import FINISHED, record
from tests.rlmm.test_ledger_model import LINEAGES, Readers, history

__all__ = ["site"]

WINDOW_MS = 10_000
KEY = PartitionKey(PARTITION.topic_id, 0)


async def with_window(site: Site) -> TierPartition:
    """The view of a service whose settings name a window; all local records but the last are
    gone.
    """
    site.windows_ms = (WINDOW_MS,)
    site.tier = site.tier_with(CoalescedSnapshots(site.snapshots, site.tasks))
    site.rig.broker.log_start_offset = 250
    await site.leadership.refresh()
    view = await site.barrier()
    assert view is not None
    return view


def newest_ms(site: Site) -> list[int]:
    ledger = site.rig.ledger.ledger(KEY)
    return [one.metadata.max_timestamp_ms for one in ledger.entries.values()]


def start_now(site: Site) -> int:
    view = site.tier.partition(BY_NAME, 0)
    assert view is not None
    [(window_ms, offset)] = view.window_starts
    assert window_ms == WINDOW_MS
    return offset


async def test_without_a_window_nothing_is_looked_for(site: Site) -> None:
    view = await site.barrier()
    assert view is not None
    assert view.window_starts == ()


async def test_a_window_begins_at_a_segment_and_moves_on_with_the_time(site: Site) -> None:
    first_ms, second_ms = newest_ms(site)
    site.rig.clock.now = min(first_ms, second_ms)
    view = await with_window(site)
    assert view.window_starts == (WindowStart(WINDOW_MS, 0),)
    site.rig.clock.now = first_ms + WINDOW_MS
    assert start_now(site) == 0
    site.rig.clock.advance(1)
    assert start_now(site) == (100 if second_ms > first_ms else 250)
    site.rig.clock.now = max(first_ms, second_ms) + WINDOW_MS + 1
    assert start_now(site) == 250


async def test_h16_the_earlier_clock_counts_so_that_a_wrong_one_hides_nothing(site: Site) -> None:
    site.rig.clock.now = max(newest_ms(site))
    site.rig.heartbeat()  # a record by which the brokers' time is known
    await with_window(site)
    assert start_now(site) == 0
    site.rig.clock.wall_ahead_ms = 365 * 86_400_000
    assert start_now(site) == 0


async def test_the_remote_log_start_is_a_bound_below(site: Site) -> None:
    site.rig.clock.now = min(newest_ms(site))
    site.rig.remote_start(40)
    await with_window(site)
    assert start_now(site) == 40


async def test_timestamps_are_looked_up_from_an_offset_on(site: Site) -> None:
    await with_window(site)
    found = await site.tier.offset_for_timestamp(PARTITION.topic_id, 0, 0, 120)
    assert found is not None
    assert found.offset == 120


def aged(draw: random.Random, records: Iterator[LedgerRecord]) -> Iterator[LedgerRecord]:
    """Segments are the younger the higher they lie, by and large; of some the age is unknown."""
    for one in records:
        made = one.metadata
        if made is None:
            yield one
            continue
        newest_ms = max(made.start_offset * 10 + draw.randrange(-9_000, 9_000), 0)
        newest_ms = draw.choice([newest_ms] * 40 + [0, 90_000, -1])
        yield replace(one, metadata=replace(made, max_timestamp_ms=newest_ms))


def walked(
    segments: Iterable[Extent], windows_ms: tuple[int, ...], bounds: tuple[int, int], now_ms: int
) -> tuple[WindowStart, ...]:
    """What a look at every segment finds."""
    found = {
        window_ms: window_start(
            segments,
            window_ms=window_ms,
            now_ms=now_ms,
            remote_log_start_offset=bounds[0],
            local_log_start_offset=bounds[1],
        )
        for window_ms in windows_ms
    }
    return tuple(WindowStart(window_ms, one.offset) for window_ms, one in found.items())


@pytest.mark.parametrize("seed", range(6))
def test_windows_are_what_a_search_through_every_segment_finds(seed: int) -> None:
    """Whatever happens: copies that come late, deletions, disputes, another lineage and back, a log
    that has lost its end, retention, other windows in the settings, a clock that is set back.
    """
    draw, readers, clock = random.Random(seed), Readers(), ManualClock()
    windows_ms: tuple[int, ...] = (1_000, 40_000)
    bounds = 0, 7_000
    windows = HistoryWindows(windows_ms, clock)
    for written in aged(draw, history(draw, 2_000, 650)):
        readers.apply(written)
        if written.offset == 900:
            readers.go_live(absence_is_known=seed % 2 == 0)
        if draw.random() > 0.03:
            continue
        if draw.random() < 0.1:
            windows_ms = tuple(sorted({draw.randrange(1, 70_000) for _ in range(3)}))
            windows = HistoryWindows(windows_ms, clock)
        if draw.random() < 0.2:
            bounds = draw.choice([0, draw.randrange(3_000)]), draw.choice([0, 5_000, 7_000])
        one = RemoteHistory(
            name="t-0",
            ledger=readers.next_view() if draw.random() < 0.8 else readers.view,
            lineage=draw.choice([LINEAGES[0], LINEAGES[0], LINEAGES[1]]),
            log_end_offset=draw.choice([MAX_OFFSET, MAX_OFFSET, draw.randrange(7_500)]),
            trusted=True,
        )
        segments = [usable.metadata for usable in one.usable(bounds[0])]
        ages_ms = [segment.max_timestamp_ms for segment in segments] or [0]
        for _ in range(4):
            edge_ms = draw.choice(ages_ms) + draw.choice(windows_ms)
            clock.now = draw.choice([edge_ms - 1, edge_ms, edge_ms + 1, clock.now + 500])
            found = windows.starts(
                one,
                remote_log_start_offset=bounds[0],
                local_log_start_offset=bounds[1],
                log_time_ms=lambda _: None,
            )
            assert found == walked(segments, windows_ms, bounds, clock.now)


def test_groups_of_old_segments_are_left_out() -> None:
    """One young segment low in the log, old ones behind it, then young ones again."""
    readers = Readers()
    for number in range(3_000):
        made = record(number, number, FINISHED, epoch=0)
        assert made.metadata is not None
        newest_ms = 9_000 if number == 1_100 or number >= 2_990 else 1_000
        metadata = replace(made.metadata, max_timestamp_ms=newest_ms)
        readers.ours.apply(replace(made, metadata=metadata))
    view = readers.next_view()
    found = list(view.extents_since(9_000, LINEAGES[0], MAX_OFFSET))
    assert [one.start_offset for one in found if one.max_timestamp_ms == 9_000] == [
        number * 10 for number in (1_100, *range(2_990, 3_000))
    ]
    assert len(found) < 1_000
    assert not list(view.extents_since(9_001, LINEAGES[0], MAX_OFFSET))
    assert len(list(view.extents_since(1_000, LINEAGES[0], MAX_OFFSET))) == 3_000
