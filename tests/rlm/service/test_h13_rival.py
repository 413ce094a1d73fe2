"""While a second service of the node lives, no task begins, by whatever way it comes."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kip405.errors import Unavailable
from kip405.ids import Uuid
from rlm.broker.leadership import LedPartition
from rlm.tasks.assignment import Assignment
from rlm.tasks.copy_request import CopyRequest
from tests.rlm.service.test_h05_left_out import ADDED, leading

RIVAL = Uuid(bytes(range(16)))


async def test_h13_no_way_to_a_task_is_open_beside_a_rival(tmp_path: Path) -> None:
    async with leading(tmp_path, Assignment(None)) as service:
        tasks = service.tasks
        service.dependencies.heartbeat.rival = RIVAL

        async def run(led: LedPartition) -> None:
            pytest.fail(f"{led} was worked on")

        ways: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: tasks.run_copy(ADDED, CopyRequest(up_to_offset=None)),
            lambda: tasks._if_it_may(run)(ADDED),
            lambda: tasks._see(ADDED),
            lambda: tasks._run_expiration(ADDED, None),
        )
        for way in ways:
            with pytest.raises(Unavailable, match="a second service of this node is alive"):
                await way()
        with pytest.raises(Unavailable, match="a second service of this node is alive"):
            tasks.copy_runs._refuse()
