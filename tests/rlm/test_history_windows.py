"""Where windows of history begin, by the segments of a real ledger and by two clocks."""

from kip405.ids import PartitionKey
from rlm.plans.client_history import WindowStart
from rlm.remote_log.snapshot_cache import CoalescedSnapshots
from rlm.remote_log.tier import TierPartition
from tests.builders.ledger import PARTITION
from tests.rlm.tier_site import BY_NAME, Site, site

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
