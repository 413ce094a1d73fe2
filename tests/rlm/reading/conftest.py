"""The bench of the tests of whole reads."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.builders.threads import some_threads
from tests.rlm.reading.local_bench import IDENTITY, Bench


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[Bench]:
    with some_threads(2) as threads:
        async with asyncio.TaskGroup() as tasks:
            made = Bench(tmp_path, tasks, threads)
            await made.store.create_identity(IDENTITY)
            yield made
        await made.store.close()
