"""A clock that moves only by `advance` and by sleeping."""


class ManualClock:
    """Wall and monotonic clock run alike unless `wall_ahead_ms` says that the wall clock is wrong:
    another machine's, one that a time server has just set, one that was set back (H16).
    """

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now = now_ms
        self.wall_ahead_ms = 0

    def now_ms(self) -> int:
        return self.now + self.wall_ahead_ms

    def monotonic_ms(self) -> int:
        return self.now

    async def sleep_ms(self, duration_ms: float) -> None:
        self.advance(int(duration_ms))

    def advance(self, duration_ms: int) -> None:
        self.now += duration_ms
