"""Many segments deleted by one call of a plugin: an answer for each; plugins without that call."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from kip405.errors import Corrupt, Invalid, RemoteStorageError, Unavailable
from kip405.segments import SegmentLocator
from rsm_plugins.conformance.subject import Subject
from rsm_plugins.contract.answering import Context
from rsm_plugins.contract.client import Deadlines, GrpcRemoteStorageManager
from rsm_plugins.contract.server import PluginServer
from rsm_plugins.contract.services import Dependencies, PluginInfo
from rsm_plugins.contract.status import detail_of_error, status_of_error
from rsm_plugins.files.segment_files import Spool
from rsm_plugins.segment_deletes import SEGMENTS_AT_ONCE, delete_each
from rsm_plugins.threads import FileThreads
from rsm_plugins.v1 import identity_pb2 as idpb
from rsm_plugins.v1 import identity_pb2_grpc, storage_pb2_grpc
from rsm_plugins.v1 import storage_pb2 as pb
from tests.builders.store import MemoryStore
from tests.rsm_plugins.harness import DEADLINES, PREFIX, local_subject, new_uuid

Answers = tuple[RemoteStorageError | None, ...]


@dataclass(slots=True, kw_only=True)
class OldPlugin(identity_pb2_grpc.IdentityServicer):
    """Deletes one segment a call; with `answers`, many, with so many answers. `errors`: by the
    number of the segment.
    """

    answers: int | None = None
    errors: dict[int, RemoteStorageError] = field(default_factory=dict)
    deleted: list[bytes] = field(default_factory=list)

    async def GetInfo(self, request: idpb.GetInfoRequest, context: Context) -> idpb.GetInfoResponse:
        capabilities = [idpb.CAPABILITY_BYTES]
        if self.answers is not None:
            capabilities.append(idpb.CAPABILITY_BATCH_DELETE)
        return idpb.GetInfoResponse(name="old", contract_version=1, capabilities=capabilities)

    async def Probe(self, request: idpb.ProbeRequest, context: Context) -> idpb.ProbeResponse:
        return idpb.ProbeResponse(state=idpb.ProbeResponse.STATE_READY)


class OldStorage(storage_pb2_grpc.StorageServicer):
    def __init__(self, plugin: OldPlugin) -> None:
        self._plugin = plugin

    async def DeleteLogSegmentData(
        self, request: pb.DeleteLogSegmentDataRequest, context: Context
    ) -> pb.DeleteLogSegmentDataResponse:
        self._plugin.deleted.append(request.locator.segment_id)
        error = self._plugin.errors.get(request.locator.start_offset)
        if error is not None:
            code, what, trailing = status_of_error(error)
            await context.abort(code, what, trailing)
        return pb.DeleteLogSegmentDataResponse()

    async def DeleteLogSegments(
        self, request: pb.DeleteLogSegmentsRequest, context: Context
    ) -> pb.DeleteLogSegmentsResponse:
        answered = [pb.DeletedSegment()] * (self._plugin.answers or 0)
        return pb.DeleteLogSegmentsResponse(segments=answered)


@asynccontextmanager
async def client_of(plugin: OldPlugin) -> AsyncIterator[GrpcRemoteStorageManager]:
    server = grpc.aio.server()
    identity_pb2_grpc.add_IdentityServicer_to_server(plugin, server)
    storage = OldStorage(plugin)  # type: ignore[abstract] # what it lacks is UNIMPLEMENTED
    storage_pb2_grpc.add_StorageServicer_to_server(storage, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = GrpcRemoteStorageManager.connect(
        f"127.0.0.1:{port}", principal="t", deadlines=DEADLINES
    )
    try:
        yield client
    finally:
        await client.close()
        await server.stop(None)


def locators(folder: Path, count: int) -> list[SegmentLocator]:
    subject = Subject(manager=MemoryStore("c"), folder=folder, new_uuid=new_uuid, cluster_id="c")
    partition = subject.partition()
    return [subject.locator(partition, number) for number in range(count)]


def types(answers: Answers) -> list[type[object]]:
    return [type(error) for error in answers]


@pytest.mark.parametrize("answers", [None, 0], ids=["no capability", "answers for all together"])
async def test_a_plugin_that_does_not_answer_for_each_is_asked_for_each(
    answers: int | None, tmp_path: Path
) -> None:
    """The error of one is its own, and does not keep the others."""
    plugin = OldPlugin(answers=answers, errors={1: Invalid("the object is locked")})
    wanted = locators(tmp_path, 3)
    async with client_of(plugin) as client:
        found = await client.delete_log_segments(wanted)
        assert await client.delete_log_segments([]) == ()
    assert types(found) == [type(None), Invalid, type(None)]
    assert "the object is locked" in str(found[1])
    assert sorted(plugin.deleted) == sorted(one.segment_id.id.raw for one in wanted)


async def test_a_plugin_whose_store_is_away_is_not_asked_for_each(tmp_path: Path) -> None:
    plugin = OldPlugin(errors=dict.fromkeys(range(500), Unavailable("the store is away")))
    async with client_of(plugin) as client:
        found = await client.delete_log_segments(locators(tmp_path, 500))
    assert set(types(found)) == {Unavailable}
    assert len(plugin.deleted) <= 2 * SEGMENTS_AT_ONCE


async def test_a_plugin_that_answers_for_others_is_not_believed(tmp_path: Path) -> None:
    async with client_of(OldPlugin(answers=2)) as client:
        with pytest.raises(Invalid, match="2 of 3 answered"):
            await client.delete_log_segments(locators(tmp_path, 3))


async def test_those_of_one_turn_follow_each_other_and_others_go_beside_them(
    tmp_path: Path,
) -> None:
    """An error of one keeps none of its turn."""
    wanted = locators(tmp_path, 6)
    begun, ended, other = list[int](), list[int](), asyncio.Event()

    async def delete_one(locator: SegmentLocator) -> None:
        at = wanted.index(locator)
        assert at % 2 == 0 or all(before in ended for before in begun if before % 2)
        begun.append(at)
        if at == 4:
            other.set()
        await other.wait()  # all the even ones at the same time
        ended.append(at)
        if at == 1:
            raise Invalid("the object is locked")

    def turn_of(locator: SegmentLocator) -> int:
        at = wanted.index(locator)
        return 1 if at % 2 else at

    async with asyncio.timeout(60):
        found = await delete_each(delete_one, wanted, turn_of)
    assert types(found) == [type(None), Invalid, *[type(None)] * 4]
    assert [at for at in ended if at % 2] == [1, 3, 5]


class Refusing(MemoryStore):
    """`errors` by start offset; `calls` has the sizes of the batches. `held`: does not answer."""

    def __init__(self) -> None:
        super().__init__("c")
        self.refused: dict[int, RemoteStorageError] = {}
        self.calls: list[int] = []
        self.held = False
        self.entered, self.cancelled = asyncio.Event(), asyncio.Event()

    async def delete_log_segments(self, locators: Sequence[SegmentLocator]) -> Answers:
        self.calls.append(len(locators))
        self.entered.set()
        try:
            if self.held:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return tuple(self.refused.get(one.start_offset) for one in locators)


@asynccontextmanager
async def client_over(
    store: Refusing, folder: Path, *, call_ms: int = 30_000
) -> AsyncIterator[GrpcRemoteStorageManager]:
    """A client with this deadline, of a plugin that serves the store."""
    threads = FileThreads(1)
    info = PluginInfo(name="memory", version="1", store_uri="memory:", instance="one")
    server = PluginServer(
        Dependencies(
            manager=store,
            info=info,
            threads=threads,
            spool=Spool(folder, threads, 1),
            secrets=("swordfish",),
        ),
        "127.0.0.1:0",
    )
    client = GrpcRemoteStorageManager.connect(
        str(await server.start()),
        principal="t",
        deadlines=Deadlines(call_ms=call_ms, copy_ms=call_ms),
    )
    try:
        yield client
    finally:
        await client.close()
        await server.stop()
        threads.close()


async def test_errors_travel_at_their_positions_and_secrets_do_not(tmp_path: Path) -> None:
    store = Refusing()
    store.refused = {0: Corrupt("odd"), 2: Unavailable("the key swordfish is not known")}
    async with client_over(store, tmp_path) as client:
        found = await client.delete_log_segments(locators(tmp_path, 4))
    assert types(found) == [Corrupt, type(None), Unavailable, type(None)]
    assert "the key *** is not known" in str(found[2])


async def test_more_than_a_call_takes_are_asked_in_parts_and_all_errors_fit(tmp_path: Path) -> None:
    store = Refusing()
    store.refused = dict.fromkeys(range(5000), Invalid("x" * 5000))
    async with client_over(store, tmp_path) as client:
        found = await client.delete_log_segments(locators(tmp_path, 2003))
    assert store.calls == [1000, 1000, 3]
    assert types(found) == [Invalid] * 2003
    assert detail_of_error(store.refused[0]).what[:100] in str(found[-1])


async def test_a_call_without_answer_is_unavailable_at_its_deadline(tmp_path: Path) -> None:
    """The plugin ends its work, too; the repeated call is answered."""
    store = Refusing()
    store.held = True
    wanted = locators(tmp_path, 3)
    async with client_over(store, tmp_path, call_ms=1_000) as client:
        while not store.calls:  # a busy machine may not get that far in time
            with pytest.raises(Unavailable, match="plugin 127"):
                await client.delete_log_segments(wanted)
        async with asyncio.timeout(60):
            await store.cancelled.wait()
        store.held = False
        while True:
            try:
                assert await client.delete_log_segments(wanted) == (None, None, None)
                break
            except Unavailable:
                continue


async def test_g1_a_call_that_is_cancelled_ends_in_the_plugin_too(tmp_path: Path) -> None:
    store = Refusing()
    store.held = True
    async with client_over(store, tmp_path) as client:
        async with asyncio.TaskGroup() as tasks:
            call = tasks.create_task(client.delete_log_segments(locators(tmp_path, 3)))
            await store.entered.wait()
            call.cancel()
        async with asyncio.timeout(60):
            await store.cancelled.wait()


async def test_g1_nothing_more_is_begun_after_a_call_was_cancelled(tmp_path: Path) -> None:
    """By a plugin that deletes one by one, and by the client of a plugin that cannot delete many.
    Those that were begun at the same time may go.
    """
    begun, go = list[SegmentLocator](), asyncio.Event()

    async def delete_one(locator: SegmentLocator) -> None:
        begun.append(locator)
        if len(begun) == SEGMENTS_AT_ONCE:
            full.set()
        await go.wait()

    full = asyncio.Event()
    wanted = locators(tmp_path, 100)
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(delete_each(delete_one, wanted))
        await full.wait()
        call.cancel()
    go.set()
    await asyncio.sleep(0)
    assert begun == wanted[:SEGMENTS_AT_ONCE]


@pytest.mark.parametrize("mode", ["direct", "bytes"])
async def test_a_segment_that_cannot_go_does_not_keep_the_others(tmp_path: Path, mode: str) -> None:
    """A folder under its manifest's name represents whatever keeps it from being removed."""
    async with local_subject(tmp_path, mode) as subject:
        await subject.ensure_identity()
        partition = subject.partition()
        segments = [subject.segment(partition, start_offset=number) for number in range(3)]
        for segment in segments:
            await subject.complete(segment)
        stuck = segments[1]
        (manifest,) = (
            tmp_path / "store" / PREFIX / name
            for name in await subject.names(partition)
            if name.endswith("manifest") and str(stuck.locator.segment_id.id) in name
        )
        manifest.unlink()
        manifest.mkdir()
        for _ in range(2):
            found = await subject.manager.delete_log_segments([one.locator for one in segments])
            assert [error is None for error in found] == [True, False, True]
        assert await subject.fetch(stuck.locator, 0, 1 << 30) == stuck.log, "G4: its log stays"
        manifest.rmdir()
        found = await subject.manager.delete_log_segments([one.locator for one in segments])
        assert found == (None, None, None)


async def test_one_by_one_means_a_bounded_number_at_once(tmp_path: Path) -> None:
    at_once, most = 0, 0

    async def delete_one(locator: SegmentLocator) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1

    assert set(await delete_each(delete_one, locators(tmp_path, 100))) == {None}
    assert most == SEGMENTS_AT_ONCE


async def test_a_bug_of_a_store_is_not_an_answer(tmp_path: Path) -> None:
    async def delete_one(locator: SegmentLocator) -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError, match="a bug"):
        await delete_each(delete_one, locators(tmp_path, 3))
