"""The local store beyond the conformance suite: leftovers, permissions, descriptors, errno."""

import asyncio
import errno
import os
import resource
import shutil
import sys
import threading
from pathlib import Path

import pytest

from kip405.contracts import Presence, StoreIdentity
from kip405.errors import Busy, Internal, Invalid, NotFound, Unavailable
from kip405.segments import ByteRange, FileSlice
from rsm_plugins.conformance.subject import Subject
from rsm_plugins.files import store_tree
from rsm_plugins.files.durable import error_of_os
from rsm_plugins.files.store_tree import StoreTree
from rsm_plugins.layout.keys import ObjectKind, object_name, object_names
from rsm_plugins.local.manager import LocalRemoteStorageManager
from rsm_plugins.threads import FileThreads, StopFlag
from tests.rsm_plugins.harness import PREFIX, DirectoryFaults, local_subject, new_uuid
from tests.waiting import until

NOBODY = 65534


@pytest.fixture
def store_dir(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    root.mkdir()
    return root


def subject_of(manager: LocalRemoteStorageManager, tmp_path: Path) -> Subject:
    return Subject(
        manager=manager,
        folder=tmp_path,
        new_uuid=new_uuid,
        cluster_id="c",
        faults=DirectoryFaults(tmp_path / "store", ""),
    )


async def test_h11_a_root_that_is_missing_is_never_created(tmp_path: Path) -> None:
    manager = LocalRemoteStorageManager(tmp_path / "store")
    subject = subject_of(manager, tmp_path)
    for call in (
        subject.ensure_identity(),
        manager.read_identity(),
        subject.copy(subject.segment()),
    ):
        with pytest.raises(Unavailable, match="bring it back or mount it"):
            await call
    await manager.close()
    assert "store" not in os.listdir(tmp_path)


async def test_h11_an_empty_mount_point_is_not_the_store(store_dir: Path, tmp_path: Path) -> None:
    """The directory is there but the volume is not: nothing is missing, nothing is written."""
    manager = LocalRemoteStorageManager(store_dir)
    subject = subject_of(manager, tmp_path)
    segment = subject.segment()
    assert await manager.read_identity() is None
    for call in (
        subject.presence(segment),
        subject.copy(segment),
        subject.names(),
        manager.delete_log_segment_data(segment.locator),
        manager.fetch_log_segment(segment.locator, ByteRange(start=0, end=1)),
    ):
        with pytest.raises(Unavailable, match=r"no rlm-store\.json"):
            await call
    assert os.listdir(store_dir) == []
    await manager.close()


async def test_leftovers_of_a_crash_are_invisible_swept_and_deleted(tmp_path: Path) -> None:
    async with local_subject(tmp_path, "direct") as subject:
        await subject.ensure_identity()
        manager = subject.manager
        assert isinstance(manager, LocalRemoteStorageManager)
        segment = subject.segment()
        await subject.copy(segment)
        name = object_name(segment.locator, ObjectKind.LOG)
        leftover = tmp_path / "store" / PREFIX / f"{name}.1-abc-0.rlm-tmp"
        leftover.write_bytes(b"half")
        assert [found for found in await subject.names() if "rlm-tmp" in found] == []
        assert await manager.sweep(60_000) == 0
        assert leftover.exists()
        os.utime(leftover, (1, 1))
        assert await manager.sweep(60_000) == 1
        assert not leftover.exists()
        leftover.write_bytes(b"half")
        await manager.delete_log_segment_data(segment.locator)
        assert not leftover.exists()
        assert not leftover.parent.exists()
        assert leftover.parent.parent.exists()


async def test_a_copy_cannot_finish_behind_a_delete(tmp_path: Path) -> None:
    """A delete that comes while a copy is still writing makes that copy fail, and nothing stays."""
    async with local_subject(tmp_path, "direct") as subject:
        await subject.ensure_identity()
        tree = StoreTree(tmp_path / "store", PREFIX)
        with tree.opened("test") as base, tree.new_file(base, "a/b", "stem.log") as new:
            tree.remove_segment("a/b", "stem", ("log",), "delete from")
            with pytest.raises(
                Unavailable, match=r"stem\.log was deleted while it was being copied"
            ):
                new.temporary.publish(new.name, "stem.log")
        assert not (tmp_path / "store" / PREFIX / "a" / "b").exists()


async def test_a_copy_and_its_delete_at_once_leave_all_or_nothing(tmp_path: Path) -> None:
    async with local_subject(tmp_path, "direct") as subject:
        await subject.ensure_identity()
        for _ in range(20):
            segment = subject.segment(log_size_bytes=1 << 18)
            copied, _ = await asyncio.gather(
                subject.copy(segment),
                subject.manager.delete_log_segment_data(segment.locator),
                return_exceptions=True,
            )
            assert copied is None or isinstance(copied, Unavailable)
            names = await subject.names(segment.locator.segment_id.topic_id_partition)
            assert len(names) in ((0, 2) if copied is None else (0,))


async def test_a_read_only_store_serves_reads_and_refuses_writes(tmp_path: Path) -> None:
    async with local_subject(tmp_path, "unshared") as subject:
        await subject.ensure_identity()
        segment, another = subject.segment(), subject.segment()
        await subject.complete(segment)
        with _permissions(tmp_path, 0o555):
            with pytest.raises(Unavailable, match="right to read and write"):
                await subject.copy(another)
            with pytest.raises(Unavailable, match="right to read and write"):
                await subject.manager.delete_log_segment_data(segment.locator)
            assert (await subject.presence(segment)).presence is Presence.COMPLETE
            assert await subject.fetch(segment.locator, 0, 1 << 30) == segment.log
        await subject.complete(another)


class _permissions:
    """Everything below the store with these bits on its folders, seen as a user whom they bind."""

    def __init__(self, tmp_path: Path, mode: int) -> None:
        self._root = tmp_path / "store"
        self._mode = mode

    def __enter__(self) -> None:
        self._above = [
            folder for folder in self._root.parents if folder.stat().st_uid == os.getuid()
        ]
        self._modes = [
            (folder, folder.stat().st_mode) for folder in self._above if folder != Path("/")
        ]
        for folder, mode in self._modes:
            folder.chmod(mode | 0o055)
        self._chmod(self._mode)
        if os.getuid() == 0:
            os.seteuid(NOBODY)

    def __exit__(self, *_: object) -> None:
        if os.getuid() == 0:
            os.seteuid(0)
        self._chmod(0o755)
        for folder, mode in self._modes:
            folder.chmod(mode & 0o7777)

    def _chmod(self, mode: int) -> None:
        for folder in (self._root, *(path for path in self._root.rglob("*") if path.is_dir())):
            folder.chmod(mode)


async def test_many_readers_do_not_exhaust_descriptors(tmp_path: Path) -> None:
    async with local_subject(tmp_path, "unshared") as subject:
        await subject.ensure_identity()
        segment = subject.segment(log_size_bytes=1 << 20)
        await subject.copy(segment)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        open_now = len(os.listdir("/dev/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 64, hard))
        try:
            reads = [subject.fetch(segment.locator, n, n + 1000) for n in range(400)]
            found = await asyncio.gather(*reads)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert found == [segment.log[n : n + 1000] for n in range(400)]
        assert len(os.listdir("/dev/fd")) <= open_now


async def test_a_full_queue_says_busy() -> None:
    threads = FileThreads(threads=1, max_pending=2)
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait() -> None:
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(threads.run(wait))
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await threads.run(wait)
        gate.set()
    await threads.run(lambda: None)
    threads.close()


async def test_abandoned_work_is_asked_to_stop() -> None:
    threads = FileThreads(threads=1)
    stopped: list[str] = []

    begun = threading.Event()

    def work(flag: StopFlag) -> None:
        begun.set()
        while True:
            try:
                flag.check()
            except Unavailable:
                stopped.append("yes")
                raise

    abandoned = asyncio.ensure_future(threads.run_stoppable(work))
    await until(begun.is_set)
    abandoned.cancel()
    with pytest.raises(asyncio.CancelledError):
        await abandoned
    assert stopped == ["yes"]
    threads.close()


async def test_h11_presence_is_asked_by_opening_which_no_cache_answers(tmp_path: Path) -> None:
    """A network file system answers a stat of a file that is gone from its cache."""
    opened: list[str] = []
    is_on = True

    def hook(event: str, given: tuple[object, ...]) -> None:
        if is_on and event == "open" and isinstance(given[0], str):
            opened.append(given[0])

    async with local_subject(tmp_path, "direct") as subject:
        await subject.ensure_identity()
        segment = subject.segment()
        await subject.complete(segment)
        sys.addaudithook(hook)  # stays for the process's life: `is_on` ends it
        try:
            assert (await subject.presence(segment)).presence is Presence.COMPLETE
        finally:
            is_on = False
    names = set(object_names(segment.locator).values())
    assert {name for name in names if any(one.endswith(name) for one in opened)} == names


class Folders:
    """A store in a directory, and the levels that a write makes durable: each is created first, if
    only in vain.
    """

    def __init__(self, root: Path) -> None:
        self.tree = StoreTree(root)
        self.tree.create_identity(StoreIdentity(store_id=new_uuid(), cluster_id="c", created_ms=0))
        self.made: list[str] = []

    def made_by_writing(self, name: str) -> list[str]:
        self.made.clear()
        self.tree.write(name, b"object", "write to")
        return list(self.made)


@pytest.fixture
def folders(store_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    found, make = Folders(store_dir), os.mkdir

    def mkdir(path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        found.made.append(path)
        make(path, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", mkdir)
    return found


def test_folders_are_made_durable_once_and_again_where_they_may_be_others(
    folders: Folders, store_dir: Path
) -> None:
    folder = store_dir / "topic" / "0"
    assert folders.made_by_writing("topic/0/one") == ["topic", "0"]
    assert folders.made_by_writing("topic/0/two") == []
    assert folders.made_by_writing("topic/0/three") == []
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.mkdir()
    assert folders.made_by_writing("topic/0/four") == ["topic", "0"]
    (folder / "four").unlink()
    assert folders.made_by_writing("topic/0/five") == ["topic", "0"]
    assert folders.made_by_writing("topic/0/six") == []


def test_a_folder_that_was_put_back_from_a_copy_is_made_durable_again(
    folders: Folders, store_dir: Path
) -> None:
    """Its files have the same names, and nobody made its entry above durable."""
    topic = store_dir / "topic"
    assert folders.made_by_writing("topic/0/one") == ["topic", "0"]
    topic.rename(store_dir / "before")
    shutil.copytree(store_dir / "before", topic)
    assert folders.made_by_writing("topic/0/two") == ["topic", "0"]
    topic.rename(store_dir / "again")
    topic.mkdir()
    (store_dir / "again" / "0").rename(topic / "0")
    assert folders.made_by_writing("topic/0/three") == ["topic", "0"]


def test_no_link_in_place_of_a_folder_is_followed(folders: Folders, store_dir: Path) -> None:
    """Also where a write went through the folder before: nothing is created outside the store."""
    folders.made_by_writing("topic/0/one")
    elsewhere = store_dir.parent / "elsewhere"
    (store_dir / "topic").rename(elsewhere)
    (store_dir / "topic").symlink_to(elsewhere)
    with pytest.raises(Unavailable):
        folders.tree.write("topic/0/two", b"object", "write to")
    assert os.listdir(elsewhere / "0") == ["one"]


def test_a_folder_whose_handle_is_stale_is_made_durable_again(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system says so where another machine has removed and made it meanwhile."""

    def stale(_self: StoreTree, _base: int, _name: str) -> int | None:
        raise OSError(errno.ESTALE, "stale file handle")

    folders.made_by_writing("topic/0/one")
    monkeypatch.setattr(StoreTree, "size_of", stale)
    assert folders.made_by_writing("topic/0/two") == ["topic", "0"]


def test_a_folder_that_could_not_be_made_durable_is_not_remembered(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "the medium fails")

    with monkeypatch.context() as broken:
        broken.setattr(store_tree, "make_durable", fail)
        with pytest.raises(Unavailable):
            folders.tree.write("topic/0/one", b"object", "write to")
    assert folders.made_by_writing("topic/0/one") == ["topic", "0"]


async def test_a_pipe_instead_of_an_object_is_none(tmp_path: Path) -> None:
    async with local_subject(tmp_path, "direct") as subject:
        await subject.ensure_identity()
        segment = subject.segment()
        await subject.complete(segment)
        path = tmp_path / "store" / PREFIX / object_name(segment.locator, ObjectKind.LOG)
        path.unlink()
        os.mkfifo(path)
        async with asyncio.timeout(60):
            assert (await subject.presence(segment)).presence is Presence.MISSING


async def test_an_object_replaced_by_a_link_is_not_followed(tmp_path: Path) -> None:
    async with local_subject(tmp_path, "direct") as subject:
        await subject.ensure_identity()
        segment = subject.segment()
        await subject.complete(segment)
        path = tmp_path / "store" / PREFIX / object_name(segment.locator, ObjectKind.LOG)
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
        assert (await subject.presence(segment)).presence is Presence.MISSING
        with pytest.raises(NotFound):
            await subject.fetch(segment.locator, 0, 1)


async def test_a_shared_store_answers_slices(tmp_path: Path) -> None:
    async with local_subject(tmp_path, "direct") as subject:
        await subject.ensure_identity()
        segment = subject.segment()
        await subject.copy(segment)
        found = await subject.manager.fetch_log_segment(
            segment.locator, ByteRange(start=5, end=1 << 40)
        )
        assert isinstance(found, FileSlice)
        assert (found.position, found.size_bytes) == (5, len(segment.log) - 5)


@pytest.mark.parametrize(
    ("number", "kind", "hint"),
    [
        (errno.ENOSPC, Unavailable, "free space"),
        (errno.EDQUOT, Unavailable, "quota"),
        (errno.EROFS, Unavailable, "mounted read-only"),
        (errno.EACCES, Unavailable, "right to read and write"),
        (errno.EPERM, Unavailable, "right to read and write"),
        (errno.ENOENT, Unavailable, "bring it back"),
        (errno.ESTALE, Unavailable, "bring it back"),
        (errno.EIO, Unavailable, "medium fails"),
        (errno.ETIMEDOUT, Unavailable, ""),
        (errno.EMFILE, Busy, ""),
        (errno.ENAMETOOLONG, Invalid, ""),
        (errno.EBADF, Internal, ""),
    ],
)
def test_errors_of_the_system_say_what_to_do(number: int, kind: type[Exception], hint: str) -> None:
    error = error_of_os(OSError(number, os.strerror(number)), "copy to", "store /x")
    assert type(error) is kind
    assert str(error).startswith(f"cannot copy to store /x: {os.strerror(number)}")
    assert hint in str(error)
