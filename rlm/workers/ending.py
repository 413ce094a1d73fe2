"""The end of a process, in two parts, each with one line in the log: the drain, and the rest.

The drain gives clients the answers that are under way, within `shutdown.timeout.ms`. All else still
works meanwhile, because an answer may need it: a read of old records needs the plugin. The rest
stops what is left, and no client waits for it.
"""

from collections.abc import Awaitable, Callable

import structlog

from rlm.clock import Clock

log = structlog.get_logger(__name__)


class Ending:
    """When a process was asked to end, and how far it is. `names` are in each line."""

    def __init__(self, clock: Clock, **names: object) -> None:
        self._clock = clock
        self._names = names
        self._asked_ms: int | None = None
        self._drained_ms: int | None = None

    def asked(self) -> None:
        """The signal came; a second one changes nothing."""
        if self._asked_ms is None:
            self._asked_ms = self._clock.monotonic_ms()

    async def drain(self, drain: Callable[[], Awaitable[None]]) -> None:
        """Run `drain` once, however often this is called, and log how long it took."""
        if self._drained_ms is not None:
            return
        self.asked()
        await drain()
        self.drained()

    def drained(self) -> None:
        """No client is served any more."""
        self.asked()
        assert self._asked_ms is not None  # noqa: S101 - set above
        self._drained_ms = self._clock.monotonic_ms()
        log.info("drained", **self._names, drained_ms=self._drained_ms - self._asked_ms)

    def ended(self) -> None:
        """Everything has ended but the process."""
        if self._drained_ms is not None:
            rest_ms = self._clock.monotonic_ms() - self._drained_ms
            log.info("stopped", **self._names, rest_ms=rest_ms)
