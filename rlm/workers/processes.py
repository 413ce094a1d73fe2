"""Which processes of a service with proxy workers are there, as its core sees them."""

from dataclasses import dataclass

from rlm.clock import Clock
from rlm.plans.process_rules import ProcessObservation
from rlm.workers.inherited import CoreSettings


@dataclass(slots=True)
class _Worker:
    """Of one number: a worker and its successors."""

    heard_ms: int
    since_ms: int | None = None
    recent_ends: int = 0


class KnownProcesses:
    """All workers that the supervisor has, whether or not they have ever connected."""

    def __init__(self, settings: CoreSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._workers = {n: _Worker(heard_ms=self._began_ms) for n in range(settings.workers)}

    def greeted(self, worker: int, recent_ends: int) -> None:
        """It has connected."""
        known = self._workers.get(worker)
        if known is not None:
            known.since_ms = known.heard_ms = self._clock.monotonic_ms()
            known.recent_ends = recent_ends

    def heard(self, worker: int) -> None:
        """It has reported, as it does every second."""
        if worker in self._workers:
            self._workers[worker].heard_ms = self._clock.monotonic_ms()

    def observed(self) -> tuple[ProcessObservation, ...]:
        """The core and every worker."""
        now_ms = self._clock.monotonic_ms()
        core = ProcessObservation(
            name="core",
            quiet_ms=0,
            up_ms=now_ms - self._began_ms,
            recent_ends=self._settings.recent_ends,
        )
        workers = (
            ProcessObservation(
                name=f"worker {number}",
                quiet_ms=now_ms - one.heard_ms,
                up_ms=0 if one.since_ms is None else now_ms - one.since_ms,
                recent_ends=one.recent_ends,
            )
            for number, one in self._workers.items()
        )
        return (core, *workers)
