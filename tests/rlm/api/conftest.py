"""The reader that tests of REMOTE_ONLY ask."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog

from rlm.api.server import ApiServer
from tests.builders.threads import some_threads
from tests.rlm.api.remote_site import Site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    with some_threads(2) as threads, structlog.testing.capture_logs():
        async with asyncio.TaskGroup() as tasks:
            made = Site(tmp_path, tasks, threads)
            await made.prepare()
            server = ApiServer(admin=None, fetch=made.service, listen="127.0.0.1:0")
            made.address = await server.start()
            yield made
            await server.stop()
