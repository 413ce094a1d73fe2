"""A bucket as Pinterest's uploader leaves it, in a directory, and an import of it into a store."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kip405.batches import batch_headers
from kip405.ids import Uuid
from kip405.rebuilt_indexes import IndexBuilder
from rlm.imports.partition import Imported
from rlm.imports.run import BucketImport, ImportChoices, ImportReports
from rlm.plans.pinterest_import import ImportPlan
from rsm_plugins.layout.pinterest import PinterestLayout
from rsm_plugins.local.manager import LocalRemoteStorageManager
from rsm_plugins.pinterest.local_objects import LocalUploadedObjects
from rsm_plugins.pinterest.manager import ImportingRemoteStorageManager
from rsm_plugins.threads import FileThreads
from tests.builders.clock import ManualClock
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.store import STORE_ID

CLUSTER = "their-cluster"
TOPIC = "clicks"
BITS = 3
UPLOADED_S = 1_700_000_000
PREFIX = "kafka/tiered"
LAYOUT = PinterestLayout(cluster=CLUSTER, entropy_bits=BITS)


def indexes_of(base_offset: int, log: bytes) -> tuple[bytes, bytes]:
    """Offset and time index of a log."""
    builder = IndexBuilder(base_offset)
    for position, header in batch_headers(log):
        builder.add(position, header)
    return builder.finish()


@dataclass(frozen=True, slots=True)
class TheirBucket:
    """The objects below `root/PREFIX`."""

    root: Path
    topic: str = TOPIC
    partition: int = 0

    @property
    def folder(self) -> Path:
        return self.root / PREFIX / LAYOUT.folder(self.topic, self.partition)

    def file(self, base_offset: int, suffix: str = "log") -> Path:
        return self.folder / f"{base_offset:020d}.{suffix}"

    def upload(self, base_offset: int, log: bytes) -> None:
        """As their uploader does: three files, then the watermark."""
        self.put(base_offset, log)
        self.watermark(base_offset)

    def put(self, base_offset: int, log: bytes) -> None:
        """The three files alone."""
        self.folder.mkdir(parents=True, exist_ok=True)
        offsets, times = indexes_of(base_offset, log)
        for suffix, data in (("log", log), ("index", offsets), ("timeindex", times)):
            file = self.file(base_offset, suffix)
            file.write_bytes(data)
            os.utime(file, (UPLOADED_S, UPLOADED_S))  # times of objects are part of the result

    def watermark(self, base_offset: int) -> None:
        (self.folder / "offset.wm").write_text(f"{base_offset:020d}")

    def content(self) -> Mapping[str, bytes]:
        """Everything that is in it."""
        return {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for path in self.root.rglob("*")
            if path.is_file()
        }


def upload_all(bucket: TheirBucket, *logs: bytes) -> None:
    """Each log as a segment that begins with its first batch."""
    for log in logs:
        bucket.upload(next(batch_headers(log))[1].base_offset, log)


@dataclass(slots=True)
class ImportSite:
    """Our store below `folder/store`, which need not be there yet, and their bucket."""

    folder: Path
    bucket: TheirBucket = field(init=False)
    progress: list[Imported] = field(default_factory=list)
    planned: list[ImportPlan] = field(default_factory=list)
    _made: int = 0

    def __post_init__(self) -> None:
        self.bucket = TheirBucket(self.folder / "bucket")
        self.root.mkdir(exist_ok=True)

    @property
    def root(self) -> Path:
        return self.folder / "store"

    def own(self) -> LocalRemoteStorageManager:
        return LocalRemoteStorageManager(self.root, shared=False)

    def uploaded(self) -> LocalUploadedObjects:
        return LocalUploadedObjects(self.bucket.root, PREFIX, FileThreads())

    def store(self, layout: PinterestLayout = LAYOUT) -> ImportingRemoteStorageManager:
        return ImportingRemoteStorageManager(self.own(), layout, self.uploaded())

    def work(
        self,
        store: ImportingRemoteStorageManager | None = None,
        *,
        topics: Sequence[str] = (),
        topic_id: Uuid | None = None,
        accepts_gaps: bool = False,
    ) -> BucketImport:
        choices = ImportChoices(
            topics={topic: topic_id for topic in topics},
            cluster_id=CLUSTER_ID,
            accepts_gaps=accepts_gaps,
        )
        return BucketImport(
            store or self.store(),
            choices,
            software="tests",
            clock=ManualClock(),
            new_uuid=self._new_uuid,
        )

    def _new_uuid(self) -> Uuid:
        """That of the store, as long as it has none."""
        self._made += 1
        has_own = any(self.root.rglob("rlm-store.json"))
        return Uuid(self._made.to_bytes(16)) if has_own else STORE_ID

    async def run(self, work: BucketImport | None = None) -> list[Imported]:
        reports = ImportReports(planned=self.planned.extend, progress=self.progress.append)
        return await (work or self.work()).run(reports)

    def content(self) -> Mapping[str, bytes]:
        """Everything that is in our store."""
        return {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for path in self.root.rglob("*")
            if path.is_file()
        }
