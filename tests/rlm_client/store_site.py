"""A real local store with segments of one partition, a service's list of them, and its reads."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kip405.batches import batch_headers
from kip405.contracts import StoreIdentity
from kip405.ids import Uuid
from kip405.indexes import AbortedTransaction
from kip405.segments import Layout, RemoteLogSegmentMetadata
from rlm.v1 import fetch_pb2 as pb
from rlm_client.store.opened import OpenStores
from rlm_client.store.options import store_options
from rlm_client.store.reader import StoreReader
from rlmm.ledger_values import decode_value, encode_value
from rsm_plugins.layout.keys import ObjectKind, object_name
from rsm_plugins.layout.pinterest import PinterestLayout
from rsm_plugins.local.manager import LocalRemoteStorageManager
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.remote_segment import store_segment
from tests.builders.store import STORE_ID
from tests.kip405.batch_builder import batch
from tiered_reads.failover import Absent
from tiered_reads.range_reader import Identity, Reading
from tiered_reads.stopping import Stop
from tiered_reads.values import Fetched, TopicPartition

WANTED = TopicPartition(PARTITION.topic, PARTITION.partition)
CHUNK_BYTES = 256


def log_of(start: int, end: int, *, value: bytes = b"value", **options: Any) -> bytes:
    """Batches of up to three records with the offsets [start, end)."""
    return b"".join(
        batch(at, min(3, end - at), value=value, **options) for at in range(start, end, 3)
    )


@dataclass(slots=True)
class Site:
    """`listed`: rows of what a service lists, `log`: what it reads itself. `refusal`: what it says
    instead of a list; `asked` and `read`: the offsets that it was asked for. `hole`: offsets that
    nothing has; as a service, it says no more of them than was asked for.
    """

    root: Path
    listed: list[pb.ReadableSegment] = field(default_factory=list)
    log: list[bytes] = field(default_factory=list)
    log_start: int = 0
    hole: tuple[int, int] = (0, 0)
    is_older: bool = False
    refusal: Exception | None = None
    asked: list[int] = field(default_factory=list)
    read_at: list[int] = field(default_factory=list)
    name: str = "remote tier"

    @property
    def store(self) -> LocalRemoteStorageManager:
        return LocalRemoteStorageManager(self.root, pinterest=PinterestLayout(cluster="theirs"))

    def options(self, **options: Any) -> dict[str, Any]:
        rows = {"rsm.config.root": str(self.root), "rsm.config.pinterest.cluster": "theirs"}
        return {"stores": {"plugin": "local", **rows}, **options}

    def prepare(self, store_id: Uuid = STORE_ID) -> None:
        self.root.mkdir(exist_ok=True)
        identity = StoreIdentity(store_id=store_id, cluster_id=CLUSTER_ID, created_ms=0)
        asyncio.run(self.store.create_identity(identity))

    def add(
        self,
        number: int,
        log: bytes,
        *,
        next_offset: int | None = None,
        shared_end: int | None = None,
        aborted: Sequence[AbortedTransaction] = (),
        layout: Layout = Layout.KAFKA,
        appended: int = 1,
    ) -> RemoteLogSegmentMetadata:
        """Store a segment and list it behind the others, up to `next_offset`."""
        metadata = asyncio.run(
            store_segment(
                self.store,
                self.root.parent,
                log,
                chunk_size_bytes=CHUNK_BYTES,
                aborted=aborted,
                number=number,
                layout=layout,
                index_every=3 if appended == 1 else 1,
                appended=appended,
            )
        )
        self.listed.append(
            pb.ReadableSegment(
                segment_metadata=encode_value(metadata),
                next_offset=metadata.next_offset if next_offset is None else next_offset,
                shared_end_offset=shared_end,
            )
        )
        return metadata

    def path(self, metadata: RemoteLogSegmentMetadata, kind: ObjectKind = ObjectKind.LOG) -> Path:
        return self.root / object_name(metadata.locator(CLUSTER_ID), kind)

    # As a service answers.

    def remote_window(
        self, topic_partition: TopicPartition, topic_id: bytes, start_offset: int, stop: Stop
    ) -> pb.RemoteLog | None:
        self.asked.append(start_offset)
        if self.refusal is not None:
            raise self.refusal
        if self.is_older:
            return None
        rows: list[pb.ReadableSegment] = []
        end = start_offset
        for row in self.listed:
            if row.next_offset <= start_offset:
                continue
            if decode_value(row.segment_metadata).start_offset > end:
                break
            rows.append(row)
            end = row.next_offset
        return pb.RemoteLog(
            cluster_id=CLUSTER_ID,
            topic=PARTITION.topic,
            topic_id=PARTITION.topic_id.raw,
            segments=rows,
            tiers=pb.REMOTE_ONLY,
        )

    def read(self, start_offset: int, end_offset: int, stop: Stop) -> Iterator[Fetched]:
        self.read_at.append(start_offset)
        if start_offset < self.log_start:
            raise Absent("below the log start", next_offset=self.log_start)
        if self.hole[0] <= start_offset < self.hole[1]:
            raise Absent("it does not have it", next_offset=min(self.hole[1], end_offset))
        position = start_offset
        for data in self.log:
            for at, header in batch_headers(data):
                if header.next_offset <= position or header.base_offset >= end_offset:
                    continue
                found = data[at : at + header.size_bytes]
                yield Fetched(batches=found, start_offset=position, next_offset=header.next_offset)
                position = header.next_offset
        if position < end_offset:
            raise Absent(f"ends at {position}", is_certain=False)


def reading(read_committed: bool = False) -> Reading:
    return Reading(
        topic_partition=WANTED,
        identity=Identity(WANTED.topic, PARTITION.topic_id.raw),
        read_committed=read_committed,
        poll_timeout_ms=1_000,
        max_bytes=700,
    )


@dataclass(slots=True)
class Read:
    """What one read gave: pieces, and how it ended."""

    pieces: list[Fetched] = field(default_factory=list)
    absent: Absent | None = None
    taken_bytes: int = -1

    @property
    def data(self) -> bytes:
        return b"".join(bytes(one.batches) for one in self.pieces)

    @property
    def offsets(self) -> list[int]:
        """Of the records that count."""
        return [
            offset
            for piece in self.pieces
            for _, header in batch_headers(bytes(piece.batches))
            for offset in range(header.base_offset, header.next_offset)
            if piece.start_offset <= offset < piece.next_offset
        ]

    @property
    def from_store(self) -> list[int]:
        """Where pieces from the store begin."""
        return [one.start_offset for one in self.pieces if one.is_from_store]


def read(
    site: Site,
    start: int,
    end: int,
    *,
    read_committed: bool = False,
    fresh_ms: int = 60_000,
    between: Any = None,
    opened: OpenStores | None = None,
    **options: Any,
) -> Read:
    """All of a range by a reader of its own; `between` is called after every piece."""
    found = Read()
    stores = opened or OpenStores(store_options(**{**site.options(), **options}))
    reader = StoreReader(
        site,
        stores,
        reading(read_committed),
        PARTITION.topic_id.raw,
        site,
        fresh_ms=fresh_ms,
    )
    try:
        for piece in reader.read(start, end, Stop()):
            before = found.pieces[-1].next_offset if found.pieces else start
            assert piece.start_offset == before, "pieces join"
            found.pieces.append(piece)
            if between is not None:
                between(piece)
    except Absent as absent:
        found.absent = absent
    finally:
        found.taken_bytes = stores.memory.taken_bytes
        stores.close()
    return found
