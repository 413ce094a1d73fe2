"""Fetching ahead: bounded, in order, errors where the consumer is, nothing left behind."""

import threading
import time
from collections.abc import Generator

import pytest

from tiered_reads.ahead import Ahead
from tiered_reads.errors import ConnectorError
from tiered_reads.stopping import Stop, Stopped


def producer(sizes: list[int], made: list[int], closed: list[bool]) -> Generator[int, None, None]:
    try:
        for size in sizes:
            made.append(size)
            yield size
    finally:
        closed.append(True)


def gone() -> bool:
    return "rlm-fetch-ahead" not in {one.name for one in threading.enumerate()}


def test_items_in_order_and_the_thread_ends() -> None:
    made: list[int] = []
    closed: list[bool] = []
    with Ahead(lambda: producer([1, 2, 3], made, closed), Stop(), lambda item: item) as items:
        assert list(items) == [1, 2, 3]
    assert closed
    assert gone()


@pytest.mark.parametrize(
    ("sizes", "held"),
    [([1] * 20, 4 + 1), ([40] * 20, 2 + 1), ([500] * 20, 1 + 1)],
    ids=["items", "bytes", "one larger than all"],
)
def test_no_more_than_the_bounds_is_held(sizes: list[int], held: int) -> None:
    made: list[int] = []
    pause = threading.Event()
    bounds = {"most_items": 4, "most_bytes": 100}
    with Ahead(lambda: producer(sizes, made, []), Stop(), lambda size: size, **bounds) as items:
        next(items)
        ends_at = time.monotonic() + 60
        while len(made) < 1 + held:
            assert time.monotonic() < ends_at
            pause.wait(0.01)
        pause.wait(0.3)
        assert len(made) == 1 + held
    assert gone()


def test_an_error_comes_after_what_was_read_before_it() -> None:
    def failing() -> Generator[int, None, None]:
        yield 1
        raise ValueError("broken")

    with Ahead(failing, Stop(), lambda _: 1) as items:
        assert next(items) == 1
        with pytest.raises(ValueError, match="broken"):
            next(items)
    assert gone()


def test_a_stop_of_the_source_is_no_end() -> None:
    """A client that is closed under its reader cancels what that waits for."""

    def cancelled() -> Generator[int, None, None]:
        yield 1
        raise Stopped

    with Ahead(cancelled, Stop(), lambda _: 1) as items:
        assert next(items) == 1
        with pytest.raises(ConnectorError, match="closed meanwhile"):
            next(items)
    assert gone()


def test_leaving_early_ends_a_producer_that_waits() -> None:
    stop, closed = Stop(), []

    def waiting() -> Generator[int, None, None]:
        try:
            yield 1
            stop.wait(60_000)
        finally:
            closed.append(True)

    with Ahead(waiting, stop, lambda _: 1) as items:
        next(items)
    assert closed
    assert gone()
