"""How many segments one call of a store deletes (G1)."""

import pytest

from kip405.ids import Uuid
from rlm.plans.call_sizes import MOST_SEGMENTS, CallSizes

STORE, OTHER = Uuid(b"\x51" * 16), Uuid(b"\x52" * 16)


def after(*calls: tuple[int, int]) -> int:
    """The size of the next call after calls for so many segments that took so many ms."""
    sizes = CallSizes()
    for segments, took_ms in calls:
        sizes.answered(STORE, segments, took_ms)
    return sizes.of(STORE)


@pytest.mark.parametrize(
    ("calls", "size"),
    [
        ((), 64),
        (((64, 2_000),), 64),
        (((64, 2_001),), 32),
        (((64, 9_000), (32, 4_000)), 16),
        (((64, 9_000), (64, 9_000), (64, 9_000)), 32),
        (((64, 9_000), (6, 9_000)), 8),
        (((64, 9_000), (6, 9_000), (8, 9_000)), 8),
        (((64, 9_000), (6, 9_000), (8, 999)), 16),
        (((64, 9_000), (6, 9_000), (8, 1_000)), 8),
        (((64, 9_000), (32, 999)), 64),
        (((64, 9_000), (6, 10)), 32),
        (((64, 10),), 64),
    ],
    ids=[
        "at first",
        "fast enough",
        "slow",
        "slow again",
        "several at the same time",
        "the least",
        "not less",
        "fast again",
        "neither fast nor slow",
        "as many as before",
        "a fast call for few says nothing of many",
        "the most",
    ],
)
def test_g1_slow_calls_are_smaller(calls: tuple[tuple[int, int], ...], size: int) -> None:
    assert after(*calls) == size


def test_g1_calls_without_an_answer_are_smaller_and_every_store_has_its_own() -> None:
    sizes = CallSizes()
    sizes.failed(STORE, MOST_SEGMENTS)
    assert (sizes.of(STORE), sizes.of(OTHER)) == (32, 64)
