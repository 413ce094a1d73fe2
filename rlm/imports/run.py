"""Imports a bucket of Pinterest's uploader: finds partitions and what is done, then each in turn.

Their objects are listed once. Our store says which segments were imported before, so that the same
command continues after an interruption, and takes what has been uploaded since.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from kip405.contracts import StoreIdentity
from kip405.errors import Corrupt, Invalid, NotFound, RemoteStorageError
from kip405.ids import PartitionKey, TopicIdPartition, TopicPartition, Uuid
from kip405.segments import RemoteLogSegmentMetadata
from rlm.clock import Clock
from rlm.imports.partition import Imported, ImportTarget, PartitionImport, ends_of, stop_of
from rlm.imports.stops import PartitionStops
from rlm.plans.ledger_rebuild import StoredSegment
from rlm.plans.pinterest_import import (
    FoundSegment,
    ImportPlan,
    derived_topic_id,
    in_words,
    plan_import,
)
from rlm.tasks.store_survey import StoreSurvey, StoreSurveyor, SurveyProgress, UnusableManifest
from rsm_plugins.layout.keys import TOPIC_CUT
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
_VANISHED = (
    "their bucket has nothing of it any more, and it was not imported to its end: have its objects "
    "back and import again, or give readers --accept-history {}, which takes what was imported for "
    "all there is"
)
_PAST_USE = "our {}: have it back, or remove it and import the segment again"


@dataclass(slots=True, kw_only=True)
class OwnPartition:
    """What our store has of one partition: segments by start offset, stops of earlier imports, and
    manifests that cannot be used.
    """

    segments: dict[int, RemoteLogSegmentMetadata] = field(default_factory=dict)
    stops: list[UnusableManifest] = field(default_factory=list)
    unusable: list[UnusableManifest] = field(default_factory=list)

    @property
    def doubtful(self) -> tuple[int, ...]:
        """From where on it is not known what there is."""
        return tuple(one.start_offset for one in (*self.stops, *self.unusable))

    @property
    def partition(self) -> TopicIdPartition | None:
        """By its segments, or by its stops, which have the beginning of a long name only."""
        for one in self.segments.values():
            return one.topic_id_partition
        for stop in self.stops:
            if len(stop.topic_cut) < TOPIC_CUT:
                return TopicIdPartition(
                    topic_id=stop.key.topic_id, topic=stop.topic_cut, partition=stop.key.partition
                )
        return None


Own = Mapping[PartitionKey, OwnPartition]
_NOTHING_OWN = OwnPartition()


class _Tolerant:
    """One manifest that cannot be read is no reason to leave other partitions out."""

    bears_unreadable = True

    def is_known(self, key: PartitionKey, segment_id: Uuid) -> bool:
        return False

    def keep(self, segment: StoredSegment) -> None: ...

    def to_settle(self, found: StoreSurvey) -> tuple[TopicIdPartition, ...]:
        """What is missed is imported again, and stops that are not seen stay."""
        return ()

    def report(self, progress: SurveyProgress) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportChoices:
    """What the operator has chosen. `topics`: names with their ids in our cluster, None = derived;
    empty = all topics. `partition`: only this one. `cluster_id`: None = the store's own.
    `is_growing`: their uploader goes on, so that the end of what is there is no stop.
    """

    topics: Mapping[str, Uuid | None] = field(default_factory=dict)
    partition: int | None = None
    cluster_id: str | None = None
    accepts_gaps: bool = False
    is_growing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReports:
    """Where progress goes: the plans once, then each partition with every segment."""

    planned: Callable[[Sequence[ImportPlan]], None]
    progress: Callable[[Imported], None]


class BucketImport:
    """One import into one store; `new_uuid` makes its id, and that of a store that has none."""

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

    async def plans(self, identity: StoreIdentity | None) -> tuple[list[ImportPlan], Own]:
        """What there is to do by partition, and all of ours. NotFound: nothing is there, or a
        chosen topic is not.
        """
        found = [one async for one in self._partitions()]
        own = await self._own(identity, {one.topic for one in found})
        plans = [await self._plan(one, own) for one in sorted(found)]
        plans += [one async for one in self._vanished(set(found), own)]
        await self._check_found({one.topic for one in found})
        return plans, own

    async def _vanished(self, found: Set[TopicPartition], own: Own) -> AsyncIterator[ImportPlan]:
        """Partitions whose import never came to its end, and that are not in their bucket any more:
        without them nobody would say what is to be done. Not those that came since it was listed,
        which another import has found: its stop stays.
        """
        gone = {one for ours in own.values() if ours.stops and (one := ours.partition) is not None}
        for one in sorted(gone, key=str):
            of = one.topic_partition
            if of in found or not self._is_chosen(*of) or await self._segments(of):
                continue
            yield ImportPlan(partition=one, watermark=None, refused=_VANISHED.format(one))

    async def _plan(self, found: TopicPartition, own: Own) -> ImportPlan:
        partition = TopicIdPartition(
            topic_id=self._topic_id(found.topic), topic=found.topic, partition=found.partition
        )
        ours = own.get(partition.key, _NOTHING_OWN)
        if ours.unusable:
            why = _PAST_USE.format(ours.unusable[-1].why)
            return ImportPlan(partition=partition, watermark=None, refused=why)
        try:
            watermark = await self._watermark(found)
        except Corrupt as error:
            there = (await self._segments(found)).values()
            unknown = plan_import(partition, there, None, ours.segments, accepts_gaps=False)
            return replace(unknown, refused=f"{error}: have it mended in their bucket")
        # Listed after the watermark was read, so that all that it promises is in the listing.
        segments = await self._segments(found)
        return plan_import(
            partition,
            segments.values(),
            watermark,
            ours.segments,
            accepts_gaps=self._choices.accepts_gaps,
        )

    async def run(self, reports: ImportReports) -> list[Imported]:
        """Import what is new; a partition that is refused is left out, and one that is stopped by
        its log does not stop others. Both are said in our store. Unavailable: a store is away.
        Invalid: ours is another cluster's.
        """
        identity = await self._identity()
        plans, own = await self.plans(identity)
        reports.planned(plans)
        target = ImportTarget(
            cluster_id=identity.cluster_id, store_id=identity.store_id, software=self._software
        )
        import_id, done = self._new_uuid(), list[Imported]()
        for plan in plans:
            ours = own.get(plan.partition.key, _NOTHING_OWN)
            stops = PartitionStops(
                self._store, identity.cluster_id, import_id, plan.partition, ours.stops
            )
            if plan.refused is None:
                done.append(await self._import(plan, target, ours, stops, reports))
            else:
                why = f"their log was not imported: {plan.refused}"
                ends = ends_of(ours.segments.values())
                await stops.end(stop_of(plan, ends, ours.doubtful), why)
        return done

    async def _import(
        self,
        plan: ImportPlan,
        target: ImportTarget,
        ours: OwnPartition,
        stops: PartitionStops,
        reports: ImportReports,
    ) -> Imported:
        is_growing = self._choices.is_growing
        one = PartitionImport(
            self._store,
            target,
            plan,
            tuple(ours.segments.values()),
            doubtful=ours.doubtful,
            accepts_gaps=self._choices.accepts_gaps,
            report=reports.progress,
        )
        if plan.new and not is_growing:
            await stops.begin(one.stop_offset)
        found = await one.run()
        await stops.end(one.stop_offset, found.why_not_whole(is_growing=is_growing))
        return found

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

    async def _own(self, identity: StoreIdentity | None, topics: Iterable[str]) -> Own:
        """What our store has, by partition. Invalid: it is another cluster's."""
        if identity is None:
            return {}
        names = {self._topic_id(one): one for one in (*topics, *self._choices.topics)}
        surveyor = StoreSurveyor(cluster_id=identity.cluster_id, topic_name=names.get)
        survey = await surveyor.survey(self._store, identity.store_id, _Tolerant())
        own = defaultdict[PartitionKey, OwnPartition](OwnPartition)
        for partition, segments in survey.segments.items():
            by_start = {one.metadata.start_offset: one.metadata for one in segments}
            own[partition.key].segments.update(by_start)
        for one in survey.unusable_manifests:
            ours = own[one.key]
            (ours.stops if one.is_stop else ours.unusable).append(one)
        return own

    def _topic_id(self, topic: str) -> Uuid:
        chosen = self._choices.topics.get(topic)
        return chosen or derived_topic_id(self._store.layout.cluster, topic)

    async def _partitions(self) -> AsyncIterator[TopicPartition]:
        """The chosen partitions that have a file of a segment, each once."""
        layout, seen = self._store.layout, set[TopicPartition]()
        for folder in layout.listed_folders(self._choices.topics, self._choices.partition):
            async for stored in self._store.uploaded.listed(folder):
                rest, _, file = stored.name.rpartition("/")
                parsed = parse_folder(rest.rpartition("/")[2])
                if parsed is None or parse_file(file) is None or not self._is_chosen(*parsed):
                    continue
                found = TopicPartition(*parsed)
                if found not in seen and rest == layout.folder(*parsed):
                    seen.add(found)
                    yield found

    async def _segments(self, of: TopicPartition) -> dict[int, FoundSegment]:
        """The segments of a partition by base offset."""
        segments: dict[int, FoundSegment] = {}
        folder = f"{self._store.layout.folder(*of)}/"
        async for stored in self._store.uploaded.listed(folder):
            uploaded = parse_file(stored.name.removeprefix(folder))
            if uploaded is None:
                continue
            segment = segments.setdefault(
                uploaded.base_offset, FoundSegment(base_offset=uploaded.base_offset)
            )
            segment.suffixes.add(uploaded.suffix)
            if uploaded.suffix == LOG:
                segment.size_bytes, segment.modified_ms = stored.size_bytes, stored.modified_ms
        return segments

    def _is_chosen(self, topic: str, partition: int) -> bool:
        choices = self._choices
        return (not choices.topics or topic in choices.topics) and (
            choices.partition in (None, partition)
        )

    async def _watermark(self, of: TopicPartition) -> int | None:
        name = f"{self._store.layout.folder(*of)}/{WATERMARK}"
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
