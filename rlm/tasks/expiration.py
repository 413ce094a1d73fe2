"""A round of the cleanup pool: trim, then clean, of one snapshot where that is as good as two.

A snapshot is given on only if nothing was done on the strength of it and it is fresh: a trim that
acted, waited or failed is followed by a snapshot of the cleanup's own. What cannot be undone is
asked again right before it is done, by either task, however old the snapshot. No snapshot is taken
while a DeleteRecords that was given up may be executed yet (H41).
"""

from collections.abc import Callable

from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.remote_log.snapshots import PartitionSnapshot, SnapshotReader
from rlm.tasks.cleanup import CleanupTask
from rlm.tasks.trim import TrimTask

GIVEN_ON_FOR_MS = 1_000


class ExpirationTask:
    """Trim and cleanup of the partitions that a service leads."""

    def __init__(
        self,
        *,
        snapshots: SnapshotReader,
        trim: TrimTask,
        cleanup: CleanupTask,
        clock: Clock,
        saw: Callable[[PartitionSnapshot, int], None],
    ) -> None:
        """`saw` is told each snapshot of a round, and when it began (monotonic ms)."""
        self._snapshots = snapshots
        self._trim = trim
        self._cleanup = cleanup
        self._clock = clock
        self._saw = saw

    async def run(self, led: LedPartition) -> None:
        """Trim, then clean; the failure of one does not keep the other from its turn.

        Errors of the snapshot or of the first that failed. Unavailable, and nothing is planned,
        while the outcome of a DeleteRecords is not known.
        """
        await self._trim.settle(led)
        began_at_ms = self._clock.monotonic_ms()
        live_before = self._cleanup.live_attempts()
        snapshot = await self._snapshots.take(led)
        self._saw(snapshot, began_at_ms)
        failures: list[Exception] = []
        is_given_on = False
        try:
            acted = await self._trim.run_on(snapshot, began_at_ms)
            age_ms = self._clock.monotonic_ms() - began_at_ms
            is_given_on = not acted and age_ms <= GIVEN_ON_FOR_MS
        except Exception as error:  # noqa: BLE001 - raised below, after the other's turn
            failures.append(error)
        try:
            if is_given_on:
                await self._cleanup.run_on(snapshot, live_before)
            else:
                await self._trim.settle(led)
                await self._cleanup.run(led)
        except Exception as error:  # noqa: BLE001 - raised below, behind the trim's
            failures.append(error)
        if failures:
            raise failures[0]
