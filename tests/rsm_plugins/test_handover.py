"""Fetched ranges of stores whose objects are no files: through scratch files of the client, or as
bytes wherever that cannot be.
"""

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import pytest

from kip405.errors import Corrupt, Invalid, Unavailable
from kip405.segments import ByteRange, FileSlice, SegmentLocator
from rsm_plugins.conformance.subject import Subject, read_answer
from rsm_plugins.contract.answering import Context
from rsm_plugins.contract.client import GrpcRemoteStorageManager
from rsm_plugins.contract.client_files import ScratchSettings, ScratchSlots
from rsm_plugins.contract.server import PluginServer
from rsm_plugins.contract.services import Dependencies, PluginInfo
from rsm_plugins.files.owned_folder import OwnedFolder, private_base
from rsm_plugins.files.segment_files import (
    DATA_POSITION,
    NONCE_BYTES,
    SUFFIX,
    ScratchFile,
    Slot,
    Spool,
    put,
)
from rsm_plugins.files.shared_volume import CallersFolders
from rsm_plugins.local.manager import LocalRemoteStorageManager
from rsm_plugins.process.plugin import _scratch_folders, _spool, running_server
from rsm_plugins.store_kinds import OpenStore
from rsm_plugins.threads import FileThreads
from rsm_plugins.v1 import identity_pb2, identity_pb2_grpc, storage_pb2_grpc
from rsm_plugins.v1 import storage_pb2 as pb
from tests.rsm_plugins.harness import DEADLINES, new_uuid, plugin_settings

SMALL = ScratchSettings(slots=3, kept=1, slot_bytes=1 << 20, min_range_bytes=1000)
ANYWHERE = CallersFolders(None)
WHOLE = ByteRange(start=0, end=1 << 30)


class Held(LocalRemoteStorageManager):
    """A store that answers bytes, when it is let go on."""

    def __init__(self, root: Path, threads: FileThreads) -> None:
        super().__init__(root, shared=False, threads=threads)
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def fetch_log_segment(
        self, locator: SegmentLocator, byte_range: ByteRange
    ) -> bytes | FileSlice:
        self.asked.set()
        await self.go_on.wait()
        return await super().fetch_log_segment(locator, byte_range)


class Rig:
    """A plugin whose objects are no files, a client of it, and the client's scratch folder."""

    def __init__(self, store: Held, client: GrpcRemoteStorageManager, folder: Path) -> None:
        self.store = store
        self.client = client
        self.scratch = folder / "scratch"
        self.subject = Subject(manager=client, folder=folder, new_uuid=new_uuid, cluster_id="c")

    @property
    def slots(self) -> list[Path]:
        return sorted(self.scratch.rglob(f"*{SUFFIX}"))


@asynccontextmanager
async def rig(
    tmp_path: Path,
    *,
    allowed: CallersFolders | None = ANYWHERE,
    scratch: ScratchSettings = SMALL,
) -> AsyncIterator[Rig]:
    for name in ("store", "scratch"):
        (tmp_path / name).mkdir()
    threads = FileThreads()
    store = Held(tmp_path / "store", threads)
    dependencies = Dependencies(
        manager=store,
        info=PluginInfo(name="held", version="1", store_uri=store.uri, instance="i"),
        threads=threads,
        spool=Spool(tmp_path / "store", threads),
        scratch_folders=allowed,
    )
    server = PluginServer(dependencies, "127.0.0.1:0")
    address = await server.start()
    folder = tmp_path / "scratch" if scratch.folder is None else scratch.folder
    client = GrpcRemoteStorageManager.connect(
        str(address),
        principal="t",
        deadlines=DEADLINES,
        scratch=ScratchSettings(
            folder=folder,
            slots=scratch.slots,
            kept=scratch.kept,
            slot_bytes=scratch.slot_bytes,
            min_range_bytes=scratch.min_range_bytes,
        ),
    )
    made = Rig(store, client, tmp_path)
    await made.subject.ensure_identity()
    yield made
    await client.close()
    await server.stop()
    threads.close()
    assert os.listdir(tmp_path / "scratch") == [], "nothing is left of the scratch files"


async def test_ranges_come_through_one_slot_after_the_other(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        segment = made.subject.segment(log_size_bytes=700_000)
        await made.subject.copy(segment)
        for start, end in ((0, 700_000), (5, 600_000), (699_000, 1 << 30), (100, 1_100)):
            wanted = ByteRange(start=start, end=end)
            found = await made.client.fetch_log_segment(segment.locator, wanted)
            assert read_answer(found) == segment.log[start:end]
            del found
            [slot] = made.slots
            assert slot.read_bytes()[DATA_POSITION:].startswith(segment.log[start:end])


async def until_slots(made: Rig, count: int) -> None:
    """The loop, or a thread of gRPC, may refer to an answer for a moment."""
    async with asyncio.timeout(60):
        while len(made.slots) != count:  # noqa: ASYNC110 - nothing says when
            await asyncio.sleep(0.001)


async def test_many_at_once_get_their_own_bytes_and_the_slots_stay_few(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        segment = made.subject.segment(log_size_bytes=900_000)
        await made.subject.copy(segment)
        ranges = [ByteRange(start=n * 7_919, end=n * 7_919 + 100_000) for n in range(100)]
        found = await asyncio.gather(
            *(made.client.fetch_log_segment(segment.locator, wanted) for wanted in ranges)
        )
        for wanted, answer in zip(ranges, found, strict=True):
            assert read_answer(answer) == segment.log[wanted.start : wanted.end]
        assert len(made.slots) <= SMALL.slots
        del found, answer
        await until_slots(made, SMALL.kept)


@pytest.mark.parametrize("why", ["not allowed", "no capability", "small", "too large", "empty"])
async def test_bytes_travel_instead(tmp_path: Path, why: str) -> None:
    allowed: CallersFolders | None = ANYWHERE
    if why == "not allowed":
        allowed = CallersFolders((tmp_path / "store",))
    elif why == "no capability":
        allowed = None
    async with rig(tmp_path, allowed=allowed) as made:
        segment = made.subject.segment(log_size_bytes=3 << 20 if why == "too large" else 200_000)
        await made.subject.copy(segment)
        start = len(segment.log) if why == "empty" else 0
        wanted = ByteRange(start=start, end=900 if why == "small" else 1 << 30)
        for _ in range(3):
            found = await made.client.fetch_log_segment(segment.locator, wanted)
            assert found == segment.log[wanted.start : wanted.end]
            assert made.slots == []


async def test_a_client_that_cannot_make_scratch_files_gets_bytes(tmp_path: Path) -> None:
    scratch = ScratchSettings(
        folder=tmp_path / "absent", slots=2, slot_bytes=1 << 20, min_range_bytes=1
    )
    async with rig(tmp_path, scratch=scratch) as made:
        segment = made.subject.segment()
        await made.subject.copy(segment)
        assert await made.client.fetch_log_segment(segment.locator, WHOLE) == segment.log


async def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    """Temporary files are cleaned up while we run."""
    async with rig(tmp_path) as made:
        segment = made.subject.segment()
        await made.subject.copy(segment)
        fetch = made.client.fetch_log_segment
        assert read_answer(await fetch(segment.locator, WHOLE)) == segment.log
        [slot] = made.slots
        slot.unlink()
        assert await fetch(segment.locator, WHOLE) == segment.log, "by bytes"
        slot.parent.rmdir()
        both = await asyncio.gather(*(fetch(segment.locator, WHOLE) for _ in range(2)))
        assert [read_answer(one) for one in both] == [segment.log] * 2
        del both
        await until_slots(made, 1)


async def test_a_slot_whose_fetch_was_given_up_is_never_used_again(tmp_path: Path) -> None:
    """The plugin may still write to it, and the next fetch must not read that."""
    async with rig(tmp_path) as made:
        segment = made.subject.segment()
        await made.subject.copy(segment)
        made.store.go_on.clear()
        async with asyncio.TaskGroup() as tasks:
            fetching = tasks.create_task(made.client.fetch_log_segment(segment.locator, WHOLE))
            await made.store.asked.wait()
            assert len(made.slots) == 1
            fetching.cancel()
        assert made.slots == []
        made.store.go_on.set()
        assert await made.subject.fetch(segment.locator, 0, 1 << 30) == segment.log
        with pytest.raises(Exception, match="is not there"):
            await made.client.fetch_log_segment(made.subject.segment().locator, WHOLE)
        assert made.slots == []


async def test_g9_a_slot_is_not_written_again_while_its_range_is_held(tmp_path: Path) -> None:
    """Neither by the next fetch, nor by one that finds all slots held and gets bytes."""
    async with rig(tmp_path) as made:
        segment = made.subject.segment(log_size_bytes=900_000)
        await made.subject.copy(segment)
        held = []
        for number in range(SMALL.slots + 2):
            wanted = ByteRange(start=number * 100_000, end=(number + 1) * 100_000)
            held.append((wanted, await made.client.fetch_log_segment(segment.locator, wanted)))
        assert sum(isinstance(found, FileSlice) for _, found in held) == SMALL.slots
        assert len(made.slots) == SMALL.slots
        for wanted, found in held:
            assert read_answer(found) == segment.log[wanted.start : wanted.end]
        wanted, found = held[0]
        held.clear()
        assert len(made.slots) == SMALL.kept + 1
        assert await made.subject.fetch(segment.locator, 0, 5_000) == segment.log[:5_000]
        assert read_answer(found) == segment.log[wanted.start : wanted.end]
        del found


async def test_slots_that_come_back_after_the_end_are_closed(tmp_path: Path) -> None:
    threads = FileThreads()
    slots = ScratchSlots(ScratchSettings(folder=tmp_path), threads)
    async with slots.slot(1 << 20) as slot:
        assert slot is not None
        assert put(slot.file, b"x" * 10)
        lent = slots.lent(slot, 10)
    slots.close()
    assert os.listdir(tmp_path) == []
    assert os.fstat(slot._descriptor).st_nlink == 0
    del lent
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(slot._descriptor)
    threads.close()


async def test_what_the_plugin_says_is_in_a_scratch_file_must_be_there(tmp_path: Path) -> None:
    for size_bytes, why in ((500_000, "holds 0 of 500000"), (10, "holds 0 of 10")):
        said = pb.FetchHeader(size_bytes=size_bytes, in_scratch=True)
        async with _lying(said) as address:
            client = GrpcRemoteStorageManager.connect(
                address,
                principal="t",
                deadlines=DEADLINES,
                scratch=ScratchSettings(folder=tmp_path),
            )
            subject = Subject(manager=client, folder=tmp_path, new_uuid=new_uuid, cluster_id="c")
            locator = subject.locator(subject.partition())
            with pytest.raises(Corrupt, match=why):
                await client.fetch_log_segment(locator, WHOLE)
            with pytest.raises(Corrupt, match="in a scratch file, and none was named"):
                await client.fetch_log_segment(locator, ByteRange(start=0, end=10))
            await client.close()


async def test_g9_a_path_is_not_followed_unless_the_plugin_was_shown_to_share_files(
    tmp_path: Path,
) -> None:
    """Any file of this machine could be meant by it."""
    (tmp_path / "else").write_bytes(b"not a segment")
    path = pb.FileSlice(path=str(tmp_path / "else"), size_bytes=9)
    async with _lying(pb.FetchHeader(size_bytes=9, file_slice=path)) as address:
        client = GrpcRemoteStorageManager.connect(address, principal="t", deadlines=DEADLINES)
        subject = Subject(manager=client, folder=tmp_path, new_uuid=new_uuid, cluster_id="c")
        locator = subject.locator(subject.partition())
        with pytest.raises(Corrupt, match="a file was answered to a call that asked for bytes"):
            await client.fetch_log_segment(locator, ByteRange(start=0, end=9))
        await client.close()


@asynccontextmanager
async def _lying(header: pb.FetchHeader) -> AsyncIterator[str]:
    class Storage(storage_pb2_grpc.StorageServicer):
        async def FetchLogSegment(
            self, request: pb.FetchLogSegmentRequest, context: Context
        ) -> AsyncIterator[pb.FetchResponse]:
            header.size_bytes = min(header.size_bytes, request.end)
            yield pb.FetchResponse(header=header)

    class Identity(identity_pb2_grpc.IdentityServicer):
        async def GetInfo(
            self, request: identity_pb2.GetInfoRequest, context: Context
        ) -> identity_pb2.GetInfoResponse:
            return identity_pb2.GetInfoResponse(
                contract_version=1,
                capabilities=[identity_pb2.CAPABILITY_BYTES, identity_pb2.CAPABILITY_SCRATCH],
            )

    server = grpc.aio.server()
    storage = Storage()  # type: ignore[abstract] # what it lacks is UNIMPLEMENTED
    identity = Identity()  # type: ignore[abstract] # as above
    storage_pb2_grpc.add_StorageServicer_to_server(storage, server)
    identity_pb2_grpc.add_IdentityServicer_to_server(identity, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


# -- the plugin's side of one file


def target(tmp_path: Path, **changes: object) -> ScratchFile:
    slot = Slot(tmp_path, 1000)
    os.close(slot._descriptor)
    values: dict[str, object] = {
        name: getattr(slot.file, name) for name in ("path", "nonce", "position", "size_bytes")
    }
    return ScratchFile(**{**values, **changes})  # type: ignore[arg-type]


def test_bytes_are_put_behind_the_nonce(tmp_path: Path) -> None:
    scratch = target(tmp_path)
    assert put(scratch, b"x" * 1000)
    content = Path(scratch.path).read_bytes()
    assert content[:NONCE_BYTES] == scratch.nonce
    assert content[DATA_POSITION:] == b"x" * 1000
    assert repr(scratch.nonce) not in repr(scratch)


@pytest.mark.parametrize(
    "changes",
    [
        {"nonce": bytes(NONCE_BYTES)},
        {"nonce": b""},
        {"position": NONCE_BYTES - 1},
        {"position": -1},
        {"size_bytes": 2},
        {"path": "relative" + SUFFIX},
        {"path": "/no/such/folder" + SUFFIX},
        {"path": "/nul\0" + SUFFIX},
    ],
)
def test_other_files_are_not_written_to(tmp_path: Path, changes: dict[str, object]) -> None:
    assert not put(target(tmp_path, **changes), b"xyz")


def test_links_folders_and_files_of_other_names_are_not_written_to(tmp_path: Path) -> None:
    scratch = target(tmp_path)
    precious = tmp_path / "precious"
    precious.write_bytes(scratch.nonce)
    symbolic, hard, folder = (tmp_path / f"{name}{SUFFIX}" for name in ("s", "h", "f"))
    symbolic.symlink_to(precious)
    os.link(precious, hard)
    folder.mkdir()
    os.mkfifo(tmp_path / f"p{SUFFIX}")
    for path in (precious, symbolic, hard, folder, tmp_path / f"p{SUFFIX}"):
        assert not put(target(tmp_path, path=str(path), nonce=scratch.nonce), b"xyz")
    assert precious.read_bytes() == scratch.nonce


def test_a_full_disk_means_bytes(tmp_path: Path) -> None:
    """A limit on file sizes stands for the full disk: both fail in the middle of the write."""
    scratch = target(tmp_path, size_bytes=1 << 20)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (DATA_POSITION + 1000, before[1]))
    try:
        assert not put(scratch, bytes(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert put(scratch, bytes(1 << 20))


# -- folders for temporary files


async def test_a_write_that_comes_after_its_copy_was_given_up_leaves_no_file(
    tmp_path: Path,
) -> None:
    """A thread that had taken the work when the caller was cancelled, and got to it only now."""
    threads = FileThreads(1)
    spool = Spool(tmp_path, threads)
    async with spool.file() as spooled:
        await spooled.append(b"one")
        assert len(os.listdir(tmp_path)) == 1
    await threads.run(spooled._write, b"two")
    assert os.listdir(tmp_path) == []
    threads.close()


async def test_copies_by_bytes_are_spooled_in_the_configured_folder(tmp_path: Path) -> None:
    root, spool = tmp_path / "store", tmp_path / "spool"
    root.mkdir()
    spool.mkdir()
    async with running_server(plugin_settings(root, spool__dir=str(spool))) as (address, _):
        client = GrpcRemoteStorageManager.connect(
            str(address), principal="t", deadlines=DEADLINES, share=False
        )
        subject = Subject(manager=client, folder=tmp_path, new_uuid=new_uuid, cluster_id="c")
        await subject.ensure_identity()
        segment = subject.segment(log_size_bytes=2 << 20)
        await subject.copy(segment)
        assert await subject.fetch(segment.locator, 0, 1 << 30) == segment.log
        [owned] = spool.iterdir()
        assert list(owned.iterdir()) == []
        await client.close()
    assert list(spool.iterdir()) == []


async def test_a_store_without_a_folder_spools_below_that_for_temporary_files(
    tmp_path: Path,
) -> None:
    threads = FileThreads()
    store = OpenStore(manager=Held(tmp_path, threads), uri="held:")
    async with AsyncExitStack() as stack:
        spool = await _spool(plugin_settings(tmp_path), store, threads, stack)
        async with spool.file() as file:
            await file.append(b"abc")
            assert file.path.read_bytes() == b"abc"
            assert file.path.parent.parent.parent == Path(tempfile.gettempdir())
            assert file.path.parent.stat().st_mode & 0o777 == 0o700
    assert not file.path.parent.exists()
    threads.close()


def test_what_a_dead_process_left_is_swept_and_what_lives_stays(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; "
        "from rsm_plugins.files.owned_folder import OwnedFolder; "
        "made = OwnedFolder.create(Path(sys.argv[1])); "
        "(made.path / 'x').write_text('x'); os._exit(1)"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, cwd=root, timeout=240)
    [left] = tmp_path.iterdir()
    first = OwnedFolder.create(tmp_path)
    second = OwnedFolder.create(tmp_path)
    assert {*tmp_path.iterdir()} == {first.path, second.path}
    assert not left.exists()
    first.close()
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_a_base_that_others_may_use_is_refused(tmp_path: Path) -> None:
    one, two = OwnedFolder.create_private(tmp_path), OwnedFolder.create_private(tmp_path)
    base = one.path.parent
    assert two.path.parent == base
    one.close()
    assert base.is_dir()
    two.close()
    assert not base.exists(), "it goes with the last"
    assert private_base(tmp_path) == base
    assert base.stat().st_mode & 0o777 == 0o700
    base.chmod(0o755)
    with pytest.raises(Invalid, match="only this user may use"):
        OwnedFolder.create_private(tmp_path)
    with pytest.raises(Unavailable):
        OwnedFolder.create(tmp_path / "absent")


async def test_slots_that_cannot_be_made_are_none(tmp_path: Path) -> None:
    threads = FileThreads()
    slots = ScratchSlots(ScratchSettings(folder=tmp_path / "absent"), threads)
    async with slots.slot(1 << 20) as slot:
        assert slot is None
    slots.close()
    threads.close()


@pytest.mark.parametrize(
    ("others", "is_offered"),
    [
        ({}, True),
        ({"shared__volume": False}, False),
        ({"listen": "0.0.0.0:0", "allow_insecure": True}, False),
        ({"listen": "0.0.0.0:0", "allow_insecure": True, "shared__scratch__dirs": ["/x"]}, True),
    ],
    ids=["private", "switched off", "for everybody", "for everybody, with a folder"],
)
def test_scratch_files_are_offered_only_where_one_could_be_filled(
    tmp_path: Path, others: dict[str, object], is_offered: bool
) -> None:
    folders = _scratch_folders(plugin_settings(tmp_path, **others))
    assert (folders is not None) is is_offered
    assert folders is None or folders.allows("/x/one") is True
