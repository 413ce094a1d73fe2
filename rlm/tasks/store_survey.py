"""Reads what a whole store has of this cluster: every object by name, every manifest.

The identity of the store is checked before and after (H11). A manifest counts only where it proves
everything: cluster, store, name, segment, and a state in which the segment was finished. Presence
is asked by `StoreEvidence`, later, when it is known which segments matter. Nothing is changed here.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kip405.contracts import StoreAdmin, StoredObject
from kip405.errors import Corrupt, Invalid, NotFound, RemoteStorageError
from kip405.ids import ZERO_UUID, PartitionKey, TopicIdPartition, Uuid
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.clock import next_turn
from rlm.plans.ledger_rebuild import StoredSegment
from rlm.plans.reconcile import Leftover
from rlm.stores.connection import identity_problem
from rlm.tasks.evidence import check_layout, store_of
from rlm.tasks.settled_listing import (
    MOST_ADDED,
    UNSETTLED,
    Added,
    Identity,
    Relisting,
    identity_of,
)
from rlmm.ledger_values import decode_value
from rsm_plugins.layout.import_stops import ENDED_MEANWHILE, is_stop_id, parse_stop
from rsm_plugins.layout.keys import (
    DATA_OBJECTS,
    TOPIC_CUT,
    ObjectKind,
    ParsedName,
    locator_of,
    parse_name,
)
from rsm_plugins.layout.manifest import Manifest

_READS_AT_ONCE = 16
REPORT_EVERY = 1_000
_NAMES_A_TURN = 2_000
TopicName = Callable[[Uuid], str | None]
"""The full name of a topic; object names have only its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusableManifest:
    """A manifest that cannot be used, by what its name says; nobody knows what is in its segment
    but the first offset. `is_stop`: it says that an import stopped there. `is_unsettled`: it stands
    for those that others wrote while the partition was listed, `is_whole`: in all of it, otherwise
    above its first gap or its end.
    """

    key: PartitionKey
    topic_cut: str
    segment_id: Uuid
    start_offset: int
    why: str
    is_stop: bool = False
    is_unsettled: bool = False
    is_whole: bool = True

    @property
    def partition(self) -> TopicIdPartition:
        """By its name, of which the object names have only the beginning."""
        key = self.key
        return TopicIdPartition(
            topic_id=key.topic_id, topic=self.topic_cut, partition=key.partition
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyProgress:
    """`manifests` None = the store is still being listed. `partitions`: how many are listed again;
    None = no partition now.
    """

    objects: int
    manifests: int | None = None
    manifests_read: int = 0
    partitions: int | None = None
    partitions_listed: int = 0

    @property
    def text(self) -> str:
        """How far it is, in words."""
        if self.partitions is not None:
            return f"{self.partitions_listed} of {self.partitions} partitions are listed again"
        if self.manifests is None:
            return f"{self.objects} objects are listed"
        return f"{self.manifests_read} of {self.manifests} manifests"


class Survey(Protocol):
    """What the caller of a survey knows and is shown.

    `bears_unreadable`: manifests that cannot be read count as unusable where the store itself
    answers, as objects that were archived, or that somebody may not read. Otherwise, and where the
    store does not answer, the survey fails.
    """

    @property
    def bears_unreadable(self) -> bool: ...

    def is_known(self, key: PartitionKey, segment_id: Uuid) -> bool:
        """Whether the manifest of the segment need not be read again; it never changes."""
        ...

    def keep(self, segment: StoredSegment) -> None:
        """Its manifest was read; the survey may still fail."""
        ...

    def to_settle(self, found: "StoreSurvey") -> Collection[TopicIdPartition]:
        """Partitions that an import may write to, and that are to be listed until that is settled
        (settled_listing.py); all manifests of `found` were read.
        """
        ...

    def report(self, progress: SurveyProgress) -> None: ...


class _NothingKnown:
    bears_unreadable = False

    def is_known(self, key: PartitionKey, segment_id: Uuid) -> bool:
        return False

    def keep(self, segment: StoredSegment) -> None: ...

    def to_settle(self, found: "StoreSurvey") -> Collection[TopicIdPartition]:
        return ()

    def report(self, progress: SurveyProgress) -> None: ...


@dataclass(slots=True, kw_only=True)
class StoreSurvey:
    """What one store has of one cluster.

    `segments` have a manifest that can be used and was read, `leftovers` none at all. `unusable`:
    one text for each manifest that cannot be used, and for each object that is none of ours.
    `listed`: the segments that have a manifest, usable or not. `vanished`: those of them whose
    manifest had gone when it was to be read. `unreadable`: how many manifests could not be read
    though the store answers; they are among the unusable ones.
    """

    store_id: Uuid
    segments: dict[TopicIdPartition, list[StoredSegment]] = field(default_factory=dict)
    leftovers: list[Leftover] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)
    unusable_manifests: list[UnusableManifest] = field(default_factory=list)
    listed: set[Identity] = field(default_factory=set)
    vanished: dict[Identity, TopicIdPartition] = field(default_factory=dict)
    objects: int = 0
    unreadable: int = 0

    def unsettled(self, partition: TopicIdPartition, *, is_import: bool, is_whole: bool) -> None:
        """It is not known, as a whole or from its first gap or its end on, and may be read later.
        `is_import`: then until two listings have added nothing.
        """
        self.unreadable += 1
        self.unusable_manifests.append(
            _unsettled(partition, is_import=is_import, is_whole=is_whole)
        )


@dataclass(frozen=True, slots=True)
class _Failed:
    """A manifest that could not be read now."""

    name: str
    parsed: ParsedName
    error: RemoteStorageError


class StoreSurveyor:
    """Surveys stores on behalf of one cluster."""

    def __init__(self, *, cluster_id: str, topic_name: TopicName) -> None:
        self._cluster_id = cluster_id
        self._topic_name = topic_name

    async def survey(
        self, store: StoreAdmin, store_id: Uuid, caller: Survey | None = None
    ) -> StoreSurvey:
        """Invalid where it is not that store of this cluster; Unavailable where it is away."""
        caller = caller or _NothingKnown()
        await self._check_identity(store, store_id)
        found = StoreSurvey(store_id=store_id)
        names: list[tuple[str, ParsedName]] = []
        parts: dict[tuple[PartitionKey, Uuid], Leftover] = {}
        async for stored in store.list_objects(self._cluster_id):
            found.objects += 1
            if found.objects % REPORT_EVERY == 0:
                caller.report(SurveyProgress(objects=found.objects))
            try:
                parsed = parse_name(stored.name)
            except Invalid as error:
                found.unusable.append(str(error))
                continue
            if parsed.kind is ObjectKind.MANIFEST:
                names.append((stored.name, parsed))
            else:
                self._note(parts, parsed, stored, store_id)
        await self._read_twice(store, found, await self._new(found, names, parts, caller), caller)
        await self._settle(store, found, caller)
        await self._check_identity(store, store_id)
        return found

    async def _settle(self, store: StoreAdmin, found: StoreSurvey, caller: Survey) -> None:
        """List the partitions again that the caller names, until there is nothing new. One that is
        not settled then is doubtful from its first gap or its end on, and may be read later.
        """
        left = list({one.key: one for one in caller.to_settle(found)}.values())
        for _ in range(MOST_ADDED):
            if not left:
                return
            added = await self._relisting(store, found, caller).settling(left)
            await self._take(store, found, added, caller)
            left = [one for one in left if one.key in added]
        for one in left:
            found.unsettled(one, is_import=True, is_whole=False)

    async def list_again(
        self,
        store: StoreAdmin,
        found: StoreSurvey,
        partitions: Sequence[TopicIdPartition],
        caller: Survey,
    ) -> None:
        """List these partitions once more, and read what is new there."""
        added = await self._relisting(store, found, caller).once(partitions)
        await self._take(store, found, added, caller)
        await self._check_identity(store, found.store_id)

    def _relisting(self, store: StoreAdmin, found: StoreSurvey, caller: Survey) -> Relisting:
        def report(listed: int, partitions: int) -> None:
            caller.report(
                SurveyProgress(
                    objects=found.objects, partitions=partitions, partitions_listed=listed
                )
            )

        return Relisting(
            store=store,
            cluster_id=self._cluster_id,
            listed=found.listed,
            objects=found.objects,
            report=report,
        )

    async def _take(
        self, store: StoreAdmin, found: StoreSurvey, added: Added, caller: Survey
    ) -> None:
        """Read what another listing has added."""
        names = [one for several in added.values() for one in several]
        found.listed.update(identity_of(parsed) for _, parsed in names)
        await self._read_twice(store, found, names, caller)

    async def _read_twice(
        self,
        store: StoreAdmin,
        found: StoreSurvey,
        names: Sequence[tuple[str, ParsedName]],
        caller: Survey,
    ) -> None:
        """What fails now and then is read once more, as it is no reason."""
        failed = await self._read_all(store, found, names, caller)
        if failed:
            names = [(one.name, one.parsed) for one in failed]
            failed = await self._read_all(store, found, names, caller)
        for one in failed:
            found.unreadable += 1
            self._refuse(found, one.name, one.parsed, f"it cannot be read: {one.error}")

    async def _new(
        self,
        found: StoreSurvey,
        names: Sequence[tuple[str, ParsedName]],
        parts: Mapping[tuple[PartitionKey, Uuid], Leftover],
        caller: Survey,
    ) -> list[tuple[str, ParsedName]]:
        """The manifests that are to be read; notes what is listed and what is left over. There may
        be millions, so others have their turn in between.
        """
        new: list[tuple[str, ParsedName]] = []
        for number, one in enumerate(names, start=1):
            identity = identity_of(one[1])
            found.listed.add(identity)
            if not caller.is_known(*identity):
                new.append(one)
            if number % _NAMES_A_TURN == 0:
                await next_turn()
        for number, (identity, leftover) in enumerate(parts.items(), start=1):
            if identity not in found.listed:
                found.leftovers.append(leftover)
            if number % _NAMES_A_TURN == 0:
                await next_turn()
        return new

    async def _read_all(
        self,
        store: StoreAdmin,
        found: StoreSurvey,
        names: Sequence[tuple[str, ParsedName]],
        caller: Survey,
    ) -> list[_Failed]:
        """Those that cannot be read; after each group that has some the store must have answered,
        so that all of a store that is away is not asked for.
        """
        failed: list[_Failed] = []
        for at in range(0, len(names), _READS_AT_ONCE):
            caller.report(
                SurveyProgress(objects=found.objects, manifests=len(names), manifests_read=at)
            )
            some, before = names[at : at + _READS_AT_ONCE], len(failed)
            reads = (self._read(store, found, *one, caller, failed) for one in some)
            for segment in (one for one in await asyncio.gather(*reads) if one is not None):
                partition = segment.metadata.topic_id_partition
                found.segments.setdefault(partition, []).append(segment)
                caller.keep(segment)
            if len(failed) > before:
                await self._check_identity(store, found.store_id)
        return failed

    def _note(
        self,
        parts: dict[tuple[PartitionKey, Uuid], Leftover],
        parsed: ParsedName,
        stored: StoredObject,
        store_id: Uuid,
    ) -> None:
        """One more object that is no manifest."""
        known = parts.get(identity_of(parsed))
        has_records = parsed.kind is DATA_OBJECTS[parsed.layout][0]
        log_size_bytes = stored.size_bytes if has_records else 0
        parts[identity_of(parsed)] = Leftover(
            store_id=store_id,
            partition=TopicIdPartition(
                topic_id=parsed.topic_id,
                topic=self._topic_name(parsed.topic_id) or parsed.topic_cut,
                partition=parsed.partition,
            ),
            segment_id=parsed.segment_id,
            start_offset=parsed.start_offset,
            entropy_bits=len(parsed.entropy_digits),
            size_bytes=stored.size_bytes + (known.size_bytes if known else 0),
            log_size_bytes=log_size_bytes + (known.log_size_bytes if known else 0),
            modified_ms=max(stored.modified_ms, known.modified_ms if known else 0),
            layout=parsed.layout,
        )

    async def _check_identity(self, store: StoreAdmin, store_id: Uuid) -> None:
        problem = await identity_problem(store, store_id, self._cluster_id)
        if problem is not None:
            raise Invalid(problem)

    async def _read(
        self,
        store: StoreAdmin,
        found: StoreSurvey,
        name: str,
        parsed: ParsedName,
        caller: Survey,
        failed: list[_Failed],
    ) -> StoredSegment | None:
        """None where the segment was deleted meanwhile, or its manifest cannot be used or read."""
        topic = self._topic_name(parsed.topic_id) or parsed.topic_cut
        try:
            data = await store.read_manifest(locator_of(parsed, topic))
            stop = parse_stop(data, name)
            if stop is not None:
                self._refuse(found, name, parsed, stop.why, is_stop=True)
                return None
            manifest = Manifest.parse(data, name)
            metadata = decode_value(manifest.segment_metadata)
            self._check(manifest, metadata, parsed, found.store_id)
        except NotFound:
            if is_stop_id(parsed.segment_id):
                found.unreadable += 1  # what was written before it ended may not be listed
                self._refuse(found, name, parsed, ENDED_MEANWHILE, is_stop=True)
                return None
            if not _is_ambiguous(parsed, topic):
                key = identity_of(parsed)[0]
                partition = TopicIdPartition(
                    topic_id=key.topic_id, topic=topic, partition=key.partition
                )
                found.vanished[identity_of(parsed)] = partition
                return None
            why = "its topic's name is longer than object names have, and its prefix depends on it"
            self._refuse(found, name, parsed, why)
            return None
        except (Corrupt, Invalid) as error:
            self._refuse(found, name, parsed, str(error))
            return None
        except RemoteStorageError as error:
            if not (caller.bears_unreadable and error.retriable):
                raise
            failed.append(_Failed(name, parsed, error))
            return None
        return StoredSegment(
            metadata=metadata, remote_log_start_offset=manifest.remote_log_start_offset
        )

    def _refuse(
        self,
        found: StoreSurvey,
        name: str,
        parsed: ParsedName,
        why: str,
        *,
        is_stop: bool = False,
    ) -> None:
        found.unusable.append(f"{name}: {why}")
        key, segment_id = identity_of(parsed)
        found.unusable_manifests.append(
            UnusableManifest(
                key=key,
                topic_cut=parsed.topic_cut,
                segment_id=segment_id,
                start_offset=parsed.start_offset,
                why=why if is_stop else f"manifest {name} cannot be used: {why}",
                is_stop=is_stop,
            )
        )

    def _check(
        self,
        manifest: Manifest,
        metadata: RemoteLogSegmentMetadata,
        parsed: ParsedName,
        store_id: Uuid,
    ) -> None:
        """Corrupt where the manifest is not of this cluster, of this store and of its own name, or
        would publish something else.
        """
        if (manifest.cluster_id, manifest.store_id) != (self._cluster_id, store_id):
            raise Corrupt(f"it is of cluster {manifest.cluster_id}, store {manifest.store_id}")
        if store_of(metadata) != store_id:
            raise Corrupt(f"its segment lies in store {store_of(metadata)}")
        check_layout(manifest, metadata)
        named = parsed.topic_id, parsed.partition, parsed.segment_id, parsed.start_offset
        partition = metadata.topic_id_partition
        inside = (*partition.key, metadata.segment_id.id, metadata.start_offset)
        offsets = manifest.start_offset, manifest.end_offset
        is_same = offsets == (metadata.start_offset, metadata.end_offset)
        if metadata.segment_id != manifest.remote_segment_id or named != inside or not is_same:
            raise Corrupt(f"it has the metadata of {metadata.segment_id}")
        if metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            raise Corrupt(f"it would publish {metadata.state.name}")


def _unsettled(partition: TopicIdPartition, *, is_import: bool, is_whole: bool) -> UnusableManifest:
    return UnusableManifest(
        key=partition.key,
        topic_cut=partition.topic[:TOPIC_CUT],
        segment_id=ZERO_UUID,
        start_offset=0,
        why=UNSETTLED,
        is_stop=is_import,
        is_unsettled=True,
        is_whole=is_whole,
    )


def _is_ambiguous(parsed: ParsedName, topic: str) -> bool:
    """Whether a manifest that is not found may lie under the digits of the topic's full name."""
    return bool(parsed.entropy_digits) and topic == parsed.topic_cut and len(topic) == TOPIC_CUT
