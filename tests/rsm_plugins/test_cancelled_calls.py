"""Calls of a plugin, again and again, end by one cancellation, whenever that comes: gRPC must not
make an error of it, which would be tried again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kip405.errors import RemoteStorageError
from kip405.segments import ByteRange
from rsm_plugins.conformance.subject import StoredSegment, Subject
from tests.cancelling import ends_at_each_turn
from tests.rsm_plugins.harness import local_subject

Call = Callable[[Subject, StoredSegment], Awaitable[object]]


async def _list(subject: Subject, _: StoredSegment) -> None:
    async for _found in subject.manager.list_objects(subject.cluster_id):
        pass


CALLS: dict[str, Call] = {
    "read manifest": lambda subject, one: subject.manager.read_manifest(one.locator),
    "fetch": lambda subject, one: subject.manager.fetch_log_segment(
        one.locator, ByteRange(start=0, end=100)
    ),
    "list": _list,
    "copy": lambda subject, _: subject.copy(subject.segment()),
}


@pytest.mark.parametrize("mode", ["bytes", "shared"])
@pytest.mark.parametrize("name", CALLS)
async def test_calls_that_are_made_again_after_each_error(
    tmp_path: Path, mode: str, name: str
) -> None:
    answered = asyncio.Event()

    async def answers_again() -> None:
        answered.clear()
        await answered.wait()

    async with local_subject(tmp_path, mode) as subject:
        await subject.ensure_identity()
        segment = subject.segment()
        await subject.complete(segment)

        async def life() -> None:
            while True:
                try:
                    await CALLS[name](subject, segment)
                except RemoteStorageError:
                    await asyncio.sleep(0)
                answered.set()

        await ends_at_each_turn(life, 25)
        await ends_at_each_turn(life, 25, begun=answers_again)
