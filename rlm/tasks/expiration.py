"""The expiration task of the cleanup pool: trims, then cleans up, with one snapshot where possible.

The cleanup reuses the trim's snapshot only if the trim changed nothing and the snapshot is fresh:
after a trim that acted, waited or failed, the cleanup takes its own. Either task checks an
irreversible step again right before it, however old the snapshot. No snapshot is taken while a
DeleteRecords that was given up may still be executed (H41).
"""

from collections.abc import Callable

from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.remote_log.snapshots import PartitionSnapshot, Snapshots
from rlm.tasks.cleanup import CleanupTask
from rlm.tasks.trim import TrimTask

GIVEN_ON_FOR_MS = 1_000


class ExpirationTask:
    """Trim and cleanup of the partitions that a service leads."""

    def __init__(
        self,
        *,
        snapshots: Snapshots,
        trim: TrimTask,
        cleanup: CleanupTask,
        clock: Clock,
        saw: Callable[[PartitionSnapshot, int], None],
    ) -> None:
        """`saw` is called with each snapshot of a run and when it began (monotonic ms)."""
        self._snapshots = snapshots
        self._trim = trim
        self._cleanup = cleanup
        self._clock = clock
        self._saw = saw

    async def run(self, led: LedPartition) -> None:
        """Trim, then clean up; a failure of one does not prevent the other.

        Raises the error of the snapshot, or the first failure. Unavailable, and nothing is planned,
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
        except Exception as error:  # noqa: BLE001 - raised below, after the cleanup
            failures.append(error)
        try:
            if is_given_on:
                await self._cleanup.run_on(snapshot, live_before)
            else:
                await self._trim.settle(led)
                await self._cleanup.run(led)
        except Exception as error:  # noqa: BLE001 - raised below, after the trim's error
            failures.append(error)
        if failures:
            raise failures[0]
