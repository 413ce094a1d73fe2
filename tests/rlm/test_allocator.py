"""The allocator seam: told once where glibc is, silently nothing elsewhere."""

import platform

import pytest

from rlm.service.lifetime import keep_large_blocks


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_glibc_accepts_what_it_is_told() -> None:
    assert keep_large_blocks()


def test_without_glibc_nothing_is_done() -> None:
    assert not keep_large_blocks("libno-such-library.so")
