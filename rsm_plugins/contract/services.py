"""The two gRPC services of a plugin over any RemoteStorageManager.

They convert messages to values and results back to messages. They must not know which store is
behind the manager, nor how the server listens.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from kip405.contracts import RemoteStorageManager
from kip405.crc import ByteBuffer
from kip405.errors import Corrupt, Invalid, RemoteStorageError, Unavailable
from kip405.segments import FileSlice, Layout
from kip405.v1 import errors_pb2
from rsm_plugins.contract.answering import Answering, Context, without_secrets
from rsm_plugins.contract.messages import (
    CHUNK_BYTES,
    CONTRACT_VERSION,
    DELETE_MAX_SEGMENTS,
    LIST_PAGE_OBJECTS,
    STAT_MAX_SEGMENTS,
    expected_value,
    identity_message,
    identity_value,
    locator_value,
    object_message,
    partition_value,
    presence_message,
    range_value,
    scratch_value,
    slice_message,
    slice_value,
)
from rsm_plugins.contract.probe import LAYOUT_CAPABILITIES, finding_message
from rsm_plugins.contract.status import detail_of_error
from rsm_plugins.contract.streams import receive_copy
from rsm_plugins.files.segment_files import Spool, put
from rsm_plugins.files.shared_volume import CallersFolders, ProbeFile, read_chunk, read_head
from rsm_plugins.threads import FileThreads
from rsm_plugins.v1 import identity_pb2 as idpb
from rsm_plugins.v1 import identity_pb2_grpc, storage_pb2_grpc
from rsm_plugins.v1 import storage_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginInfo:
    """The content of GetInfo; `instance` is new at each start of the process."""

    name: str
    version: str
    store_uri: str
    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What the services work with; their creator closes it."""

    manager: RemoteStorageManager
    info: PluginInfo
    threads: FileThreads
    spool: Spool
    # None: fetched ranges are always sent as bytes.
    probe_file: ProbeFile | None = None
    source_folders: CallersFolders = field(default_factory=lambda: CallersFolders(None))
    # None: scratch files are never used.
    scratch_folders: CallersFolders | None = None
    # Layouts that the manager copies and reads.
    layouts: frozenset[Layout] = frozenset({Layout.KAFKA})
    # Masked in every text that a caller receives.
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def capabilities(self) -> list[idpb.Capability]:
        found = [
            idpb.CAPABILITY_BYTES,
            idpb.CAPABILITY_INSPECT,
            idpb.CAPABILITY_BATCH_DELETE,
        ]
        if self.probe_file is not None:
            found.append(idpb.CAPABILITY_SHARED_VOLUME)
        if self.scratch_folders is not None:
            found.append(idpb.CAPABILITY_SCRATCH)
        found += [LAYOUT_CAPABILITIES[one].value for one in sorted(self.layouts - {Layout.KAFKA})]
        return found


class IdentityService(identity_pb2_grpc.IdentityServicer):
    """rsm_plugins.v1.Identity."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._answering = partial(Answering, secrets=dependencies.secrets)

    async def GetInfo(self, request: idpb.GetInfoRequest, context: Context) -> idpb.GetInfoResponse:
        info, probe_file = self._dependencies.info, self._dependencies.probe_file
        async with self._answering(context, "get info"):
            path = (
                None
                if probe_file is None
                else await self._dependencies.threads.run(probe_file.ensure)
            )
            shared = None
            if probe_file is not None and path is not None:
                shared = idpb.SharedVolumeProbe(path=path, nonce=probe_file.nonce)
            return idpb.GetInfoResponse(
                name=info.name,
                version=info.version,
                contract_version=CONTRACT_VERSION,
                capabilities=self._dependencies.capabilities,
                store_uri=info.store_uri,
                shared_volume=shared,
                instance=info.instance,
            )

    async def Probe(self, request: idpb.ProbeRequest, context: Context) -> idpb.ProbeResponse:
        async with self._answering(context, "probe"):
            answer = await self._health()
            if request.inspect:
                findings = await self._dependencies.manager.inspect()
                answer.findings.extend(finding_message(finding) for finding in findings)
            return answer

    async def _health(self) -> idpb.ProbeResponse:
        try:
            identity = await self._dependencies.manager.read_identity()
        except RemoteStorageError as error:
            problem = detail_of_error(without_secrets(error, self._dependencies.secrets))
            return idpb.ProbeResponse(
                state=idpb.ProbeResponse.STATE_UNHEALTHY, detail=problem.what, problem=problem
            )
        detail = (
            "store without identity object" if identity is None else f"store {identity.store_id}"
        )
        return idpb.ProbeResponse(state=idpb.ProbeResponse.STATE_READY, detail=detail)


class StorageService(storage_pb2_grpc.StorageServicer):
    """rsm_plugins.v1.Storage."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._manager = dependencies.manager
        self._answering = partial(Answering, secrets=dependencies.secrets)

    async def ReadIdentity(
        self, request: pb.ReadIdentityRequest, context: Context
    ) -> pb.ReadIdentityResponse:
        async with self._answering(context, "read identity"):
            identity = await self._manager.read_identity()
            return pb.ReadIdentityResponse(
                identity=None if identity is None else identity_message(identity)
            )

    async def CreateIdentity(
        self, request: pb.CreateIdentityRequest, context: Context
    ) -> pb.CreateIdentityResponse:
        async with self._answering(context, "create identity"):
            identity = await self._manager.create_identity(identity_value(request.identity))
            return pb.CreateIdentityResponse(identity=identity_message(identity))

    async def CopyLogSegmentData(
        self, request_iterator: AsyncIterator[pb.CopyLogSegmentDataRequest], context: Context
    ) -> pb.CopyLogSegmentDataResponse:
        dependencies = self._dependencies
        async with self._answering(context, "copy log segment data"):
            metadata = await receive_copy(
                request_iterator, self._manager, dependencies.spool, dependencies.source_folders
            )
            return pb.CopyLogSegmentDataResponse(plugin_metadata=metadata)

    async def WriteManifest(
        self, request: pb.WriteManifestRequest, context: Context
    ) -> pb.WriteManifestResponse:
        async with self._answering(context, "write manifest"):
            await self._manager.write_manifest(locator_value(request.locator), request.manifest)
            return pb.WriteManifestResponse()

    async def ReadManifest(
        self, request: pb.ReadManifestRequest, context: Context
    ) -> pb.ReadManifestResponse:
        async with self._answering(context, "read manifest"):
            manifest = await self._manager.read_manifest(locator_value(request.locator))
            return pb.ReadManifestResponse(manifest=manifest)

    async def FetchLogSegment(
        self, request: pb.FetchLogSegmentRequest, context: Context
    ) -> AsyncIterator[pb.FetchResponse]:
        async with self._answering(context, "fetch log segment"):
            locator, byte_range = (
                locator_value(request.locator),
                range_value(request.start, request.end),
            )
            found = await self._manager.fetch_log_segment(locator, byte_range)
            if not isinstance(found, FileSlice):
                if await self._put(request, found):
                    yield self._header(len(found), in_scratch=True)
                    return
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
                # Deleted between two chunks, or the store is unreachable: the manager knows which.
                await self._manager.fetch_log_segment(locator, byte_range)
                raise Unavailable(f"{locator.segment_id} was replaced while it was read") from error

    async def _put(self, request: pb.FetchLogSegmentRequest, data: ByteBuffer) -> bool:
        """Whether the bytes are in the caller's scratch file now."""
        folders = self._dependencies.scratch_folders
        if folders is None or not data or not request.HasField("scratch"):
            return False
        scratch = scratch_value(request.scratch)
        return folders.allows(scratch.path) and await self._dependencies.threads.run(
            put, scratch, data
        )

    def _accepts_slice(self, nonce: str) -> bool:
        return (
            self._dependencies.probe_file is not None
            and nonce == self._dependencies.probe_file.nonce
        )

    async def FetchIndexes(
        self, request: pb.FetchIndexesRequest, context: Context
    ) -> AsyncIterator[pb.FetchResponse]:
        async with self._answering(context, "fetch indexes"):
            found = await self._manager.fetch_indexes(locator_value(request.locator))
            async for response in self._chunks(found):
                yield response

    def _header(
        self, size_bytes: int, file_slice: FileSlice | None = None, *, in_scratch: bool = False
    ) -> pb.FetchResponse:
        header = pb.FetchHeader(
            size_bytes=size_bytes,
            file_slice=None if file_slice is None else slice_message(file_slice),
            instance=self._dependencies.info.instance,
            in_scratch=in_scratch,
        )
        return pb.FetchResponse(header=header)

    async def _chunks(self, data: ByteBuffer) -> AsyncIterator[pb.FetchResponse]:
        yield self._header(len(data))
        for position in range(0, len(data), CHUNK_BYTES):
            yield pb.FetchResponse(chunk=bytes(data[position : position + CHUNK_BYTES]))

    async def _slice_chunks(self, file_slice: FileSlice) -> AsyncIterator[pb.FetchResponse]:
        yield self._header(file_slice.size_bytes)
        sent = 0
        while sent < file_slice.size_bytes:
            size_bytes = min(CHUNK_BYTES, file_slice.size_bytes - sent)
            chunk = await self._dependencies.threads.run(
                read_chunk, file_slice.path, file_slice.position + sent, size_bytes
            )
            if len(chunk) != size_bytes:
                raise Corrupt(f"{file_slice.path} became shorter while it was read")
            yield pb.FetchResponse(chunk=chunk)
            sent += size_bytes

    async def Stat(self, request: pb.StatRequest, context: Context) -> pb.StatResponse:
        async with self._answering(context, "stat"):
            _check_count(len(request.segments), STAT_MAX_SEGMENTS)
            found = await self._manager.stat(
                [expected_value(segment) for segment in request.segments]
            )
            return pb.StatResponse(segments=[presence_message(presence) for presence in found])

    async def ListObjects(
        self, request: pb.ListObjectsRequest, context: Context
    ) -> AsyncIterator[pb.ListObjectsResponse]:
        async with self._answering(context, "list objects"):
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
        async with self._answering(context, "delete log segment data"):
            await self._manager.delete_log_segment_data(locator_value(request.locator))
            return pb.DeleteLogSegmentDataResponse()

    async def DeleteLogSegments(
        self, request: pb.DeleteLogSegmentsRequest, context: Context
    ) -> pb.DeleteLogSegmentsResponse:
        async with self._answering(context, "delete log segments"):
            _check_count(len(request.segments), DELETE_MAX_SEGMENTS)
            errors = await self._manager.delete_log_segments(
                [locator_value(segment) for segment in request.segments]
            )
            return pb.DeleteLogSegmentsResponse(
                segments=[pb.DeletedSegment(error=self._detail(error)) for error in errors]
            )

    def _detail(self, error: RemoteStorageError | None) -> errors_pb2.ErrorDetail | None:
        if error is None:
            return None
        return detail_of_error(without_secrets(error, self._dependencies.secrets))

    async def CheckPath(
        self, request: pb.CheckPathRequest, context: Context
    ) -> pb.CheckPathResponse:
        async with self._answering(context, "check path"):
            file_slice, instance = slice_value(request.file), self._dependencies.info.instance
            if not self._dependencies.source_folders.allows(file_slice.path):
                return pb.CheckPathResponse(readable=False, instance=instance)
            try:
                head = await self._dependencies.threads.run(read_head, file_slice)
            except OSError:
                return pb.CheckPathResponse(readable=False, instance=instance)
            return pb.CheckPathResponse(
                readable=True,
                file_size_bytes=head.file_size_bytes,
                head_crc32c=head.head_crc32c,
                instance=instance,
            )


def _check_count(count: int, most: int) -> None:
    if count > most:
        raise Invalid(f"{count} segments in one call, at most {most}")
