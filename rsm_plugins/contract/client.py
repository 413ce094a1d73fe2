"""The client of a store plugin, which is a RemoteStorageManager again.

Every call has a deadline, names a principal, and fails with kip405's errors only. Files are passed
by path where client and plugin have proved that they see the same volume; fetched ranges of other
stores go through scratch files; otherwise bytes are sent. A plugin that was killed and restarted is
usable within about a second. A plugin that hangs is Unavailable at the deadline, or when it does
not answer keepalive pings. This module must not know which store is behind the plugin.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc

from kip405.addresses import Address
from kip405.contracts import (
    ExpectedSegment,
    SegmentPresence,
    StoredObject,
    StoreFinding,
    StoreIdentity,
)
from kip405.errors import Invalid, RemoteStorageError, Unavailable
from kip405.ids import TopicIdPartition
from kip405.segments import ByteRange, FileSlice, LogSegmentData, SegmentLocator
from rsm_plugins.contract.client_channel import PluginStubs, RenewedChannel, open_plugin
from rsm_plugins.contract.client_files import (
    ClientVolume,
    ScratchSettings,
    ScratchSlots,
    VolumeCalls,
)
from rsm_plugins.contract.messages import (
    CHUNK_BYTES,
    DELETE_MAX_SEGMENTS,
    INDEXES_MAX_BYTES,
    STAT_MAX_SEGMENTS,
    expected_message,
    identity_message,
    identity_value,
    locator_message,
    object_value,
    partition_message,
    presence_value,
    scratch_message,
    slice_message,
)
from rsm_plugins.contract.principals import PRINCIPAL_KEY
from rsm_plugins.contract.probe import Capability, ProbeAnswer, check_plugin, probe_value
from rsm_plugins.contract.status import error_of_call, error_of_detail, is_lost_status
from rsm_plugins.contract.streams import Received
from rsm_plugins.contract.tls import Tls
from rsm_plugins.files.segment_files import source_chunk
from rsm_plugins.layout.manifest import check_manifest_size
from rsm_plugins.segment_deletes import delete_each
from rsm_plugins.threads import FINISH_MS, FileThreads
from rsm_plugins.v1 import identity_pb2 as idpb
from rsm_plugins.v1 import storage_pb2 as pb

_CopyCall: TypeAlias = (
    "grpc.aio.StreamUnaryCall[pb.CopyLogSegmentDataRequest, pb.CopyLogSegmentDataResponse]"
)
_FetchCall: TypeAlias = "grpc.aio.UnaryStreamCall[Any, pb.FetchResponse]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Time limits of calls: `copy_ms` for one copy and one whole listing, `call_ms` for all
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
    """The contract over one channel; the caller of `connect` calls `close`."""

    def __init__(
        self,
        channel: RenewedChannel[PluginStubs],
        target: str,
        deadlines: Deadlines,
        principal: str,
        *,
        share: bool,
        needed: Collection[Capability] = (Capability.BYTES,),
        scratch: ScratchSettings | None = None,
    ) -> None:
        self._channel = channel
        self._target = target
        self._deadlines = deadlines
        self._metadata = ((PRINCIPAL_KEY, principal),)
        self._threads = FileThreads()
        calls = VolumeCalls(get_info=self.get_info, check_path=self._check_path)
        self._volume = ClientVolume(calls, self._threads, wanted=share)
        self._scratch = ScratchSlots(scratch or ScratchSettings(), self._threads)
        self._needed = needed

    @classmethod
    def connect(
        cls,
        target: str,
        *,
        principal: str,
        deadlines: Deadlines,
        allow_insecure: bool = False,
        share: bool = True,
        tls: Tls | None = None,
        needed: Collection[Capability] = (Capability.BYTES,),
        scratch: ScratchSettings | None = None,
    ) -> "GrpcRemoteStorageManager":
        """A client of the plugin at `host:port` or `unix:/path`; it dials when first used. Needs a
        running loop.

        Invalid for an address that cannot be parsed, for one that is not private without `tls` or
        `allow_insecure`, and for an empty principal. With `share` False, files are never passed by
        path. `get_info` refuses a plugin that lacks one of `needed`.
        """
        address = Address.parse(target)
        address.require_private(allow_insecure or tls is not None)
        if not principal.isascii() or not principal.isprintable() or not principal:
            raise Invalid(f"principal {principal!r} is not a word of printable ASCII")
        return cls(
            open_plugin(address, tls),
            str(address),
            deadlines,
            principal,
            share=share,
            needed=needed,
            scratch=scratch,
        )

    @property
    def _stubs(self) -> PluginStubs:
        return self._channel.stubs()

    @contextmanager
    def _translated(self, operation: str) -> Iterator[None]:
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise error_of_call(error, f"plugin {self._target}: {operation}") from error
        except TimeoutError as error:
            raise Unavailable(
                f"plugin {self._target}: {operation}: no answer before the deadline"
            ) from error
        except grpc.aio.UsageError as error:
            raise Unavailable(
                f"plugin {self._target}: {operation}: the client is closed"
            ) from error

    # Calls about the plugin.

    async def get_info(self) -> idpb.GetInfoResponse:
        """Name, version and capabilities of the plugin; Invalid if it has another version of the
        contract or lacks a needed capability.
        """
        with self._translated("get info"):
            info = await self._stubs.identity.GetInfo(
                idpb.GetInfoRequest(), timeout=self._deadlines.call_seconds, metadata=self._metadata
            )
        check_plugin(info, self._needed, self._target)
        return info

    async def probe(self, *, inspect: bool = False) -> ProbeAnswer:
        """The health of the store behind the plugin, with findings if wanted; Unavailable if the
        plugin itself does not answer.
        """
        with self._translated("probe"):
            answer = await self._stubs.identity.Probe(
                idpb.ProbeRequest(inspect=inspect),
                timeout=self._deadlines.call_seconds,
                metadata=self._metadata,
            )
        return probe_value(answer)

    async def _check_path(self, request: pb.CheckPathRequest) -> pb.CheckPathResponse:
        with self._translated("check path"):
            return await self._stubs.storage.CheckPath(
                request, timeout=self._deadlines.call_seconds, metadata=self._metadata
            )

    # Implements RemoteStorageManager.

    async def read_identity(self) -> StoreIdentity | None:
        """See RemoteStorageManager."""
        with self._translated("read identity"):
            answer = await self._stubs.storage.ReadIdentity(
                pb.ReadIdentityRequest(),
                timeout=self._deadlines.call_seconds,
                metadata=self._metadata,
            )
        return identity_value(answer.identity) if answer.HasField("identity") else None

    async def create_identity(self, identity: StoreIdentity) -> StoreIdentity:
        """See RemoteStorageManager."""
        request = pb.CreateIdentityRequest(identity=identity_message(identity))
        with self._translated("create identity"):
            answer = await self._stubs.storage.CreateIdentity(
                request, timeout=self._deadlines.call_seconds, metadata=self._metadata
            )
        return identity_value(answer.identity)

    async def copy_log_segment_data(self, locator: SegmentLocator, data: LogSegmentData) -> bytes:
        """See RemoteStorageManager; Fenced where the file to copy is gone or cut short."""
        by_path = await self._volume.plugin_sees(data.log)
        call = self._stubs.storage.CopyLogSegmentData(
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
        """A plugin may answer before everything was sent. Its status has the reason, unless it is
        lost.
        """
        try:
            yield
        except asyncio.InvalidStateError:
            return  # the status has arrived: awaiting the call raises it
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
            end_offset=data.end_offset,
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
            await self._stubs.storage.WriteManifest(
                request, timeout=self._deadlines.call_seconds, metadata=self._metadata
            )

    async def read_manifest(self, locator: SegmentLocator) -> bytes:
        """See RemoteStorageManager."""
        request = pb.ReadManifestRequest(locator=locator_message(locator))
        with self._translated(f"read manifest of {locator.segment_id}"):
            answer = await self._stubs.storage.ReadManifest(
                request, timeout=self._deadlines.call_seconds, metadata=self._metadata
            )
        return bytes(answer.manifest)

    async def fetch_log_segment(
        self, locator: SegmentLocator, byte_range: ByteRange
    ) -> bytes | FileSlice:
        """See RemoteStorageManager; a slice of a scratch file is overwritten after its keeper's
        end.
        """
        request = pb.FetchLogSegmentRequest(
            locator=locator_message(locator),
            start=byte_range.start,
            end=byte_range.end,
            shared_volume_nonce=await self._volume.nonce(),
        )
        operation = f"fetch {locator.segment_id}"
        if not await self._volume.offers_scratch():
            received = await self._fetched(request, operation, byte_range.size_bytes)
            return received.result()
        async with self._scratch.slot(byte_range.size_bytes) as slot:
            if slot is not None:
                request.scratch.CopyFrom(scratch_message(slot.file))
            received = await self._fetched(request, operation, byte_range.size_bytes)
            size_bytes = received.scratch_bytes()
            if slot is None or size_bytes is None:
                return received.result()
            return self._scratch.lent(slot, size_bytes)

    async def _fetched(
        self, request: pb.FetchLogSegmentRequest, operation: str, max_bytes: int
    ) -> Received:
        call = self._stubs.storage.FetchLogSegment(
            request, timeout=self._deadlines.call_seconds, metadata=self._metadata
        )
        may_be_slice = bool(request.shared_volume_nonce)
        return await self._collect(call, operation, max_bytes, may_be_slice=may_be_slice)

    async def fetch_indexes(self, locator: SegmentLocator) -> bytes:
        """See RemoteStorageManager."""
        call = self._stubs.storage.FetchIndexes(
            pb.FetchIndexesRequest(locator=locator_message(locator)),
            timeout=self._deadlines.call_seconds,
            metadata=self._metadata,
        )
        return await self._collect_bytes(call, f"fetch indexes of {locator.segment_id}")

    async def _collect_bytes(self, call: _FetchCall, operation: str) -> bytes:
        found = (await self._collect(call, operation, INDEXES_MAX_BYTES)).result()
        if isinstance(found, FileSlice):
            raise Invalid(f"plugin {self._target}: {operation}: a file was answered, not bytes")
        return found

    async def _collect(
        self, call: _FetchCall, operation: str, max_bytes: int, *, may_be_slice: bool = False
    ) -> Received:
        received = Received(
            operation=f"plugin {self._target}: {operation}",
            max_bytes=max_bytes,
            may_be_slice=may_be_slice,
        )
        try:
            with self._translated(operation):
                async for response in call:
                    received.add(response)
        finally:
            call.cancel()
        self._volume.saw_instance(received.instance)
        return received

    async def stat(self, segments: Sequence[ExpectedSegment]) -> tuple[SegmentPresence, ...]:
        """See RemoteStorageManager; asked in parts of 1000."""
        found: list[SegmentPresence] = []
        for start in range(0, len(segments), STAT_MAX_SEGMENTS):
            part = segments[start : start + STAT_MAX_SEGMENTS]
            request = pb.StatRequest(segments=[expected_message(segment) for segment in part])
            with self._translated("stat"):
                answer = await self._stubs.storage.Stat(
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
        call = self._stubs.storage.ListObjects(
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
            await self._stubs.storage.DeleteLogSegmentData(
                request, timeout=self._deadlines.call_seconds, metadata=self._metadata
            )

    async def delete_log_segments(
        self, locators: Sequence[SegmentLocator]
    ) -> tuple[RemoteStorageError | None, ...]:
        """See RemoteStorageManager; asked in parts of 1000, each of which must be answered within
        `call_ms`, and one by one where the plugin cannot delete many.
        """
        info = await self.get_info()
        if Capability.BATCH_DELETE.value not in info.capabilities:
            return await self._delete_each(locators)
        found: list[RemoteStorageError | None] = []
        for start in range(0, len(locators), DELETE_MAX_SEGMENTS):
            found.extend(await self._delete_part(locators[start : start + DELETE_MAX_SEGMENTS]))
        return tuple(found)

    async def _delete_part(
        self, locators: Sequence[SegmentLocator]
    ) -> Sequence[RemoteStorageError | None]:
        request = pb.DeleteLogSegmentsRequest(
            segments=[locator_message(locator) for locator in locators]
        )
        with self._translated(f"delete {len(locators)} segments"):
            answer = await self._stubs.storage.DeleteLogSegments(
                request, timeout=self._deadlines.call_seconds, metadata=self._metadata
            )
        if not answer.segments:  # of an earlier version, which does not answer for each
            return await self._delete_each(locators)
        if len(answer.segments) != len(locators):
            raise Invalid(
                f"plugin {self._target}: delete: {len(answer.segments)} of {len(locators)} answered"
            )
        return [
            error_of_detail(segment.error) if segment.HasField("error") else None
            for segment in answer.segments
        ]

    async def _delete_each(
        self, locators: Sequence[SegmentLocator]
    ) -> tuple[RemoteStorageError | None, ...]:
        """Once the store is away, it is not asked any more."""
        away: Unavailable | None = None

        async def delete_one(locator: SegmentLocator) -> None:
            nonlocal away
            if away is not None:
                raise away
            try:
                await self.delete_log_segment_data(locator)
            except Unavailable as error:
                away = error
                raise

        return await delete_each(delete_one, locators)

    async def inspect(self) -> tuple[StoreFinding, ...]:
        """See RemoteStorageManager; empty where the plugin lacks the capability."""
        return (await self.probe(inspect=True)).findings

    async def close(self) -> None:
        """See RemoteStorageManager; calls still running are cancelled."""
        await self._channel.close()
        await self._threads.finish(FINISH_MS)
        self._scratch.close()
