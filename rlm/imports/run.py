"""Imports a bucket of Pinterest's uploader: finds partitions and what is done, then each in turn.

Their objects are listed once. Our store says which segments were imported before, so that the same
command continues after an interruption, and takes what has been uploaded since.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kip405.contracts import StoreIdentity
from kip405.errors import Corrupt, Invalid, NotFound, RemoteStorageError
from kip405.ids import TopicIdPartition, Uuid
from kip405.segments import RemoteLogSegmentMetadata
from rlm.clock import Clock
from rlm.imports.partition import Imported, ImportTarget, PartitionImport
from rlm.plans.pinterest_import import (
    FoundSegment,
    ImportPlan,
    derived_topic_id,
    in_words,
    plan_import,
)
from rlm.tasks.store_survey import StoreSurveyor
from rsm_plugins.layout.pinterest import (
    LOG,
    WATERMARK,
    UploadedName,
    parse_file,
    parse_folder,
    parse_name,
    parse_watermark,
)
from rsm_plugins.pinterest.manager import ImportingRemoteStorageManager

_MOST_SEEN = 1_000
"""Objects that are looked at for a message; a listing of S3 has as many."""
Segments = Mapping[TopicIdPartition, Mapping[int, RemoteLogSegmentMetadata]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportChoices:
    """What the operator has chosen. `topics`: names with their ids in our cluster, None = derived;
    empty = all topics. `partition`: only this one. `cluster_id`: None = the store's own.
    """

    topics: Mapping[str, Uuid | None] = field(default_factory=dict)
    partition: int | None = None
    cluster_id: str | None = None
    accepts_gaps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReports:
    """Where progress goes: the plans once, then each partition with every segment."""

    planned: Callable[[Sequence[ImportPlan]], None]
    progress: Callable[[Imported], None]


class BucketImport:
    """One import into one store; `new_uuid` makes the id of a store that has none."""

    def __init__(
        self,
        store: ImportingRemoteStorageManager,
        choices: ImportChoices,
        *,
        software: str,
        clock: Clock,
        new_uuid: Callable[[], Uuid],
    ) -> None:
        self._store = store
        self._choices = choices
        self._software = software
        self._clock = clock
        self._new_uuid = new_uuid

    async def plans(self, identity: StoreIdentity | None) -> tuple[list[ImportPlan], Segments]:
        """What there is to do by partition, and all segments of ours. NotFound: nothing is there,
        or a chosen topic is not.
        """
        imported = await self._imported(identity)
        found, watermarks = await self._found()
        plans: list[ImportPlan] = []
        for (topic, number), segments in sorted(found.items()):
            partition = TopicIdPartition(
                topic_id=self._topic_id(topic), topic=topic, partition=number
            )
            name = watermarks.get((topic, number))
            try:
                watermark = None if name is None else await self._watermark(name)
            except Corrupt as error:
                why = f"{error}: have it mended in their bucket"
                plans.append(ImportPlan(partition=partition, watermark=None, refused=why))
                continue
            plans.append(
                plan_import(
                    partition,
                    segments.values(),
                    watermark,
                    imported.get(partition, {}),
                    accepts_gaps=self._choices.accepts_gaps,
                )
            )
        await self._check_found({plan.partition.topic for plan in plans})
        return plans, imported

    async def run(self, reports: ImportReports) -> list[Imported]:
        """Import what is new; a partition that is refused is left out, and one that is stopped by
        its log does not stop others. Unavailable: a store is away. Invalid: ours is another
        cluster's.
        """
        identity = await self._identity()
        plans, imported = await self.plans(identity)
        reports.planned(plans)
        target = ImportTarget(
            cluster_id=identity.cluster_id, store_id=identity.store_id, software=self._software
        )
        done: list[Imported] = []
        for plan in plans:
            if plan.refused is not None:
                continue
            one = PartitionImport(
                self._store,
                target,
                plan,
                tuple(imported.get(plan.partition, {}).values()),
                accepts_gaps=self._choices.accepts_gaps,
                report=reports.progress,
            )
            done.append(await one.run())
        return done

    async def existing_identity(self) -> StoreIdentity | None:
        """The store's identity; Invalid: it is of another cluster than the chosen one."""
        found = await self._store.read_identity()
        chosen = self._choices.cluster_id
        if found is not None and chosen not in (None, found.cluster_id):
            raise Invalid(f"--cluster-id: the store belongs to cluster {found.cluster_id}")
        return found

    async def _identity(self) -> StoreIdentity:
        """Created for the chosen cluster where there is none."""
        found = await self.existing_identity()
        if found is not None:
            return found
        if self._choices.cluster_id is None:
            raise Invalid("the store has no rlm-store.json: --cluster-id says whose it becomes")
        created = await self._store.create_identity(
            StoreIdentity(
                store_id=self._new_uuid(),
                cluster_id=self._choices.cluster_id,
                created_ms=self._clock.now_ms(),
            )
        )
        if created.cluster_id != self._choices.cluster_id:
            raise Invalid(f"--cluster-id: the store belongs to cluster {created.cluster_id}")
        return created

    async def _imported(self, identity: StoreIdentity | None) -> Segments:
        """Every segment that our store has of the topics. Invalid: a manifest cannot be used."""
        if identity is None:
            return {}
        names = {self._topic_id(one): one for one in self._choices.topics}
        surveyor = StoreSurveyor(cluster_id=identity.cluster_id, topic_name=names.get)
        survey = await surveyor.survey(self._store, identity.store_id)
        if survey.unusable_manifests:
            raise Invalid(survey.unusable_manifests[0].why)
        return {
            partition: {one.metadata.start_offset: one.metadata for one in segments}
            for partition, segments in survey.segments.items()
        }

    def _topic_id(self, topic: str) -> Uuid:
        chosen = self._choices.topics.get(topic)
        return chosen or derived_topic_id(self._store.layout.cluster, topic)

    async def _found(
        self,
    ) -> tuple[dict[tuple[str, int], dict[int, FoundSegment]], dict[tuple[str, int], str]]:
        """The segments of each partition, and the names of the watermarks."""
        found: dict[tuple[str, int], dict[int, FoundSegment]] = {}
        watermarks: dict[tuple[str, int], str] = {}
        async for partition, file, name, size_bytes, modified_ms in self._objects():
            if file == WATERMARK:
                watermarks[partition] = name
            uploaded = parse_file(file)
            if uploaded is None:
                continue
            segments = found.setdefault(partition, {})
            segment = segments.setdefault(
                uploaded.base_offset, FoundSegment(base_offset=uploaded.base_offset)
            )
            segment.suffixes.add(uploaded.suffix)
            if uploaded.suffix == LOG:
                segment.size_bytes, segment.modified_ms = size_bytes, modified_ms
        return found, watermarks

    async def _objects(self) -> AsyncIterator[tuple[tuple[str, int], str, str, int, int]]:
        """Partition, file, name, size and time of each object of a chosen partition."""
        layout = self._store.layout
        for folder in layout.listed_folders(self._choices.topics, self._choices.partition):
            async for stored in self._store.uploaded.listed(folder):
                rest, _, file = stored.name.rpartition("/")
                partition = parse_folder(rest.rpartition("/")[2])
                if partition is None or not self._is_chosen(*partition):
                    continue
                if rest == layout.folder(*partition):
                    yield partition, file, stored.name, stored.size_bytes, stored.modified_ms

    def _is_chosen(self, topic: str, partition: int) -> bool:
        choices = self._choices
        return (not choices.topics or topic in choices.topics) and (
            choices.partition in (None, partition)
        )

    async def _watermark(self, name: str) -> int | None:
        try:
            return parse_watermark(await self._store.uploaded.read(name), name)
        except NotFound:
            return None

    async def _check_found(self, topics: set[str]) -> None:
        missing = sorted(set(self._choices.topics) - topics)
        if topics and not missing:
            return
        layout = self._store.layout
        what = f"segment of {missing[0]}" if missing else "segment"
        where = f"of cluster {layout.cluster} with {layout.entropy_bits} bits of entropy"
        try:
            seen = await self._what_is_there()
        except RemoteStorageError as error:  # with the right to list some names only
            seen = f"what it has instead could not be listed: {error}"
        raise NotFound(f"their bucket has no {what} {where}; {seen}")

    async def _what_is_there(self) -> str:
        """What the first objects of their bucket show of settings that would find them."""
        objects, names = 0, set[UploadedName]()
        async for stored in self._store.uploaded.listed(""):
            objects += 1
            parsed = parse_name(stored.name)
            if parsed is not None:
                names.add(parsed)
            if objects == _MOST_SEEN:
                break
        return in_words(self._store.layout, names, objects)
