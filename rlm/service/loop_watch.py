"""Measures by how much work on the event loop is late: what holds the loop up holds clients up."""

from collections import deque

from rlm.clock import Clock

_EVERY_MS = 250
_KEPT_MS = 60_000


class LoopWatch:
    """`run` sleeps, and sees how much later than it should it goes on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Only those that no later one exceeds: (when, how late).
        self._late: deque[tuple[int, int]] = deque()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            due_ms = self._clock.monotonic_ms() + _EVERY_MS
            await self._clock.sleep_ms(_EVERY_MS)
            self._note(max(0, self._clock.monotonic_ms() - due_ms))

    def worst_ms(self) -> int | None:
        """The most in the last minute; None before the first measurement."""
        self._drop_old()
        return self._late[0][1] if self._late else None

    def _note(self, late_ms: int) -> None:
        while self._late and self._late[-1][1] <= late_ms:
            self._late.pop()
        self._late.append((self._clock.monotonic_ms(), late_ms))
        self._drop_old()

    def _drop_old(self) -> None:
        oldest_ms = self._clock.monotonic_ms() - _KEPT_MS
        while self._late and self._late[0][0] < oldest_ms:
            self._late.popleft()
