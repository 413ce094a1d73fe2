"""Where the tier of a proxy under test is: in its process, or in a core behind a socket (H24).

Tests that make a proxy run with both (see conftest.py). This module must not know what a core is.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass

import pytest

from rlm.proxy import fetch, further_reads, reads, settling
from rlm.proxy.own_topics import OwnTopicIds, unknown_ids
from rlm.remote_log.tier import Deletions, Tier
from rlm.workers.records_memory import RecordsMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """What the proxy asks. `memory`: of a worker, for records that the core has sent; None = the
    proxy has the tier's own. `settle`: all that the tier shows now is known here afterwards.
    """

    tier: Tier
    deletions: Deletions
    own_topic_ids: OwnTopicIds
    memory: RecordsMemory | None
    settle: Callable[[], Awaitable[None]]


ONE_PROCESS, WORKER, TLS = "one process", "worker", "tls"
"""Values of the parameter `border` of tests."""

_FIRST_MOMENTS = (
    (fetch, "READ_FIRST_MS"),
    (fetch, "GRACE_MS"),
    (further_reads, "READ_FIRST_MS"),
    (reads, "READ_FIRST_MS"),
    (settling, "_LEAST_BARRIER_MS"),
)
FIRST_MOMENT_MS = 20_000
"""Instead of 30 to 100 ms, which are over before an answer of a core is here when other processes
have this machine. Without a border a read of the tests needs no time.
"""
SHORT_FIRST_MOMENT_MS = 2_000
"""For tests of reads and barriers that do not end, which wait for the end of that moment."""

Border = Callable[[Tier, Deletions, OwnTopicIds], AbstractAsyncContextManager[Near]]


@asynccontextmanager
async def no_border(
    tier: Tier, deletions: Deletions, own_topic_ids: OwnTopicIds
) -> AsyncIterator[Near]:
    """One process has both."""

    async def settle() -> None:
        """Nothing lags behind."""

    yield Near(
        tier=tier,
        deletions=deletions,
        own_topic_ids=own_topic_ids,
        memory=None,
        settle=settle,
    )


class _Current:
    """The border of the test that runs, and what its proxies have reached."""

    def __init__(self) -> None:
        self.border: Border = no_border
        self.reached: list[Near] = []


_current = _Current()


@contextmanager
def bordered(border: Border) -> Iterator[None]:
    """Every proxy that is made meanwhile has its tier behind this border."""
    before, _current.border = _current.border, border
    try:
        yield
    finally:
        _current.border = before


@contextmanager
def long_first_moments(duration_ms: int) -> Iterator[None]:
    """A read or a barrier that has just begun may take long, though the client does not wait."""
    with pytest.MonkeyPatch.context() as changed:
        for module, name in _FIRST_MOMENTS:
            changed.setattr(module, name, duration_ms)
        yield


def grace_ms() -> int:
    """How long a fetch that has records waits for others."""
    found = vars(fetch)["GRACE_MS"]
    assert isinstance(found, int)
    return found


@asynccontextmanager
async def reach(
    tier: Tier, deletions: Deletions, own_topic_ids: OwnTopicIds = unknown_ids
) -> AsyncIterator[Near]:
    """The tier as the proxy of this test has it."""
    async with _current.border(tier, deletions, own_topic_ids) as near:
        _current.reached.append(near)
        try:
            yield near
        finally:
            _current.reached.remove(near)


async def settled() -> None:
    """What a test has changed in a tier is known to its proxy."""
    for near in tuple(_current.reached):
        await near.settle()
