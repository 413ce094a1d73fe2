"""The two services of a plugin over any RemoteStorageManager: messages in, values out, messages
back.

Must not know which store is behind the manager, nor how the server listens.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from kip405.contracts import RemoteStorageManager
from kip405.errors import Corrupt, Invalid, Unavailable
from kip405.segments import FileSlice
from rsm_plugins.calls import Answering, Context
from rsm_plugins.copy_stream import receive_copy
from rsm_plugins.file_threads import FileThreads
from rsm_plugins.messages import (
    CHUNK_BYTES,
    CONTRACT_VERSION,
    LIST_PAGE_OBJECTS,
    STAT_MAX_SEGMENTS,
    expected_value,
    identity_message,
    identity_value,
    index_type_value,
    locator_value,
    object_message,
    partition_value,
    presence_message,
    range_value,
    slice_message,
    slice_value,
)
from rsm_plugins.shared_volume import ProbeFile, SourceFolders, read_chunk, read_head
from rsm_plugins.spool import Spool
from rsm_plugins.v1 import identity_pb2 as idpb
from rsm_plugins.v1 import identity_pb2_grpc, storage_pb2_grpc
from rsm_plugins.v1 import storage_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginInfo:
    """What GetInfo answers; `instance` is fresh at each start of the process."""

    name: str
    version: str
    store_uri: str
    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the services work with; closed by the one who made them."""

    manager: RemoteStorageManager
    info: PluginInfo
    threads: FileThreads
    spool: Spool
    # None: fetched ranges always travel as bytes.
    probe_file: ProbeFile | None = None
    source_folders: SourceFolders = field(default_factory=lambda: SourceFolders(None))


class IdentityService(identity_pb2_grpc.IdentityServicer):
    """rsm_plugins.v1.Identity."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def GetInfo(self, request: idpb.GetInfoRequest, context: Context) -> idpb.GetInfoResponse:
        info, probe_file = self._parts.info, self._parts.probe_file
        async with Answering(context, "get info"):
            path = None if probe_file is None else await self._parts.threads.run(probe_file.ensure)
            capabilities = [idpb.CAPABILITY_BYTES]
            if probe_file is not None:
                capabilities.append(idpb.CAPABILITY_SHARED_VOLUME)
            shared = None
            if probe_file is not None and path is not None:
                shared = idpb.SharedVolumeProbe(path=path, nonce=probe_file.nonce)
            return idpb.GetInfoResponse(
                name=info.name,
                version=info.version,
                contract_version=CONTRACT_VERSION,
                capabilities=capabilities,
                store_uri=info.store_uri,
                shared_volume=shared,
                instance=info.instance,
            )

    async def Probe(self, request: idpb.ProbeRequest, context: Context) -> idpb.ProbeResponse:
        async with Answering(context, "probe"):
            identity = await self._parts.manager.read_identity()
            detail = (
                "store without identity object"
                if identity is None
                else f"store {identity.store_id}"
            )
            return idpb.ProbeResponse(state=idpb.ProbeResponse.STATE_READY, detail=detail)


class StorageService(storage_pb2_grpc.StorageServicer):
    """rsm_plugins.v1.Storage."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._manager = parts.manager

    async def ReadIdentity(
        self, request: pb.ReadIdentityRequest, context: Context
    ) -> pb.ReadIdentityResponse:
        async with Answering(context, "read identity"):
            identity = await self._manager.read_identity()
            return pb.ReadIdentityResponse(
                identity=None if identity is None else identity_message(identity)
            )

    async def CreateIdentity(
        self, request: pb.CreateIdentityRequest, context: Context
    ) -> pb.CreateIdentityResponse:
        async with Answering(context, "create identity"):
            identity = await self._manager.create_identity(identity_value(request.identity))
            return pb.CreateIdentityResponse(identity=identity_message(identity))

    async def CopyLogSegmentData(
        self, request_iterator: AsyncIterator[pb.CopyLogSegmentDataRequest], context: Context
    ) -> pb.CopyLogSegmentDataResponse:
        parts = self._parts
        async with Answering(context, "copy log segment data"):
            metadata = await receive_copy(
                request_iterator, self._manager, parts.spool, parts.source_folders
            )
            return pb.CopyLogSegmentDataResponse(plugin_metadata=metadata)

    async def WriteManifest(
        self, request: pb.WriteManifestRequest, context: Context
    ) -> pb.WriteManifestResponse:
        async with Answering(context, "write manifest"):
            await self._manager.write_manifest(locator_value(request.locator), request.manifest)
            return pb.WriteManifestResponse()

    async def ReadManifest(
        self, request: pb.ReadManifestRequest, context: Context
    ) -> pb.ReadManifestResponse:
        async with Answering(context, "read manifest"):
            manifest = await self._manager.read_manifest(locator_value(request.locator))
            return pb.ReadManifestResponse(manifest=manifest)

    async def FetchLogSegment(
        self, request: pb.FetchLogSegmentRequest, context: Context
    ) -> AsyncIterator[pb.FetchResponse]:
        async with Answering(context, "fetch log segment"):
            locator, byte_range = (
                locator_value(request.locator),
                range_value(request.start, request.end),
            )
            found = await self._manager.fetch_log_segment(locator, byte_range)
            if isinstance(found, bytes):
                stream = self._chunks(found)
            elif self._accepts_slice(request.shared_volume_nonce):
                yield self._header(found.size_bytes, found)
                return
            else:
                stream = self._slice_chunks(found)
            try:
                async for response in stream:
                    yield response
            except FileNotFoundError as error:
                # Deleted between two chunks, or the store is away: the manager knows which.
                await self._manager.fetch_log_segment(locator, byte_range)
                raise Unavailable(f"{locator.segment_id} was replaced while it was read") from error

    def _accepts_slice(self, nonce: str) -> bool:
        return self._parts.probe_file is not None and nonce == self._parts.probe_file.nonce

    async def FetchIndexes(
        self, request: pb.FetchIndexesRequest, context: Context
    ) -> AsyncIterator[pb.FetchResponse]:
        async with Answering(context, "fetch indexes"):
            found = await self._manager.fetch_indexes(locator_value(request.locator))
            async for response in self._chunks(found):
                yield response

    async def FetchIndex(
        self, request: pb.FetchIndexRequest, context: Context
    ) -> AsyncIterator[pb.FetchResponse]:
        async with Answering(context, "fetch index"):
            index_type = index_type_value(request.index_type)
            found = await self._manager.fetch_index(locator_value(request.locator), index_type)
            async for response in self._chunks(found):
                yield response

    def _header(self, size_bytes: int, file_slice: FileSlice | None = None) -> pb.FetchResponse:
        message = None if file_slice is None else slice_message(file_slice)
        header = pb.FetchHeader(
            size_bytes=size_bytes, file_slice=message, instance=self._parts.info.instance
        )
        return pb.FetchResponse(header=header)

    async def _chunks(self, data: bytes) -> AsyncIterator[pb.FetchResponse]:
        yield self._header(len(data))
        for position in range(0, len(data), CHUNK_BYTES):
            yield pb.FetchResponse(chunk=data[position : position + CHUNK_BYTES])

    async def _slice_chunks(self, file_slice: FileSlice) -> AsyncIterator[pb.FetchResponse]:
        yield self._header(file_slice.size_bytes)
        sent = 0
        while sent < file_slice.size_bytes:
            size_bytes = min(CHUNK_BYTES, file_slice.size_bytes - sent)
            chunk = await self._parts.threads.run(
                read_chunk, file_slice.path, file_slice.position + sent, size_bytes
            )
            if len(chunk) != size_bytes:
                raise Corrupt(f"{file_slice.path} became shorter while it was read")
            yield pb.FetchResponse(chunk=chunk)
            sent += size_bytes

    async def Stat(self, request: pb.StatRequest, context: Context) -> pb.StatResponse:
        async with Answering(context, "stat"):
            if len(request.segments) > STAT_MAX_SEGMENTS:
                raise Invalid(
                    f"{len(request.segments)} segments in one call, at most {STAT_MAX_SEGMENTS}"
                )
            found = await self._manager.stat(
                [expected_value(segment) for segment in request.segments]
            )
            return pb.StatResponse(segments=[presence_message(presence) for presence in found])

    async def ListObjects(
        self, request: pb.ListObjectsRequest, context: Context
    ) -> AsyncIterator[pb.ListObjectsResponse]:
        async with Answering(context, "list objects"):
            partition = (
                partition_value(request.partition) if request.HasField("partition") else None
            )
            page: list[pb.StoredObject] = []
            async for found in self._manager.list_objects(request.cluster_id, partition):
                page.append(object_message(found))
                if len(page) == LIST_PAGE_OBJECTS:
                    yield pb.ListObjectsResponse(objects=page)
                    page = []
            if page:
                yield pb.ListObjectsResponse(objects=page)

    async def DeleteLogSegmentData(
        self, request: pb.DeleteLogSegmentDataRequest, context: Context
    ) -> pb.DeleteLogSegmentDataResponse:
        async with Answering(context, "delete log segment data"):
            await self._manager.delete_log_segment_data(locator_value(request.locator))
            return pb.DeleteLogSegmentDataResponse()

    async def CheckPath(
        self, request: pb.CheckPathRequest, context: Context
    ) -> pb.CheckPathResponse:
        async with Answering(context, "check path"):
            file_slice, instance = slice_value(request.file), self._parts.info.instance
            if not self._parts.source_folders.allows(file_slice.path):
                return pb.CheckPathResponse(readable=False, instance=instance)
            try:
                head = await self._parts.threads.run(read_head, file_slice)
            except OSError:
                return pb.CheckPathResponse(readable=False, instance=instance)
            return pb.CheckPathResponse(
                readable=True,
                file_size_bytes=head.file_size_bytes,
                head_crc32c=head.head_crc32c,
                instance=instance,
            )
