"""A store plugin at an address, as a RemoteStorageManager again.

Every call has a deadline, names a principal, and fails with kip405's errors only. Files are handed
over by path where both sides were proven to see the same volume, else their bytes travel. A plugin
that was killed and restarted is usable within about a second; one that hangs is Unavailable at the
deadline, or when it leaves keepalive pings unanswered. Must not know which store is behind the
plugin.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc

from kip405.contracts import (
    ExpectedSegment,
    IndexType,
    SegmentPresence,
    StoredObject,
    StoreIdentity,
)
from kip405.errors import Invalid, Unavailable
from kip405.ids import TopicIdPartition
from kip405.segments import ByteRange, FileSlice, LogSegmentData, SegmentLocator
from rsm_plugins.addresses import Address
from rsm_plugins.calls import PRINCIPAL_KEY
from rsm_plugins.client_volume import ClientVolume, VolumeCalls
from rsm_plugins.fetch_stream import Received
from rsm_plugins.file_threads import FileThreads
from rsm_plugins.manifest import check_manifest_size
from rsm_plugins.messages import (
    CHUNK_BYTES,
    CONTRACT_VERSION,
    INDEXES_MAX_BYTES,
    MESSAGE_MAX_BYTES,
    STAT_MAX_SEGMENTS,
    expected_message,
    identity_message,
    identity_value,
    locator_message,
    object_value,
    partition_message,
    presence_value,
    slice_message,
)
from rsm_plugins.source_files import source_chunk
from rsm_plugins.status import error_of_call, is_lost_status
from rsm_plugins.v1 import identity_pb2 as idpb
from rsm_plugins.v1 import identity_pb2_grpc, storage_pb2_grpc
from rsm_plugins.v1 import storage_pb2 as pb

KEEPALIVE_TIME_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 5_000
RECONNECT_MAX_MS = 1_000

_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_MAX_BYTES),
    ("grpc.max_send_message_length", MESSAGE_MAX_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", RECONNECT_MAX_MS),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_MAX_MS),
    ("grpc.use_local_subchannel_pool", 1),  # one client's back-off is not another's
    ("grpc.enable_retries", 0),  # who retries is the caller's decision
    ("grpc.enable_http_proxy", 0),
)
_CopyCall: TypeAlias = (
    "grpc.aio.StreamUnaryCall[pb.CopyLogSegmentDataRequest, pb.CopyLogSegmentDataResponse]"
)
_FetchCall: TypeAlias = "grpc.aio.UnaryStreamCall[Any, pb.FetchResponse]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long calls may take: `copy_ms` for one copy and one whole listing, `call_ms` for all
    others.
    """

    call_ms: int = 30_000
    copy_ms: int = 1_800_000

    @property
    def call_seconds(self) -> float:
        return self.call_ms / 1000

    @property
    def copy_seconds(self) -> float:
        return self.copy_ms / 1000


class GrpcRemoteStorageManager:
    """The contract over one channel; `close` by the one who connected."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        target: str,
        deadlines: Deadlines,
        principal: str,
        *,
        share: bool,
    ) -> None:
        self._channel = channel
        self._target = target
        self._deadlines = deadlines
        self._metadata = ((PRINCIPAL_KEY, principal),)
        self._identity = identity_pb2_grpc.IdentityStub(channel)
        self._storage = storage_pb2_grpc.StorageStub(channel)
        self._threads = FileThreads()
        calls = VolumeCalls(get_info=self.get_info, check_path=self._check_path)
        self._volume = ClientVolume(calls, self._threads, wanted=share)

    @classmethod
    def connect(
        cls,
        target: str,
        *,
        principal: str,
        deadlines: Deadlines,
        allow_insecure: bool = False,
        share: bool = True,
    ) -> "GrpcRemoteStorageManager":
        """A client of the plugin at `host:port` or `unix:/path`; dials when first used. Needs a
        running loop.

        Invalid for an address that is none, or not private without `allow_insecure`, and for an
        empty principal. With `share` false files never travel by path.
        """
        address = Address.parse(target)
        address.require_private(allow_insecure)
        if not principal.isascii() or not principal.isprintable() or not principal:
            raise Invalid(f"principal {principal!r} is not a word of printable ASCII")
        channel = grpc.aio.insecure_channel(str(address), options=_OPTIONS)
        return cls(channel, str(address), deadlines, principal, share=share)

    @contextmanager
    def _translated(self, operation: str) -> Iterator[None]:
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise error_of_call(error, operation, self._target) from error
        except TimeoutError as error:
            raise Unavailable(
                f"plugin {self._target}: {operation}: no answer before the deadline"
            ) from error
        except grpc.aio.UsageError as error:
            raise Unavailable(
                f"plugin {self._target}: {operation}: the client is closed"
            ) from error

    # -- about the plugin

    async def get_info(self) -> idpb.GetInfoResponse:
        """Who the plugin is; Invalid where it speaks another version of the contract."""
        with self._translated("get info"):
            info = await self._identity.GetInfo(
                idpb.GetInfoRequest(), timeout=self._deadlines.call_seconds, metadata=self._metadata
            )
        if info.contract_version != CONTRACT_VERSION:
            raise Invalid(
                f"plugin {self._target} ({info.name} {info.version}) speaks version "
                f"{info.contract_version} of the contract, this side version {CONTRACT_VERSION}"
            )
        return info

    async def probe(self) -> bool:
        """True when ready, False while it still starts; the error says what is unhealthy."""
        with self._translated("probe"):
            answer = await self._identity.Probe(
                idpb.ProbeRequest(), timeout=self._deadlines.call_seconds, metadata=self._metadata
            )
        return answer.state == idpb.ProbeResponse.STATE_READY

    async def _check_path(self, request: pb.CheckPathRequest) -> pb.CheckPathResponse:
        with self._translated("check path"):
            return await self._storage.CheckPath(
                request, timeout=self._deadlines.call_seconds, metadata=self._metadata
            )

    # -- RemoteStorageManager

    async def read_identity(self) -> StoreIdentity | None:
        """See RemoteStorageManager."""
        with self._translated("read identity"):
            answer = await self._storage.ReadIdentity(
                pb.ReadIdentityRequest(),
                timeout=self._deadlines.call_seconds,
                metadata=self._metadata,
            )
        return identity_value(answer.identity) if answer.HasField("identity") else None

    async def create_identity(self, identity: StoreIdentity) -> StoreIdentity:
        """See RemoteStorageManager."""
        request = pb.CreateIdentityRequest(identity=identity_message(identity))
        with self._translated("create identity"):
            answer = await self._storage.CreateIdentity(
                request, timeout=self._deadlines.call_seconds, metadata=self._metadata
            )
        return identity_value(answer.identity)

    async def copy_log_segment_data(self, locator: SegmentLocator, data: LogSegmentData) -> bytes:
        """See RemoteStorageManager; Fenced where the file to copy is gone or cut short."""
        by_path = await self._volume.plugin_sees(data.log)
        call = self._storage.CopyLogSegmentData(
            timeout=self._deadlines.copy_seconds, metadata=self._metadata
        )
        try:
            with self._translated(f"copy {locator.segment_id}"):
                with self._answered_early():
                    await self._send_copy(call, locator, data, by_path)
                answer = await call
        finally:
            call.cancel()
        return bytes(answer.plugin_metadata)

    @contextmanager
    def _answered_early(self) -> Iterator[None]:
        """A plugin may answer before all was sent: its status says why, unless it is lost."""
        try:
            yield
        except asyncio.InvalidStateError:
            return  # the status is there: awaiting the call raises it
        except grpc.aio.AioRpcError as error:
            if is_lost_status(error):
                raise Unavailable(
                    f"plugin {self._target} ended a copy early; its reason was lost on the way"
                ) from error
            raise

    async def _send_copy(
        self,
        call: _CopyCall,
        locator: SegmentLocator,
        data: LogSegmentData,
        by_path: bool,
    ) -> None:
        header = pb.CopyHeader(
            locator=locator_message(locator),
            log_size_bytes=data.log.size_bytes,
            log_crc32c=data.log_crc32c,
            indexes_size_bytes=len(data.indexes),
            indexes_crc32c=data.indexes_crc32c,
            log_file=slice_message(data.log) if by_path else None,
        )
        await call.write(pb.CopyLogSegmentDataRequest(header=header))
        for start in range(0, len(data.indexes), CHUNK_BYTES):
            chunk = data.indexes[start : start + CHUNK_BYTES]
            await call.write(pb.CopyLogSegmentDataRequest(indexes_chunk=chunk))
        if not by_path:
            async for chunk in self._source_chunks(data.log):
                await call.write(pb.CopyLogSegmentDataRequest(log_chunk=chunk))
        await call.done_writing()

    async def _source_chunks(self, log: FileSlice) -> AsyncIterator[bytes]:
        sent = 0
        while sent < log.size_bytes:
            size_bytes = min(CHUNK_BYTES, log.size_bytes - sent)
            yield await self._threads.run(source_chunk, log, sent, size_bytes)
            sent += size_bytes

    async def write_manifest(self, locator: SegmentLocator, manifest: bytes) -> None:
        """See RemoteStorageManager."""
        check_manifest_size(manifest)
        request = pb.WriteManifestRequest(locator=locator_message(locator), manifest=manifest)
        with self._translated(f"write manifest of {locator.segment_id}"):
            await self._storage.WriteManifest(
                request, timeout=self._deadlines.call_seconds, metadata=self._metadata
            )

    async def read_manifest(self, locator: SegmentLocator) -> bytes:
        """See RemoteStorageManager."""
        request = pb.ReadManifestRequest(locator=locator_message(locator))
        with self._translated(f"read manifest of {locator.segment_id}"):
            answer = await self._storage.ReadManifest(
                request, timeout=self._deadlines.call_seconds, metadata=self._metadata
            )
        return bytes(answer.manifest)

    async def fetch_log_segment(
        self, locator: SegmentLocator, byte_range: ByteRange
    ) -> bytes | FileSlice:
        """See RemoteStorageManager."""
        request = pb.FetchLogSegmentRequest(
            locator=locator_message(locator),
            start=byte_range.start,
            end=byte_range.end,
            shared_volume_nonce=await self._volume.nonce(),
        )
        call = self._storage.FetchLogSegment(
            request, timeout=self._deadlines.call_seconds, metadata=self._metadata
        )
        return await self._collect(call, f"fetch {locator.segment_id}", byte_range.size_bytes)

    async def fetch_indexes(self, locator: SegmentLocator) -> bytes:
        """See RemoteStorageManager."""
        call = self._storage.FetchIndexes(
            pb.FetchIndexesRequest(locator=locator_message(locator)),
            timeout=self._deadlines.call_seconds,
            metadata=self._metadata,
        )
        return await self._collect_bytes(call, f"fetch indexes of {locator.segment_id}")

    async def fetch_index(self, locator: SegmentLocator, index_type: IndexType) -> bytes:
        """See RemoteStorageManager."""
        call = self._storage.FetchIndex(
            pb.FetchIndexRequest(locator=locator_message(locator), index_type=index_type.value),
            timeout=self._deadlines.call_seconds,
            metadata=self._metadata,
        )
        return await self._collect_bytes(
            call, f"fetch {index_type.name} index of {locator.segment_id}"
        )

    async def _collect_bytes(self, call: _FetchCall, operation: str) -> bytes:
        found = await self._collect(call, operation, INDEXES_MAX_BYTES)
        if isinstance(found, FileSlice):
            raise Invalid(f"plugin {self._target}: {operation}: a file was answered, not bytes")
        return found

    async def _collect(self, call: _FetchCall, operation: str, max_bytes: int) -> bytes | FileSlice:
        received = Received(place=f"plugin {self._target}: {operation}", max_bytes=max_bytes)
        try:
            with self._translated(operation):
                async for response in call:
                    received.add(response)
        finally:
            call.cancel()
        found = received.result()
        self._volume.saw_instance(received.instance)
        return found

    async def stat(self, segments: Sequence[ExpectedSegment]) -> tuple[SegmentPresence, ...]:
        """See RemoteStorageManager; asked in parts of 1000."""
        found: list[SegmentPresence] = []
        for start in range(0, len(segments), STAT_MAX_SEGMENTS):
            part = segments[start : start + STAT_MAX_SEGMENTS]
            request = pb.StatRequest(segments=[expected_message(segment) for segment in part])
            with self._translated("stat"):
                answer = await self._storage.Stat(
                    request, timeout=self._deadlines.call_seconds, metadata=self._metadata
                )
            if len(answer.segments) != len(part):
                raise Invalid(
                    f"plugin {self._target}: stat: {len(answer.segments)} of {len(part)} answered"
                )
            found.extend(presence_value(presence) for presence in answer.segments)
        return tuple(found)

    async def list_objects(
        self, cluster_id: str, partition: TopicIdPartition | None = None
    ) -> AsyncIterator[StoredObject]:
        """See RemoteStorageManager; each page must arrive within `call_ms`."""
        message = None if partition is None else partition_message(partition)
        call = self._storage.ListObjects(
            pb.ListObjectsRequest(cluster_id=cluster_id, partition=message),
            timeout=self._deadlines.copy_seconds,
            metadata=self._metadata,
        )
        try:
            while True:
                with self._translated("list objects"):
                    async with asyncio.timeout(self._deadlines.call_seconds):
                        page = await call.read()
                if not isinstance(page, pb.ListObjectsResponse):
                    return
                for found in page.objects:
                    yield object_value(found)
        finally:
            call.cancel()

    async def delete_log_segment_data(self, locator: SegmentLocator) -> None:
        """See RemoteStorageManager."""
        request = pb.DeleteLogSegmentDataRequest(locator=locator_message(locator))
        with self._translated(f"delete {locator.segment_id}"):
            await self._storage.DeleteLogSegmentData(
                request, timeout=self._deadlines.call_seconds, metadata=self._metadata
            )

    async def close(self) -> None:
        """See RemoteStorageManager; calls still running are cancelled."""
        await self._channel.close()
        self._threads.close()
