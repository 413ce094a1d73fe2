"""A metadata log of which a part ends without having been asked to."""

import asyncio

import pytest

from kip405.errors import Unavailable
from tests.rlmm.test_metadata_log import PARTITION, Process


async def test_h17_a_log_whose_tail_breaks_off_ends_and_can_be_run_again() -> None:
    """What the tail waited for was cancelled, and not the tail: a TaskGroup takes no notice."""
    process = Process()
    process.leaders.now[PARTITION].append(3)

    def breaks_off() -> None:
        process.leaders.when_fetched = lambda: None
        raise asyncio.CancelledError

    life = asyncio.ensure_future(process.log.run())
    await process.log.wait_ready()
    process.leaders.when_fetched = breaks_off
    await asyncio.wait({life}, timeout=60)
    assert life.done(), "nothing is read any more, and the log goes on"
    with pytest.raises(ExceptionGroup) as failed:
        life.result()
    [error] = failed.value.exceptions
    assert isinstance(error, Unavailable) and "the metadata log's tail broke off" in str(error)
    process.leaders.now[PARTITION].append(2)
    async with process.running():
        await process.barrier()
    assert len(process.ledger.values) == 5
