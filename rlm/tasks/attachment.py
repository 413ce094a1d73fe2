"""Reads what the stores of one cluster have, as an attached reader serves it; reads nothing else.

    identities of the stores -> all manifests -> ledgers and plans of all partitions -> readers

Everything is read before anything is served. Later rounds read new manifests only, and drop the
segments whose manifest is gone, as the cluster may still live and delete them in order. A round
that fails leaves what was served before, and the next one need not read again what it has read. A
partition with a gap that is new is listed again (rlm/tasks/settled_listing.py).
`rlm/plans/attachment.py` decides.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from kip405.errors import Invalid
from kip405.ids import PartitionKey, TopicIdPartition, Uuid
from kip405.lineage import Lineage
from rlm.clock import next_turn
from rlm.plans.attachment import (
    Backup,
    PartitionPlan,
    StoredTopic,
    UnreadSegment,
    names_used_twice,
    plan_partition,
    topics_to_serve,
)
from rlm.plans.ledger_rebuild import StoredSegment
from rlm.remote_log.attached import (
    NOBODY,
    AttachedLog,
    AttachedState,
    ledger_of_segments,
    view_of_records,
)
from rlm.remote_log.topic_refs import topic_records
from rlm.tasks.attached_gaps import (
    GapSearch,
    Gone,
    gone_segments,
    kept,
    read_and_listed,
    vanished_manifests,
)
from rlm.tasks.attached_starts import RemoteStarts
from rlm.tasks.settled_listing import MOST_ADDED, Identity
from rlm.tasks.store_survey import StoreSurvey, StoreSurveyor, SurveyProgress, UnusableManifest
from rlm.tasks.stored_lineages import ReadableStore, StoredLineages
from rlmm.ledger import PartitionLedger
from rlmm.settings_records import (
    CAUSE_COMMAND,
    ClusterRecord,
    HolesRecord,
    SettingsRecord,
    StartRecord,
    StoreRecord,
    TopicRecord,
)
from rlmm.settings_view import SettingsView
from rsm_plugins.layout.pinterest import is_marked

_NEVER_MS = -1
Report = Callable[[Uuid, SurveyProgress], None]
log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the operator has decided. `topic_ids`: these have their names. `accepted`: partitions,
    as TOPIC-PARTITION by name or id, of which what the segments show is right. `backup`: the
    settings of the cluster, None = there are none.
    """

    topic_ids: tuple[Uuid, ...] = ()
    accepted: frozenset[str] = frozenset()
    backup: SettingsView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one reading of the stores has found, beside the state that readers get. `unreadable`:
    manifests and indexes that may be read later.
    """

    objects: int = 0
    new_segments: int = 0
    gone_segments: int = 0
    leftovers: int = 0
    unreadable: int = 0
    unusable: tuple[str, ...] = ()
    used_twice: Mapping[str, tuple[Uuid, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    """All that a plan follows from, but for the backup, which stays the same."""

    ledger: PartitionLedger
    start_offset: int
    unread: tuple[UnreadSegment, ...]
    is_accepted: bool
    stored: Lineage | None


class Attachment:
    """Reads stores into the log of an attached reader."""

    def __init__(
        self, *, cluster_id: str, log: AttachedLog, choices: Choices, report: Report
    ) -> None:
        """Invalid: the backup is another cluster's, or cannot be read."""
        _refuse_foreign(choices.backup, cluster_id)
        self._cluster_id = cluster_id
        self._log = log
        self._choices = choices
        self._report = report
        self._lineages = StoredLineages(cluster_id, _report_unusable)
        self._starts = RemoteStarts()
        self._planned: dict[PartitionKey, tuple[_Evidence, PartitionPlan]] = {}
        self._names: dict[Uuid, StoredTopic] = {}
        self._read: dict[PartitionKey, dict[Uuid, StoredSegment]] = {}
        self._imported: set[TopicIdPartition] = set()
        self._begun: set[TopicIdPartition] = set()
        self._stopped: set[TopicIdPartition] = set()
        self._unsettled: set[PartitionKey] = set()
        self._unread: dict[Identity, TopicIdPartition] = {}

    async def read(
        self, stores: Mapping[Uuid, ReadableStore], records: Iterable[StoreRecord]
    ) -> Round:
        """Read all stores, and replace the state of the log. Invalid: a store is not the expected
        one, or a choice fits nothing. Unavailable: a store is away.
        """
        surveyor = StoreSurveyor(cluster_id=self._cluster_id, topic_name=lambda _: None)
        search = GapSearch(
            ledgers=self._log.state.ledgers,
            read=self._read,
            starts=self._starts,
            decided_start=lambda key: self._backup(key).remote_log_start_offset or 0,
            unsettled=frozenset(self._unsettled),
        )
        surveys = [
            await surveyor.survey(store, store_id, _Caller(self, store_id))
            for store_id, store in stores.items()
        ]
        gone = await self._settle_gaps(search, surveyor, stores, surveys)
        return await self._take(surveys, gone, stores, tuple(records))

    def is_known(self, key: PartitionKey, segment_id: Uuid) -> bool:
        """Whether the segment is served already, or its manifest was read."""
        ledger = self._log.state.ledgers.get(key)
        is_served = ledger is not None and segment_id in ledger.entries
        return is_served or segment_id in self._read.get(key, ())

    def keep(self, segment: StoredSegment) -> None:
        """Its manifest was read, and need not be read again if this round fails."""
        segment_id = segment.metadata.segment_id
        key = segment_id.topic_id_partition.key
        self._read.setdefault(key, {})[segment_id.id] = segment
        if is_marked(segment.metadata.locator(self._cluster_id)):
            self._imported.add(segment_id.topic_id_partition)
            self._begun.add(segment_id.topic_id_partition)

    def to_settle(self, found: StoreSurvey) -> set[TopicIdPartition]:
        """Partitions with imported segments that are not served yet, or with a stop now or in the
        last round.
        """
        return self._imported | self._stopped | _stopped((found,))

    def report(self, store_id: Uuid, progress: SurveyProgress) -> None:
        self._report(store_id, progress)

    async def _settle_gaps(
        self,
        search: GapSearch,
        surveyor: StoreSurveyor,
        stores: Mapping[Uuid, ReadableStore],
        surveys: Sequence[StoreSurvey],
    ) -> Gone:
        """List partitions again, in all stores, that may lack a segment below one that was listed.
        Returns the served segments that have no manifest any more. Those that were listed until
        nothing was added have all below (`to_settle`), but for what another store got meanwhile:
        one listing more could show half an import.
        """
        listed = tuple(one.listed for one in surveys)
        settled = self._imported | self._stopped if len(surveys) == 1 else set()
        served, self._begun = self._log.state.ledgers, set()
        gone = await gone_segments(served, listed)
        unread = tuple(one.vanished for one in surveys)
        vanished = vanished_manifests(unread, self._unread, listed)
        keys = {*self._read, *gone, *vanished, *self._unsettled} - {one.key for one in settled}
        left = await search.to_list(keys, listed, gone, vanished)
        for _ in range(MOST_ADDED):
            if not left:
                break
            for one in surveys:
                caller = _Caller(self, one.store_id)
                await surveyor.list_again(stores[one.store_id], one, left, caller)
            gone = await gone_segments(served, listed)
            vanished = vanished_manifests(unread, self._unread, listed)
            left = await search.to_list([one.key for one in left], listed, gone, vanished)
        for partition in {*left, *self._begun}:
            # A gap between epochs is none between offsets, so nothing says where it is.
            is_import = partition in self._begun  # settled in the next round
            surveys[0].unsettled(partition, is_import=is_import, is_whole=True)
        return gone

    async def _take(
        self,
        surveys: list[StoreSurvey],
        gone: Gone,
        stores: Mapping[Uuid, ReadableStore],
        records: tuple[StoreRecord, ...],
    ) -> Round:
        """Everything that was read is served from one moment on, or nothing of it."""
        listed = tuple(one.listed for one in surveys)
        new, unread = await read_and_listed(self._read, listed), _unread(surveys)
        before = self._log.state
        for key, ended in gone.items():
            if len(ended) == len(before.ledgers[key].entries):
                self._starts.ended(key)
        self._note(new)
        self._note_names(surveys)
        ledgers = dict(before.ledgers)
        for key in {*new, *gone}:
            segments = list(kept(ledgers.get(key), gone.get(key, ())))
            segments += [one.metadata for one in new.get(key, ())]
            if key in gone:
                self._starts.left(key, segments)
            ledgers[key] = ledger_of_segments(key, segments, ledgers.get(key))
            await next_turn()
        ledgers = {key: one for key, one in ledgers.items() if one.entries}
        topics = self._topics((*ledgers, *unread))
        stored = await self._lineages.of(ledgers.values(), stores)
        plans = await self._plans(ledgers, unread, topics, stored)
        settings = (*self._settings(plans), *records, *topics)
        view = view_of_records(settings, before.view.version)
        self._log.replace(AttachedState(ledgers=ledgers, plans=plans, view=view))
        self._read, self._imported, self._stopped = {}, set(), _stopped(surveys)
        self._unsettled = {one.key for one in _unusable(surveys) if one.is_unsettled}
        unusable = (one for one in _unusable(surveys) if not (one.is_stop or one.is_unsettled))
        self._unread = {(one.key, one.segment_id): one.partition for one in unusable}
        return Round(
            objects=sum(one.objects for one in surveys),
            new_segments=sum(len(one) for one in new.values()),
            gone_segments=sum(len(one) for one in gone.values()),
            leftovers=sum(len(one.leftovers) for one in surveys),
            unreadable=sum(one.unreadable for one in surveys) + self._lineages.unreadable,
            unusable=tuple(text for one in surveys for text in one.unusable),
            used_twice=names_used_twice(topics),
        )

    def _note(self, new: Mapping[PartitionKey, Iterable[StoredSegment]]) -> None:
        """Starts only rise, and a topic has the name of its newest segment."""
        for key, segments in new.items():
            for one in segments:
                self._starts.note(key, one)
                copied_ms = one.metadata.event_timestamp_ms
                known = self._names.get(key.topic_id)
                if known is None or copied_ms > known.newest_ms:
                    self._names[key.topic_id] = StoredTopic(
                        topic_id=key.topic_id,
                        name=one.metadata.topic_id_partition.topic,
                        newest_ms=copied_ms,
                    )

    def _note_names(self, surveys: Iterable[StoreSurvey]) -> None:
        """Topics of which no manifest can be used have the name that objects have."""
        for one in _unusable(surveys):
            named = StoredTopic(topic_id=one.key.topic_id, name=one.topic_cut, newest_ms=_NEVER_MS)
            self._names.setdefault(one.key.topic_id, named)

    def _topics(self, keys: Iterable[PartitionKey]) -> tuple[TopicRecord, ...]:
        there = {key.topic_id for key in keys}
        chosen = self._choices.topic_ids
        if self._log.is_ready:  # what was there may have been deleted since
            chosen = tuple(one for one in chosen if one in there)
        backup = self._choices.backup
        return topics_to_serve(
            (one for one in self._names.values() if one.topic_id in there),
            chosen,
            () if backup is None else topic_records(backup.records()),
        )

    async def _plans(
        self,
        ledgers: Mapping[PartitionKey, PartitionLedger],
        unread: Mapping[PartitionKey, list[UnreadSegment]],
        topics: Collection[TopicRecord],
        stored: Mapping[PartitionKey, Lineage | None],
    ) -> dict[PartitionKey, PartitionPlan]:
        """Also of partitions that have no manifest but some that cannot be used."""
        owners = {one.name: one.topic_id for one in topics}
        names = {topic_id: name for name, topic_id in owners.items()}
        served = {one.topic_id for one in topics}
        keys = {one for one in (*ledgers, *unread) if one.topic_id in served}
        left = set(self._choices.accepted)
        plans: dict[PartitionKey, PartitionPlan] = {}
        for key in sorted(keys):
            topics_names = names.get(key.topic_id), key.topic_id
            spellings = {f"{one}-{key.partition}" for one in topics_names}
            left -= spellings
            evidence = _Evidence(
                ledger=ledgers.get(key) or PartitionLedger.empty(key),
                start_offset=self._starts.of(key),
                unread=tuple(unread.get(key, ())),
                is_accepted=bool(spellings & self._choices.accepted),
                stored=stored.get(key),
            )
            plans[key] = await self._plan(key, evidence)
        self._planned = {key: self._planned[key] for key in plans}
        if left and not self._log.is_ready:
            raise Invalid(f"--accept-history: the stores have no partition {min(left)}")
        return plans

    async def _plan(self, key: PartitionKey, evidence: _Evidence) -> PartitionPlan:
        """That of the last round where nothing has changed; else made in a turn of its own."""
        known = self._planned.get(key)
        if known is not None and known[0] == evidence:
            return known[1]
        await next_turn()
        plan = plan_partition(
            evidence.ledger,
            manifest_start_offset=evidence.start_offset,
            unread=evidence.unread,
            backup=self._backup(key),
            is_accepted=evidence.is_accepted,
            stored=evidence.stored,
        )
        self._planned[key] = evidence, plan
        return plan

    def _backup(self, key: PartitionKey) -> Backup:
        view = self._choices.backup
        if view is None:
            return Backup()
        return Backup(
            remote_log_start_offset=view.remote_log_start(key),
            holes=view.holes(key),
            published=view.history(key),
        )

    def _settings(self, plans: Mapping[PartitionKey, PartitionPlan]) -> Iterator[SettingsRecord]:
        yield ClusterRecord(
            cluster_id=self._cluster_id, ledger_topic_id=NOBODY, settings_topic_id=NOBODY
        )
        for key, plan in plans.items():
            backup = self._backup(key)
            yield StartRecord(
                partition=key,
                remote_log_start_offset=plan.remote_log_start_offset,
                cause=CAUSE_COMMAND,
            )
            if backup.holes:
                yield HolesRecord(partition=key, holes=backup.holes)
            if plan.history is not None:
                yield plan.history


@dataclass(frozen=True, slots=True)
class _Caller:
    """Of the survey of one store."""

    attachment: Attachment
    store_id: Uuid

    @property
    def bears_unreadable(self) -> bool:
        """What follows such a manifest is doubtful, and all else is served."""
        return True

    def is_known(self, key: PartitionKey, segment_id: Uuid) -> bool:
        return self.attachment.is_known(key, segment_id)

    def keep(self, segment: StoredSegment) -> None:
        self.attachment.keep(segment)

    def to_settle(self, found: StoreSurvey) -> set[TopicIdPartition]:
        return self.attachment.to_settle(found)

    def report(self, progress: SurveyProgress) -> None:
        self.attachment.report(self.store_id, progress)


def _report_unusable(problem: str) -> None:
    log.warning("stored_history_unusable", problem=problem)


def _refuse_foreign(backup: SettingsView | None, cluster_id: str) -> None:
    if backup is None:
        return
    if backup.problem is not None:
        raise Invalid(f"--settings-backup: {backup.problem}")
    if backup.cluster is None:
        raise Invalid("--settings-backup: it has no cluster record: it is no whole backup")
    if backup.cluster.cluster_id != cluster_id:
        raise Invalid(
            f"--settings-backup: it is of cluster {backup.cluster.cluster_id}, not of {cluster_id}"
        )


def _unread(surveys: Iterable[StoreSurvey]) -> dict[PartitionKey, list[UnreadSegment]]:
    found: dict[PartitionKey, list[UnreadSegment]] = {}
    for one in _unusable(surveys):
        found.setdefault(one.key, []).append(_unread_segment(one))
    return found


def _unusable(surveys: Iterable[StoreSurvey]) -> Iterator[UnusableManifest]:
    return (one for survey in surveys for one in survey.unusable_manifests)


def _stopped(surveys: Iterable[StoreSurvey]) -> set[TopicIdPartition]:
    """Where an import ended early, or is under way."""
    return {one.partition for one in _unusable(surveys) if one.is_stop}


def _unread_segment(one: UnusableManifest) -> UnreadSegment:
    start_offset = one.start_offset if one.is_whole else None
    return UnreadSegment(start_offset=start_offset, why=one.why, is_unsettled=one.is_unsettled)
