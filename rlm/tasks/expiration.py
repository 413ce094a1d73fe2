"""The expiration task of the cleanup pool: records holes, trims, expires, deletes what is
unreferenced or was discarded, and cleans up, if possible by one snapshot.

A step uses the snapshot of the step before only if that changed nothing and the snapshot is fresh:
after a step that acted, waited or failed, the next one takes its own. Each step checks an
irreversible action again right before it, however old the snapshot. No snapshot is taken while a
DeleteRecords that was given up may still be executed (H41).
"""

from collections.abc import Callable
from dataclasses import dataclass

from kip405.ids import PartitionKey, Uuid
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.remote_log.snapshots import PartitionSnapshot, Snapshots
from rlm.tasks.cleanup import CleanupTask
from rlm.tasks.discard import DiscardTask
from rlm.tasks.expiry import ExpiryTask
from rlm.tasks.good_runs import GoodRun, GoodRuns
from rlm.tasks.hole_watch import HoleWatch
from rlm.tasks.trim import TrimTask
from rlm.tasks.unreferenced import UnreferencedTask

GIVEN_ON_FOR_MS = 5_000
"""Long enough for a group of snapshots (rlm.tasks.schedule) on a machine that is busy: where they
were too old, each task would take another one, and the machine would be busier still.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A snapshot, when it began (monotonic ms), and the copy attempts that were live before."""

    snapshot: PartitionSnapshot
    began_at_ms: int
    live_before: frozenset[Uuid]


class ExpirationTask:
    """Holes, trim, expiry and cleanup of the partitions that a service leads."""

    def __init__(
        self,
        *,
        snapshots: Snapshots,
        holes: HoleWatch,
        trim: TrimTask,
        expiry: ExpiryTask,
        unreferenced: UnreferencedTask,
        discard: DiscardTask,
        cleanup: CleanupTask,
        clock: Clock,
        good_runs: GoodRuns,
        saw: Callable[[PartitionSnapshot, int], None],
    ) -> None:
        """`saw` is called with the first snapshot of a run and when it began (monotonic ms)."""
        self._snapshots = snapshots
        self._holes = holes
        self._trim = trim
        self._expiry = expiry
        self._unreferenced = unreferenced
        self._discard = discard
        self._cleanup = cleanup
        self._clock = clock
        self._good_runs = good_runs
        self._saw = saw

    async def run(self, led: LedPartition, first: Seen | None = None) -> None:
        """Record holes, trim, expire, delete the unreferenced and what was discarded, clean up,
        whichever of them fails.

        `first`: what `see` has found; it is not used where it is old. Raises the error of the first
        snapshot, or the first failure. Unavailable, and nothing is planned, while the outcome of a
        DeleteRecords is not known.
        """
        if first is None or self._is_old(first):
            first = await self.see(led)
        self._saw(first.snapshot, first.began_at_ms)
        seen: Seen | None = first
        failures: list[Exception] = []
        before = self._run_holes, self._run_trim, self._run_expiry
        deletions = self._run_unreferenced, self._run_discard
        for step in (*before, *deletions, self._run_cleanup):
            try:
                if seen is None or self._is_old(seen):
                    seen = await self.see(led)
                if await step(seen):
                    seen = None
            except Exception as error:  # noqa: BLE001 - the first one is raised below
                failures.append(error)
                seen = None
        if failures:
            raise failures[0]

    def forget(self, key: PartitionKey) -> None:
        """The partition is no longer led here."""
        self._good_runs.forget(GoodRun.TRIM, key)
        self._good_runs.forget(GoodRun.EXPIRY, key)

    async def see(self, led: LedPartition) -> Seen:
        """A snapshot for `run`. Unavailable: as `run`; otherwise errors as `SnapshotTaker.take`."""
        await self._trim.settle(led)
        began_at_ms = self._clock.monotonic_ms()
        live_before = self._cleanup.live_attempts()
        snapshot = await self._snapshots.take(led)
        return Seen(snapshot=snapshot, began_at_ms=began_at_ms, live_before=live_before)

    def _is_old(self, seen: Seen) -> bool:
        return self._clock.monotonic_ms() - seen.began_at_ms > GIVEN_ON_FOR_MS

    async def _run_holes(self, seen: Seen) -> bool:
        return await self._holes.run_on(seen.snapshot)

    async def _run_trim(self, seen: Seen) -> bool:
        is_done = await self._trim.run_on(seen.snapshot, seen.began_at_ms)
        self._good_runs.note(GoodRun.TRIM, seen.snapshot.key)
        return is_done

    async def _run_expiry(self, seen: Seen) -> bool:
        is_done = await self._expiry.run_on(seen.snapshot)
        self._good_runs.note(GoodRun.EXPIRY, seen.snapshot.key)
        return is_done

    async def _run_unreferenced(self, seen: Seen) -> bool:
        return await self._unreferenced.run_on(seen.snapshot)

    async def _run_discard(self, seen: Seen) -> bool:
        return await self._discard.run_on(seen.snapshot)

    async def _run_cleanup(self, seen: Seen) -> bool:
        await self._cleanup.run_on(seen.snapshot, seen.live_before)
        return True
