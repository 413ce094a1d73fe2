"""The contract over gRPC: addresses, principals, hand-over by path, broken streams, statuses."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.rpc import status_pb2  # type: ignore[import-untyped]
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from kip405.addresses import Address
from kip405.errors import (
    Busy,
    Corrupt,
    Elsewhere,
    ErrorKind,
    Fenced,
    Invalid,
    OffsetOutOfRange,
    RemoteStorageError,
    Unavailable,
    error_of_kind,
)
from kip405.segments import ByteRange, FileSlice
from kip405.v1 import errors_pb2
from rsm_plugins.conformance.subject import Subject, read_answer
from rsm_plugins.contract.answering import Context
from rsm_plugins.contract.client import Deadlines, GrpcRemoteStorageManager
from rsm_plugins.contract.client_files import ClientVolume, VolumeCalls
from rsm_plugins.contract.messages import locator_message, slice_message
from rsm_plugins.contract.status import error_of_call, status_of_error
from rsm_plugins.contract.streams import Received
from rsm_plugins.files.segment_files import Spool
from rsm_plugins.files.shared_volume import read_nonce
from rsm_plugins.process.plugin import running_server
from rsm_plugins.threads import FileThreads
from rsm_plugins.v1 import identity_pb2, identity_pb2_grpc, storage_pb2_grpc
from rsm_plugins.v1 import storage_pb2 as pb
from tests.builders.failed_call import FailedCall
from tests.rsm_plugins.harness import DEADLINES, DirectoryFaults, new_uuid, plugin_settings

PRINCIPAL = (("rlm-principal", "test"),)
WHOLE = ByteRange(start=0, end=1 << 30)


@asynccontextmanager
async def plugin(
    tmp_path: Path, *, share: bool = True, **settings: object
) -> AsyncIterator[Subject]:
    """A running plugin and a subject that uses it."""
    root = tmp_path / "store"
    root.mkdir(exist_ok=True)
    async with running_server(plugin_settings(root, **settings)) as (address, _):
        client = GrpcRemoteStorageManager.connect(
            str(address), principal="test", deadlines=DEADLINES, share=share
        )
        yield Subject(
            manager=client,
            folder=tmp_path,
            new_uuid=new_uuid,
            cluster_id="c",
            faults=DirectoryFaults(root),
        )
        await client.close()


def channel_to(address: Address) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(str(address), options=(("grpc.enable_http_proxy", 0),))


async def test_every_call_needs_a_principal(tmp_path: Path) -> None:
    async with (
        running_server(plugin_settings(tmp_path)) as (address, _),
        channel_to(address) as channel,
    ):
        storage = storage_pb2_grpc.StorageStub(channel)
        calls: list[Awaitable[object]] = [
            identity_pb2_grpc.IdentityStub(channel).GetInfo(identity_pb2.GetInfoRequest()),
            storage.Stat(pb.StatRequest()),
            storage.ListObjects(pb.ListObjectsRequest()).read(),
        ]
        for call in calls:
            with pytest.raises(grpc.aio.AioRpcError, match="rlm-principal") as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_health_and_reflection_are_served(tmp_path: Path) -> None:
    async with running_server(plugin_settings(tmp_path)) as (address, _):
        async with channel_to(address) as channel:
            health: Any = health_pb2_grpc.HealthStub(channel)
            for service in ("", "rsm_plugins.v1.Storage", "rsm_plugins.v1.Identity"):
                answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
                assert answer.status == health_pb2.HealthCheckResponse.SERVING

        def reflected() -> set[str]:
            with grpc.insecure_channel(str(address)) as plain:
                database = ProtoReflectionDescriptorDatabase(plain)
                names = set(database.get_services())
                pool = DescriptorPool(database)
                methods = pool.FindServiceByName("rsm_plugins.v1.Storage").methods
                return names | {method.name for method in methods}

        found = await asyncio.to_thread(reflected)
        assert {"rsm_plugins.v1.Identity", "grpc.health.v1.Health", "CheckPath", "Stat"} <= found


async def test_ranges_are_handed_over_by_path_once_proven(tmp_path: Path) -> None:
    async with plugin(tmp_path) as subject:
        await subject.ensure_identity()
        segment = subject.segment()
        await subject.copy(segment)
        found = await subject.manager.fetch_log_segment(segment.locator, WHOLE)
        assert isinstance(found, FileSlice)
        assert read_answer(found) == segment.log


@pytest.mark.parametrize("where", ["client", "plugin"])
async def test_bytes_travel_where_sharing_is_off(tmp_path: Path, where: str) -> None:
    settings = {"shared__volume": False} if where == "plugin" else {}
    async with plugin(tmp_path, share=where == "plugin", **settings) as subject:
        await subject.ensure_identity()
        segment = subject.segment(log_size_bytes=3_000_000)
        await subject.copy(segment)
        found = await subject.manager.fetch_log_segment(segment.locator, WHOLE)
        assert found == segment.log


async def test_a_probe_file_with_other_content_is_no_proof(tmp_path: Path) -> None:
    """The same path on another volume: bytes travel. The plugin mends its own file when asked."""
    async with plugin(tmp_path) as subject:
        await subject.ensure_identity()
        segment = subject.segment()
        await subject.copy(segment)
        client = subject.manager
        assert isinstance(client, GrpcRemoteStorageManager)
        shared = (await client.get_info()).shared_volume
        assert read_nonce(shared.path) == shared.nonce
        os.unlink(shared.path)
        assert read_nonce(shared.path) is None
        await client.get_info()
        assert read_nonce(shared.path) == shared.nonce
        calls = VolumeCalls(get_info=_with_another_nonce(client), check_path=client._check_path)
        client._volume = ClientVolume(calls, client._threads, wanted=True)
        assert await client.fetch_log_segment(segment.locator, WHOLE) == segment.log


def _with_another_nonce(
    client: GrpcRemoteStorageManager,
) -> Callable[[], Awaitable[identity_pb2.GetInfoResponse]]:
    async def get_info() -> identity_pb2.GetInfoResponse:
        info = await client.get_info()
        info.shared_volume.nonce += "x"
        return info

    return get_info


async def test_a_restarted_plugin_must_be_proven_again(tmp_path: Path) -> None:
    """A slice is answered only to whom has read this instance's nonce."""
    async with plugin(tmp_path) as subject:
        await subject.ensure_identity()
        segment = subject.segment()
        await subject.copy(segment)
        client = subject.manager
        assert isinstance(client, GrpcRemoteStorageManager)
        assert isinstance(await client.fetch_log_segment(segment.locator, WHOLE), FileSlice)
        client._volume._nonce = "of an earlier instance"
        client._volume._instance = "an earlier instance"
        assert await client.fetch_log_segment(segment.locator, WHOLE) == segment.log
        assert isinstance(await client.fetch_log_segment(segment.locator, WHOLE), FileSlice)


async def test_only_named_folders_are_read_on_a_callers_word(tmp_path: Path) -> None:
    allowed = tmp_path / "logs"
    allowed.mkdir()
    async with plugin(tmp_path, shared__source__dirs=[str(allowed)]) as subject:
        await subject.ensure_identity()
        outside = subject.segment()
        await subject.copy(outside)  # by bytes: the plugin says that it cannot read there
        assert await subject.fetch(outside.locator, 0, 1 << 30) == outside.log
        link = allowed / "link"
        link.symlink_to(outside.data.log.path)
        client = subject.manager
        assert isinstance(client, GrpcRemoteStorageManager)
        for path in (outside.data.log.path, str(link), f"{allowed}/../{link.name}"):
            file_slice = slice_message(FileSlice(path=path, position=0, size_bytes=10))
            answer = await client._check_path(pb.CheckPathRequest(file=file_slice))
            assert not answer.readable
        header = pb.CopyHeader(
            locator=locator_message(outside.locator),
            log_size_bytes=10,
            log_file=pb.FileSlice(path=str(link), size_bytes=10),
        )
        with pytest.raises(grpc.aio.AioRpcError, match=r"shared\.source\.dirs"):
            await _send(client, [pb.CopyLogSegmentDataRequest(header=header)])


async def _send(
    client: GrpcRemoteStorageManager, messages: list[pb.CopyLogSegmentDataRequest]
) -> None:
    await client._stubs.storage.CopyLogSegmentData(iter(messages), metadata=PRINCIPAL, timeout=60)


async def test_copies_that_break_their_own_declaration_are_refused(tmp_path: Path) -> None:
    async with plugin(tmp_path) as subject:
        await subject.ensure_identity()
        client = subject.manager
        assert isinstance(client, GrpcRemoteStorageManager)
        locator = locator_message(subject.locator(subject.partition()))
        request = pb.CopyLogSegmentDataRequest
        header = request(
            header=pb.CopyHeader(locator=locator, log_size_bytes=4, indexes_size_bytes=2)
        )
        large = request(header=pb.CopyHeader(locator=locator, log_size_bytes=2**31))
        indexes, log = request(indexes_chunk=b"ab"), request(log_chunk=b"abcd")
        refused = {
            "begins with its header": [[], [indexes], [log]],
            "0 of 2 bytes of indexes": [[header]],
            "0 of 4 bytes of the log": [[header, indexes]],
            "before the indexes": [[header, log]],
            "more than the declared 2": [[header, indexes, indexes]],
            "more than the declared 4": [[header, indexes, log, log]],
            "after its header": [[header, header], [header, request()]],
            "not within": [[large]],
            "CRC-32C": [[header, indexes, log]],
        }
        for why, streams in refused.items():
            for stream in streams:
                with pytest.raises(grpc.aio.AioRpcError, match=why):
                    await _send(client, stream)
        assert subject.faults is not None
        assert subject.faults.names() == ["rlm-store.json"]


async def test_too_many_copies_by_bytes_are_busy(tmp_path: Path) -> None:
    threads = FileThreads()
    spool = Spool(tmp_path, threads, max_files=1)
    async with spool.file() as spooled:
        await spooled.append(b"abc")
        with pytest.raises(Busy, match="come back later"):
            async with spool.file():
                pass
    assert os.listdir(tmp_path) == []
    async with spool.file():
        pass
    threads.close()


async def test_refused_copies_are_retriable_and_later_succeed(tmp_path: Path) -> None:
    """Busy, or Unavailable where gRPC lost the status while the client was still writing."""
    async with plugin(tmp_path, share=False, copies__by__bytes__max=1) as subject:
        await subject.ensure_identity()
        segments = [subject.segment(log_size_bytes=4_000_000) for _ in range(4)]
        found = await asyncio.gather(
            *(subject.copy(segment) for segment in segments), return_exceptions=True
        )
        refused = [answer for answer in found if answer is not None]
        assert 0 < len(refused) < 4
        assert all(isinstance(answer, Busy | Unavailable) for answer in refused)
        for segment in segments:
            await subject.copy(segment)
            assert await subject.fetch(segment.locator, 0, 1 << 30) == segment.log


async def test_a_log_deleted_between_two_chunks_is_not_found(tmp_path: Path) -> None:
    async with plugin(tmp_path, share=False) as subject:
        await subject.ensure_identity()
        segment = subject.segment(log_size_bytes=40 << 20)
        await subject.copy(segment)
        client = subject.manager
        assert isinstance(client, GrpcRemoteStorageManager)
        request = pb.FetchLogSegmentRequest(locator=locator_message(segment.locator), end=1 << 30)
        call = client._stubs.storage.FetchLogSegment(request, metadata=PRINCIPAL)
        await call.read()
        await client.delete_log_segment_data(segment.locator)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            while await call.read() is not grpc.aio.EOF:
                pass
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_call_without_answer_is_unavailable_at_its_deadline(tmp_path: Path) -> None:
    """A listener that accepts and never speaks, as a paused plugin that is dialled."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = GrpcRemoteStorageManager.connect(
            f"127.0.0.1:{silent.getsockname()[1]}",
            principal="t",
            deadlines=Deadlines(call_ms=300, copy_ms=300),
        )
        subject = Subject(manager=client, folder=tmp_path, new_uuid=new_uuid, cluster_id="c")
        segment = subject.segment()
        for call in (
            client.read_identity(),
            subject.presence(segment),
            subject.names(),
            subject.copy(segment),
            client.fetch_log_segment(segment.locator, WHOLE),
            client.delete_log_segment_data(segment.locator),
            client.delete_log_segments([segment.locator]),
        ):
            with pytest.raises(Unavailable, match="plugin 127"):
                await call
        await client.close()
        with pytest.raises(Unavailable, match="closed"):
            await client.read_identity()


@pytest.mark.parametrize("kind", ErrorKind)
def test_errors_carry_their_kind_over_the_wire(kind: ErrorKind) -> None:
    error = error_of_kind(kind, "what happened \u00e4")
    code, what, trailing = status_of_error(error)
    assert (code.name, what) == (kind.value, str(error))
    (key, value), *_ = trailing
    assert key == "grpc-status-details-bin"
    assert isinstance(value, bytes)
    assert errors_pb2.ErrorDetail.DESCRIPTOR.full_name.encode() in value


@pytest.mark.parametrize(
    "error",
    [
        Elsewhere("broker 2 leads", "b:2"),
        OffsetOutOfRange("below", log_start_offset=0),
        OffsetOutOfRange("beyond", high_watermark=60),
        Invalid("plain"),
    ],
)
def test_errors_keep_their_fields_over_the_wire(error: RemoteStorageError) -> None:
    found = error_of_call(FailedCall.of(error), "s")
    assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))


def test_the_detail_of_an_earlier_version_of_a_plugin_is_understood() -> None:
    """Its message has another name and the same fields."""
    code, text, ((key, value), *_) = status_of_error(Corrupt("object x"))
    assert isinstance(value, bytes)
    status = status_pb2.Status.FromString(value)
    status.details[0].type_url = "type.googleapis.com/rsm_plugins.v1.ErrorDetail"
    earlier = status.SerializeToString()
    found = error_of_call(FailedCall(code, text, ((key, earlier),)), "s")
    assert (type(found), str(found)) == (Corrupt, "object x")


class Foreign(storage_pb2_grpc.StorageServicer):
    """Another plugin, in another language, that knows only status codes."""

    code = grpc.StatusCode.OK

    async def ReadIdentity(
        self, request: pb.ReadIdentityRequest, context: Context
    ) -> pb.ReadIdentityResponse:
        await context.abort(self.code, "foreign words")


class Damaged(storage_pb2_grpc.StorageServicer):
    """A plugin of ours whose identity object is damaged, in its own words."""

    words = ""

    async def ReadIdentity(
        self, request: pb.ReadIdentityRequest, context: Context
    ) -> pb.ReadIdentityResponse:
        code, what, trailing = status_of_error(Corrupt(self.words))
        await context.abort(code, what, trailing)


@pytest.mark.parametrize("sign", ["a", "%", "\n", "é", "日", "😀", "\udcff"])
async def test_an_error_of_any_length_and_alphabet_keeps_its_kind(sign: str) -> None:
    """gRPC itself answers RESOURCE_EXHAUSTED for more than 8 KiB of metadata, which means Busy."""
    damaged = Damaged()  # type: ignore[abstract] # what it lacks is answered with UNIMPLEMENTED
    damaged.words = f"object x: {sign * 5_000}"
    server = grpc.aio.server()
    storage_pb2_grpc.add_StorageServicer_to_server(damaged, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = GrpcRemoteStorageManager.connect(
        f"127.0.0.1:{port}", principal="test", deadlines=DEADLINES
    )
    try:
        for _ in range(20):  # between 8 and 16 KiB gRPC rejects some
            with pytest.raises(Corrupt, match=r"(?s)^object x: .{200}") as caught:
                await client.read_identity()
            assert len(str(caught.value)) <= 2_000
    finally:
        await client.close()
        await server.stop(None)


async def test_a_server_without_details_is_understood_by_its_code() -> None:
    codes = {"DATA_LOSS": Corrupt, "FAILED_PRECONDITION": Fenced, "UNIMPLEMENTED": Invalid}
    foreign = Foreign()  # type: ignore[abstract] # what it lacks is answered with UNIMPLEMENTED
    server = grpc.aio.server()
    storage_pb2_grpc.add_StorageServicer_to_server(foreign, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = GrpcRemoteStorageManager.connect(
        f"127.0.0.1:{port}", principal="t", deadlines=DEADLINES
    )
    try:
        for name, expected in codes.items():
            foreign.code = grpc.StatusCode[name]
            with pytest.raises(expected, match="foreign words"):
                await client.read_identity()
    finally:
        await client.close()
        await server.stop(None)


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([], "without a header"),
        ([pb.FetchResponse(chunk=b"a")], "does not begin"),
        ([pb.FetchResponse(header=pb.FetchHeader(size_bytes=11))], "at most 10"),
        ([pb.FetchResponse(header=pb.FetchHeader(size_bytes=2))], "0 of the declared 2"),
        (
            [
                pb.FetchResponse(header=pb.FetchHeader(size_bytes=2)),
                pb.FetchResponse(chunk=b"abc"),
            ],
            "more than the declared 2",
        ),
        ([pb.FetchResponse(header=pb.FetchHeader())] * 2, "may not follow"),
    ],
)
def test_short_and_long_bodies_are_corrupt(parts: list[pb.FetchResponse], why: str) -> None:
    received = Received(operation="plugin x: fetch", max_bytes=10, may_be_slice=True)
    with pytest.raises(Corrupt, match=why):
        for part in parts:
            received.add(part)
        received.result()


@pytest.mark.parametrize("text", ["0.0.0.0:1", "example.org:1", "10.0.0.1:1", "[::]:1"])
async def test_insecure_addresses_are_refused_on_both_sides(text: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="allow_insecure"):
        GrpcRemoteStorageManager.connect(text, principal="t", deadlines=DEADLINES)
    with pytest.raises(Invalid, match=r"listen: .*allow_insecure"):
        plugin_settings(tmp_path, listen=text)
    assert plugin_settings(tmp_path, listen=text, allow_insecure=True).listen == text
    client = GrpcRemoteStorageManager.connect(
        text, principal="t", deadlines=DEADLINES, allow_insecure=True
    )
    await client.close()


@pytest.mark.parametrize("principal", ["", "\u00e4", "a\nb"])
async def test_principals_refused(principal: str) -> None:
    with pytest.raises(Invalid, match="principal"):
        GrpcRemoteStorageManager.connect("127.0.0.1:1", principal=principal, deadlines=DEADLINES)


def test_retriable_kinds_are_said_to_be() -> None:
    retriable = {kind for kind in ErrorKind if _detail(error_of_kind(kind, "x")).retriable}
    assert retriable == {ErrorKind.UNAVAILABLE, ErrorKind.BUSY}


def _detail(error: RemoteStorageError) -> errors_pb2.ErrorDetail:
    value = status_of_error(error)[2][0][1]
    detail = errors_pb2.ErrorDetail()
    assert status_pb2.Status.FromString(value).details[0].Unpack(detail)
    return detail
