"""The allocator is set up where glibc is, and left alone elsewhere."""

import platform

import pytest

from kip405.process import KEPT_BY_A_SERVICE_BYTES, KEPT_BY_A_TASK_BYTES, keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
@pytest.mark.parametrize("kept_bytes", [KEPT_BY_A_TASK_BYTES, KEPT_BY_A_SERVICE_BYTES])
def test_glibc_accepts_both_limits(kept_bytes: int) -> None:
    assert keep_freed_memory(kept_bytes)


def test_without_glibc_nothing_is_done() -> None:
    assert not keep_freed_memory(KEPT_BY_A_TASK_BYTES, "libno-such-library.so")
