"""A store that answers every read and takes no segment (H38)."""

import contextlib

import pytest

from kip405.errors import RemoteStorageError, Unavailable
from rlm.tasks.copy_attempt import StoreWrites
from tests.rlm.stores.test_routes import COLD, HOT


def write(writes: StoreWrites, error: RemoteStorageError | None = None) -> None:
    with contextlib.suppress(Unavailable), writes.noted(HOT):
        if error is not None:
            raise error


def test_h38_two_failures_in_a_row_are_a_store_that_refuses() -> None:
    writes = StoreWrites()
    write(writes, Unavailable("full"))
    assert writes.error(HOT) is None
    write(writes, Unavailable("still full"))
    assert writes.error(HOT) == "still full"
    assert writes.error(COLD) is None and writes.error(None) is None


def test_one_success_ends_it() -> None:
    writes = StoreWrites()
    for _ in range(2):
        write(writes, Unavailable("full"))
    write(writes)
    assert writes.error(HOT) is None
    write(writes, Unavailable("full"))
    assert writes.error(HOT) is None


def test_errors_pass() -> None:
    with pytest.raises(Unavailable), StoreWrites().noted(HOT):
        raise Unavailable("full")
