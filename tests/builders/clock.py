"""A clock that only moves when told; sleeping moves it."""


class ManualClock:
    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now

    async def sleep_ms(self, duration_ms: float) -> None:
        self.advance(int(duration_ms))

    def advance(self, duration_ms: int) -> None:
        self.now += duration_ms
