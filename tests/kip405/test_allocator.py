"""The allocator is set up where glibc is, and left alone elsewhere."""

import gc
import platform
import subprocess
import sys

import pytest

from kip405.process import (
    KEPT_BY_A_SERVICE_BYTES,
    KEPT_BY_A_TASK_BYTES,
    collect_cycles_from_now,
    keep_freed_memory,
)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
@pytest.mark.parametrize("kept_bytes", [KEPT_BY_A_TASK_BYTES, KEPT_BY_A_SERVICE_BYTES])
def test_glibc_accepts_both_limits(kept_bytes: int) -> None:
    assert keep_freed_memory(kept_bytes)


def test_without_glibc_nothing_is_done() -> None:
    assert not keep_freed_memory(KEPT_BY_A_TASK_BYTES, "libno-such-library.so")


_AFTER_START = """
import gc, sys, weakref
from kip405.process import CYCLES_AFTER_OBJECTS, collect_cycles_less_often
collect_cycles_less_often()
assert gc.isenabled() and gc.get_threshold()[0] == CYCLES_AFTER_OBJECTS
assert gc.get_freeze_count() > 1_000 and sys.modules

class Cycle:
    def __init__(self):
        self.itself = self

seen = weakref.ref(Cycle())
kept = []
while seen() is not None and len(kept) <= 2 * CYCLES_AFTER_OBJECTS:
    kept.append([])
assert seen() is None, "the cycle was not found"
assert len(kept) > 1_000, "it was looked for at once"
"""


def test_cycles_are_looked_for_less_often_and_found() -> None:
    subprocess.run([sys.executable, "-c", _AFTER_START], check=True, timeout=240)


def test_who_collects_already_goes_on_as_before() -> None:
    frozen = gc.get_freeze_count()
    collect_cycles_from_now()
    assert (gc.isenabled(), gc.get_freeze_count()) == (True, frozen)
