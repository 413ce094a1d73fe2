"""Views in a directory, where writers and deletions died on their way, or others are damaged."""

import errno
import fcntl
from itertools import count

import pytest

from kip405.contracts import Presence
from kip405.errors import RemoteStorageError, Unavailable
from rsm_plugins.files.store_tree import TemporaryFiles
from rsm_plugins.layout.keys import IDENTITY_NAME, ObjectKind, object_name
from rsm_plugins.local import views
from tests.builders.pinterest import indexes_of
from tests.rsm_plugins.pinterest.writing import FOLDER, LOCAL, MANIFEST, Written


@LOCAL
@pytest.mark.parametrize("at", range(3))
async def test_a_writer_that_dies_leaves_no_index_beside_the_log_of_another(
    written: Written, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Their consumer goes to a position in the log by the index."""
    partition = written.partition()
    first = await written.stored(partition, 100, 5)
    second = written.segment(partition, 100, 50)
    await written.subject.copy(second)
    calls, publish = count(), TemporaryFiles.publish

    def dies(files: TemporaryFiles, name: str, file: str, into: int | None = None) -> None:
        if next(calls) == at:
            raise OSError(errno.EIO, "killed")
        publish(files, name, file, into)

    with monkeypatch.context() as patch:
        patch.setattr(TemporaryFiles, "publish", dies)
        with pytest.raises(RemoteStorageError):
            await written.subject.manager.write_manifest(second.locator, MANIFEST)
    assert not written.path(f"{FOLDER}/{100:020d}.log").exists()
    await written.check(first)
    await written.delete(second)
    assert written.view(100) == first.log
    assert written.view(100, "index") == indexes_of(100, first.log)[0]
    assert written.watermark() == b"%020d" % 100
    await written.delete(first)
    assert written.rig.hands.names() == [IDENTITY_NAME]


@LOCAL
async def test_a_deletion_that_died_between_log_and_watermark_is_finished(
    written: Written,
) -> None:
    segment = await written.stored(written.partition(), 100)
    for suffix in ("index", "log"):
        written.path(f"{FOLDER}/{100:020d}.{suffix}").unlink()
    await written.delete(segment)
    assert written.rig.hands.names() == [IDENTITY_NAME]


@LOCAL
async def test_the_watermark_comes_again_with_the_view_of_another_attempt(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer and its deletion died, then all views were gone, and the watermark with them."""
    partition = written.partition()
    first = await written.stored(partition, 100, 5)
    second, third = written.segment(partition, 100, 50), written.segment(partition, 50)
    await written.subject.copy(second)
    with monkeypatch.context() as patch:
        patch.setattr(TemporaryFiles, "publish", _dies)
        with pytest.raises(RemoteStorageError):
            await written.subject.manager.write_manifest(second.locator, MANIFEST)
        patch.setattr(views.LocalViews, "_heir", _dies)
        with pytest.raises(RemoteStorageError):
            await written.delete(second)
    await written.delete(third)
    assert written.views() == []
    await written.delete(second)
    assert written.view(100) == first.log
    assert written.watermark() == b"%020d" % 100


def _dies(*_: object) -> None:
    raise OSError(errno.EIO, "killed")


@LOCAL
async def test_damage_of_another_attempt_keeps_no_segment_from_its_deletion(
    written: Written,
) -> None:
    partition = written.partition()
    damaged = await written.stored(partition, 100, 5)
    segment = await written.stored(partition, 100, 50)
    written.path(object_name(damaged.locator, ObjectKind.PINTEREST_INDEXES)).write_bytes(b"odd")
    manifest = written.path(object_name(damaged.locator, ObjectKind.MANIFEST))
    manifest.with_name("00000000000000000100-copy.rsm-manifest").write_bytes(b"of somebody")
    await written.delete(segment)
    assert (await written.subject.presence(segment)).presence is Presence.MISSING


@LOCAL
async def test_a_stopped_process_with_the_lock_keeps_no_thread(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "LOCK_TRIES", 3)
    segment = await written.stored(written.partition(), 100)
    with written.path(IDENTITY_NAME).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="locked"):
            await written.delete(segment)
        assert await written.subject.fetch(segment.locator, 0, 1 << 40) == segment.log
    await written.delete(segment)
    assert written.rig.hands.names() == [IDENTITY_NAME]
