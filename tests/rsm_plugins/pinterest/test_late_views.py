"""Index files that reach a bucket after their attempt was deleted, and what must not pass for them.

No object under our keys says that there are such, and no ledger: they go with the next segment of
their offset.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kip405.errors import RemoteStorageError
from kip405.segments import ByteRange
from rsm_plugins.conformance.subject import read_answer
from rsm_plugins.s3.manager import S3RemoteStorageManager
from tests.rsm_plugins.pinterest.bucket_model import Killed, error_of
from tests.rsm_plugins.pinterest.histories import CUSTOM, FOLDER, Attempt, World

VIEWS = tuple(f"{FOLDER}/{100:020d}.{suffix}" for suffix in ("index", "timeindex"))
LOG = f"{FOLDER}/{100:020d}.log"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(8, tmp_path)
    made.odds = 0.0
    return made


async def copied(manager: S3RemoteStorageManager, one: Attempt) -> Attempt:
    """With what the copy answered in its locator."""
    answer = await manager.copy_log_segment_data(one.locator, one.data)
    custom = replace(CUSTOM, plugin=answer).encode()
    return replace(one, locator=replace(one.locator, custom_metadata=custom))


async def finished(manager: S3RemoteStorageManager, world: World) -> Attempt:
    one = await copied(manager, world.attempt(at=100))
    await manager.write_manifest(one.locator, b'{"v":1}')
    return one


def ids_at(world: World, name: str) -> list[str]:
    """Whose the versions of a view are, the newest first."""
    return [one.metadata.get("rlm-segment", "") for one in world.bucket.versions.get(name, ())]


def name_of(one: Attempt) -> str:
    return str(one.locator.segment_id.id)


def remove_own(world: World, one: Attempt) -> None:
    """As somebody does who takes all away that is under our keys."""
    for key in [key for key in world.bucket.versions if key.startswith("ours/")]:
        if name_of(one) in key:
            del world.bucket.versions[key]


@pytest.mark.parametrize("ends_by", ["death", "cancelled", "lost answer"])
async def test_h12_late_index_files_go_with_the_next_segment_of_their_offset(
    world: World, monkeypatch: pytest.MonkeyPatch, ends_by: str
) -> None:
    """The put of the first one reaches the bucket when the attempt is deleted."""
    writer, client = world.process(0.0)
    put, late = world.bucket.put_object, list[dict[str, Any]]()
    cut_off = await copied(writer, world.attempt(at=100))

    def put_late(**given: Any) -> dict[str, Any]:
        if given["Key"] != VIEWS[0]:
            return put(**given)
        late.append(given)
        if ends_by == "death":
            client.is_dead = True
        elif ends_by == "cancelled":
            work.cancel()
        raise error_of("InternalError", "PutObject", 500)

    monkeypatch.setattr(world.bucket, "put_object", put_late)
    work = asyncio.ensure_future(writer.write_manifest(cut_off.locator, b'{"v":1}'))
    await asyncio.wait((work,))
    assert work.cancelled() or isinstance(work.exception(), RemoteStorageError | Killed)
    monkeypatch.setattr(world.bucket, "put_object", put)
    manager, _ = world.process(0.0)
    started = replace(cut_off.locator, custom_metadata=CUSTOM.encode())
    await manager.delete_log_segment_data(started)
    assert not world.bucket.versions
    put(**late[0])
    assert ids_at(world, VIEWS[0]) == [name_of(cut_off)]

    following, stays = await finished(manager, world), await finished(manager, world)
    await manager.delete_log_segment_data(following.locator)
    assert {view: ids_at(world, view) for view in (LOG, *VIEWS)} == {
        view: [name_of(stays)] for view in (LOG, *VIEWS)
    }
    await manager.delete_log_segment_data(stays.locator)
    assert not world.bucket.versions


async def test_a_writer_that_fails_takes_back_what_came_after_the_deletion(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, _ = world.process(0.0)
    one = await copied(writer, world.attempt(at=100))
    put, puts = world.bucket.put_object, list[str]()

    def fail(**given: Any) -> dict[str, Any]:
        """The first index file is stored after the deletion, the second one never."""
        puts.append(given["Key"])
        if given["Key"] == VIEWS[0]:
            del world.bucket.versions[LOG]
            remove_own(world, one)
            return put(**given)
        raise error_of("AccessDenied", "PutObject", 403)

    monkeypatch.setattr(world.bucket, "put_object", fail)
    with pytest.raises(RemoteStorageError):
        await writer.write_manifest(one.locator, b'{"v":1}')
    assert set(puts) == set(VIEWS)
    assert not world.bucket.versions


async def test_h06_the_log_of_a_segment_that_has_lost_our_objects_stays(world: World) -> None:
    """The ledger knows the version, which can be read: it may be the only copy of its records."""
    manager, _ = world.process(0.0)
    lost, other = await finished(manager, world), await finished(manager, world)
    remove_own(world, lost)
    await manager.delete_log_segment_data(other.locator)
    wanted = ByteRange(start=0, end=len(lost.log))
    assert read_answer(await manager.fetch_log_segment(lost.locator, wanted)) == lost.log
    assert ids_at(world, LOG) == [name_of(lost)]


@pytest.mark.parametrize("marked", ["by nobody", "by another product", "as a whole bucket"])
async def test_h12_what_is_not_of_this_store_stays(world: World, marked: str) -> None:
    """Another store of the same cluster writes to these keys too, though the page forbids it."""
    manager, _ = world.process(0.0)
    others, _ = world.process(0.0, prefix="")
    theirs, ours = await finished(others, world), await finished(manager, world)
    remove_own(world, theirs)  # nothing: what is under the keys of the other store is there
    metadata = {
        "by nobody": {},
        "by another product": {"rlm-segment": "x"},
        "as a whole bucket": {"rlm-segment": "x", "rlm-keys": ""},
    }[marked]
    world.bucket.put_object(Key=VIEWS[0], Body=b"of somebody", Metadata=metadata)
    await manager.delete_log_segment_data(ours.locator)
    foreign = [metadata.get("rlm-segment", "")]
    assert ids_at(world, VIEWS[0]) == [*foreign, name_of(theirs)]
    assert ids_at(world, VIEWS[1]) == ids_at(world, LOG) == [name_of(theirs)]


async def test_late_index_files_that_cannot_be_removed_hold_no_deletion_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, _ = world.process(0.0)
    late, other = await finished(manager, world), await finished(manager, world)
    remove_own(world, late)
    delete = world.bucket.delete_object
    kept = {one.id for view in VIEWS for one in world.bucket.versions[view]} - {
        one.id
        for view in VIEWS
        for one in world.bucket.versions[view]
        if one.metadata["rlm-segment"] == name_of(other)
    }

    def refuse(**given: Any) -> dict[str, Any]:
        if given.get("VersionId") in kept:
            raise error_of("AccessDenied", "DeleteObject", 403)
        return delete(**given)

    monkeypatch.setattr(world.bucket, "delete_object", refuse)
    await manager.delete_log_segment_data(other.locator)
    assert {name for view in (LOG, *VIEWS) for name in ids_at(world, view)} == {name_of(late)}
