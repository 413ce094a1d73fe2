"""Threads for what tests build: a pool that is closed, and one for all that need not be."""

from collections.abc import Iterator
from contextlib import contextmanager

from rlm.service.threads import ServiceThreads
from rsm_plugins.threads import Threads

THREADS = Threads("tests", 4)


@contextmanager
def some_threads(size: int) -> Iterator[Threads]:
    made = Threads("tests", size)
    try:
        yield made
    finally:
        made.close()


def all_of(threads: Threads) -> ServiceThreads:
    """A service's pools that are all the same one."""
    return ServiceThreads(
        copies=threads,
        snapshots=threads,
        evidence=threads,
        reads=threads,
        disk_cache=threads,
        remote_index=threads,
        other=threads,
    )
