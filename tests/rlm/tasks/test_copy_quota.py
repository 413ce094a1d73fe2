"""Copies wait for their quota: fairly, before the upload, and outside of the deadline (KIP-956)."""

import asyncio
from pathlib import Path

import pytest

from rlm.tasks.copy_quota import CopyQuota
from tests.builders.clock import ManualClock
from tests.builders.rig import Rig

MIB = 1 << 20


class GatedClock(ManualClock):
    """Sleeps end when the gate opens; `sleeping` says for how long they wait."""

    def __init__(self) -> None:
        super().__init__(0)
        self.gate = asyncio.Event()
        self.sleeping: list[float] = []

    async def sleep_ms(self, duration_ms: float) -> None:
        self.sleeping.append(duration_ms)
        await self.gate.wait()
        self.advance(int(duration_ms))


async def test_a_large_segment_is_charged_whole_and_the_next_one_waits_for_it() -> None:
    clock, waits = ManualClock(0), list[int]()
    quota = CopyQuota(lambda: MIB, clock, waits.append)
    await quota.take(11 * MIB)
    assert (clock.now, waits) == (0, [])
    await quota.take(MIB)
    assert (clock.now, sum(waits)) == (10_000, 10_000)
    await quota.take(MIB)
    assert (clock.now, sum(waits)) == (11_000, 11_000)


async def test_over_time_the_rate_is_exact() -> None:
    clock = ManualClock(0)
    quota = CopyQuota(lambda: MIB, clock)
    for _ in range(100):
        await quota.take(3 * MIB)
    assert clock.now == pytest.approx(300_000, rel=0.02)


async def test_who_comes_later_waits_for_who_waits() -> None:
    clock, passed = GatedClock(), list[str]()
    quota = CopyQuota(lambda: MIB, clock)
    await quota.take(5 * MIB)

    async def take(name: str, size_bytes: int) -> None:
        await quota.take(size_bytes)
        passed.append(name)

    large = asyncio.ensure_future(take("large", 100 * MIB))
    small = asyncio.ensure_future(take("small", 1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (clock.sleeping, passed) == ([1_000], [])
    clock.gate.set()
    await asyncio.gather(large, small)
    assert passed == ["large", "small"]
    assert clock.sleeping == [1_000] * 104


async def test_a_waiter_that_is_cancelled_delays_no_other() -> None:
    clock = GatedClock()
    quota = CopyQuota(lambda: MIB, clock)
    await quota.take(5 * MIB)
    waiting = asyncio.ensure_future(quota.take(50 * MIB))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    clock.advance(4_000)
    await quota.take(1)
    assert clock.sleeping == [1_000]


async def test_a_limit_that_is_raised_shortens_the_wait_of_who_waits_already() -> None:
    rates, clock = [MIB], ManualClock(0)
    waits = list[int]()

    def throttled(wait_ms: int) -> None:
        waits.append(wait_ms)
        if clock.now == 100_000:
            rates[0] = 100 * MIB

    quota = CopyQuota(lambda: rates[0], clock, throttled)
    await quota.take(1_001 * MIB)  # a second's worth was there: 1,000 MiB of debt
    await quota.take(MIB)
    assert clock.now == 109_000, "100 s repaid 100 MiB, 9 s repaid 900"
    assert sum(waits) == 109_000


async def test_a_change_is_seen_within_a_second() -> None:
    rates, clock = [MIB], GatedClock()
    quota = CopyQuota(lambda: rates[0], clock)
    await quota.take(5 * MIB)
    waiting = asyncio.ensure_future(quota.take(MIB))
    await asyncio.sleep(0)
    rates[0] = 1_000 * MIB
    clock.gate.set()
    await waiting
    assert clock.sleeping == [1_000, 3], "3 MiB were left at the new rate"


async def test_a_limit_that_is_lowered_keeps_the_debt() -> None:
    rates, clock = [100 * MIB], ManualClock(0)
    quota = CopyQuota(lambda: rates[0], clock)
    await quota.take(150 * MIB)
    rates[0] = MIB
    await quota.take(10 * MIB)
    assert clock.now == 50_000
    await quota.take(MIB)
    assert clock.now == 60_000, "and what was saved at the higher rate is gone"


async def test_copies_wait_outside_of_their_deadline(tmp_path: Path) -> None:
    """At this rate each of the segments takes longer than the deadline of a copy."""
    rig = Rig(tmp_path, attempts_at_once=1, copy_bytes_per_second=1)
    rig.write_log(0, 100, 200, 300, end=350)
    began_ms = rig.clock.now
    await rig.copy.run(rig.led)
    sizes = [len(rig.store.objects[name]) for name in rig.names(".log")]
    assert len(sizes) == 3
    assert rig.clock.now - began_ms >= 1000 * (sum(sorted(sizes)[:2]) - 2)
    assert sum(rig.throttled_ms) >= 1000 * (sum(sorted(sizes)[:2]) - 2)
