"""When the timer that ends a plugin is set and stopped; test_spawned.py has it end one."""

import asyncio
import faulthandler
from typing import Any

import pytest

from rsm_plugins.process.hang_guard import ended_if_it_hangs


class Timer:
    """In place of faulthandler's, which is the test run's own watchdog."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.set: list[tuple[float, bool]] = []
        self.set_often = asyncio.Event()
        self.cancelled = 0
        monkeypatch.setattr(faulthandler, "dump_traceback_later", self._set)
        monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", self._cancel)

    def _set(self, seconds: float, *, file: Any, exit: bool) -> None:
        self.set.append((seconds, exit))
        if len(self.set) == 3:
            self.set_often.set()

    def _cancel(self) -> None:
        self.cancelled += 1


async def test_the_timer_is_set_again_while_the_loop_runs_and_stopped_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timer = Timer(monkeypatch)
    with ended_if_it_hangs(120):
        await asyncio.wait_for(timer.set_often.wait(), 60)
        assert timer.cancelled == 0
    often = len(timer.set)
    assert set(timer.set) == {(0.12, True)}
    assert timer.cancelled == 1
    await asyncio.sleep(0.05)
    assert len(timer.set) == often, "set again after the end"


async def test_zero_is_never(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = Timer(monkeypatch)
    with ended_if_it_hangs(0):
        await asyncio.sleep(0)
    assert (timer.set, timer.cancelled) == ([], 0)
