"""Notices that topics were deleted, and deletes their remote data after a delay (H7, H39).

Every service asks the brokers about the ids of all topics that have a settings record. One of them,
the lowest node id that is alive and knows the stores, acts:

    enabled  --evidence (plans/topic_end)--> deleting --delay--> gone from stores, ledger, settings
       ^     --`rlm topics disable --delete`-> |
       +--- a broker knows the topic after all-+----> kept, by `rlm topics disable`

The settings record is the decision; all else follows from it and may be done twice, by two services
at a time too. A topic whose remote data an operator keeps ends by `rlm purge` only, and so does one
that has data that can be read but no settings record. Before every step that deletes, the settings
are read to a barrier, the brokers are asked again, and the clocks must agree (H16). Must not know
how segments are deleted (rlm/tasks/partition_end.py).
"""

import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Protocol

import structlog

from kip405.errors import Fenced, Invalid, NotFound, RemoteStorageError
from kip405.ids import PartitionKey, TopicIdPartition, Uuid
from kip405.segments import RemotePartitionDeleteState
from rlm.clock import Clock
from rlm.plans.guards import Forbidden
from rlm.plans.services import heartbeats, live_nodes
from rlm.plans.topic_end import (
    BrokerAnswer,
    EndLimits,
    EndStep,
    Occasions,
    chosen_node,
    described_by,
    doubt,
    needs_operator,
    next_step,
    unknown_everywhere,
)
from rlm.tasks.certain_time import CertainTime
from rlm.tasks.evidence import store_of
from rlm.tasks.partition_end import EndPermit, Ledger, PartitionEnd
from rlm.topics.leftovers import Leftovers, StillReadable, kept_record
from rlm.topics.ports import Settings
from rlm.topics.recreated import is_gone_end
from rlmm.settings_records import (
    DELETION_DISABLE,
    DELETION_GONE,
    DELETION_PURGE,
    STOPS_DELETE,
    TopicRecord,
)

log = structlog.get_logger(__name__)
_MARKED = RemotePartitionDeleteState.DELETE_PARTITION_MARKED


class Presence(Protocol):
    """What the brokers know of topic ids (rlm.topics.presence)."""

    async def ask(
        self, topic_ids: list[Uuid], ledger_topic_id: Uuid
    ) -> tuple[BrokerAnswer, ...]: ...


class LocalStarts(Protocol):
    """The brokers' log starts (rlm.topics.partition_records)."""

    async def raise_starts(
        self, record: TopicRecord, check: Callable[[], Awaitable[object]]
    ) -> None:
        """Raise the remote log starts to them. NotFound: no topic has this id now. `check` raises
        unless they may be raised; asked before each.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSettings:
    """`grace_ms`: topic.deletion.grace.ms, between two occasions; `delay_ms`:
    remote.delete.delay.ms; `dead_after_ms`: age at which a heartbeat is no sign of life.
    """

    node_id: int
    cluster_id: str
    interval_ms: int
    grace_ms: int
    delay_ms: int
    limits: EndLimits
    dead_after_ms: int
    barrier_deadline_ms: int


class TopicEnds:
    """`run` checks until cancelled. `rival` says why this service may not act at all, None = it
    may.
    """

    def __init__(
        self,
        *,
        presence: Presence,
        local_starts: LocalStarts,
        partition_end: PartitionEnd,
        leftovers: Leftovers,
        ledger: Ledger,
        settings: Settings,
        clock: Clock,
        time: CertainTime,
        rival: Callable[[], str | None],
        config: EndSettings,
    ) -> None:
        self._presence = presence
        self._local_starts = local_starts
        self._partition_end = partition_end
        self._leftovers = leftovers
        self._ledger = ledger
        self._settings = settings
        self._clock = clock
        self._time = time
        self._rival = rival
        self._config = config
        self._occasions = Occasions()
        self._doubt = "the brokers were not asked yet"
        self._errors: dict[Uuid, str] = {}
        self._held: dict[Uuid, str] = {}

    @property
    def unknown_for_ms(self) -> Mapping[Uuid, int]:
        """By topic id, for how long every broker has said that it does not know the topic."""
        now_ms = self._clock.monotonic_ms()
        return {one: now_ms - since for one, since in self._occasions.unknown_since_ms.items()}

    @property
    def held(self) -> Mapping[Uuid, str]:
        """By topic id, why a topic that seems to be deleted waits for `rlm purge --confirm`: also
        when the others that were unknown at the same time have ended.
        """
        return MappingProxyType(self._held)

    def why_not(self, topic_id: Uuid) -> str:
        """Why the deletion of a topic's remote data does not go on; empty = nothing is known."""
        return self._refusal_of(topic_id) or self._errors.get(topic_id) or self._doubt

    def due_in_ms(self, record: TopicRecord) -> int:
        """Until nothing can be revoked any more, of a topic in state `deleting`."""
        return max(0, self._config.delay_ms - self._age_ms(record))

    def sizes(self) -> Mapping[Uuid, tuple[int, int]]:
        """By topic id: segments that are finished, and their bytes."""
        found: dict[Uuid, tuple[int, int]] = {}
        for key in self._ledger.partitions():
            total = self._ledger.ledger(key).finished_total
            if total.segments:
                count, size_bytes = found.get(key.topic_id, (0, 0))
                found[key.topic_id] = count + total.segments, size_bytes + total.size_bytes
        return found

    async def confirm(self, record: TopicRecord) -> None:
        """An operator confirms that the remote data of a deleted topic may be deleted.

        Fenced: it is not proven that the topic is deleted, or its settings changed meanwhile.
        """
        why = self._refusal()
        if why is not None:
            raise Fenced(why)
        unknown_ms = self.unknown_for_ms.get(record.topic_id)
        if unknown_ms is None or unknown_ms < self._config.grace_ms:
            raise Fenced(
                f"topic {record.name} (id {record.topic_id}) is not known to be deleted: "
                + (self._doubt or _seen_for(unknown_ms, self._config.grace_ms))
            )
        await self._decide(record, DELETION_PURGE)

    async def run(self) -> None:
        """Check at every interval; what fails is tried again."""
        while True:
            await self.check()
            await self._clock.sleep_ms(self._config.interval_ms)

    async def check(self) -> None:
        """Ask once, decide, and take every step that is due."""
        try:
            await self._observe()
        except RemoteStorageError as error:
            self._occasions, self._doubt = Occasions(), str(error)
        self._hold()
        for record in self._proven():
            if record.topic_id not in self._held:
                await self._try(record, lambda one: self._decide(one, DELETION_GONE))
        for record in self._in_state("deleting"):
            await self._try(record, self._advance)
        await self._leftovers.remove_records(self._is_chosen)
        await self._remove_leftovers()
        known = {record.topic_id for record in self._settings.view.topics()}
        self._errors = {one: text for one, text in self._errors.items() if one in known}

    async def _observe(self) -> None:
        why = self._refusal()
        cluster = self._settings.view.cluster
        if why is not None or cluster is None:
            self._occasions, self._doubt = Occasions(), why or "there is no cluster record yet"
            return
        topic_ids = [record.topic_id for record in self._settings.view.topics()]
        topic_ids += self._leftovers.topic_ids()
        answers = await self._presence.ask(topic_ids, cluster.ledger_topic_id)
        self._doubt = self._doubt_of(answers) or ""
        unknown = frozenset[Uuid]()
        if not self._doubt:
            unknown = unknown_everywhere(answers, topic_ids)
        self._occasions = self._occasions.followed_by(unknown, self._clock.monotonic_ms())

    def _doubt_of(self, answers: tuple[BrokerAnswer, ...]) -> str | None:
        cluster = self._settings.view.cluster
        if cluster is None or cluster.cluster_id != self._config.cluster_id:
            return "the cluster record is not of the cluster of this service"
        return doubt(
            answers, cluster_id=cluster.cluster_id, ledger_topic_id=cluster.ledger_topic_id
        )

    def _proven(self) -> list[TopicRecord]:
        proven = self._occasions.proven(self._clock.monotonic_ms(), self._config.grace_ms)
        return [one for one in self._in_state("enabled") if one.topic_id in proven]

    def _hold(self) -> None:
        """Find out what waits for an operator from now on. What seems to be deleted counts, even
        if the grace is not over, and what was decided.
        """
        enabled = [record.topic_id for record in self._in_state("enabled")]
        unknown = [one for one in enabled if one in self._occasions.unknown_since_ms]
        still = enabled if self._doubt else unknown
        self._held = {one: self._held[one] for one in still if one in self._held}
        if not unknown:
            return
        ending = [one.topic_id for one in self._in_state("deleting") if is_gone_end(one)]
        why = self._why_operator([*unknown, *ending])
        if why is not None:
            self._held = {**dict.fromkeys(unknown, why), **self._held}

    def _why_operator(self, going: Collection[Uuid]) -> str | None:
        sizes = self.sizes()
        return needs_operator(
            topics=len(going),
            size_bytes=sum(sizes.get(one, (0, 0))[1] for one in going),
            all_bytes=sum(size_bytes for _, size_bytes in sizes.values()),
            limits=self._config.limits,
        )

    def _in_state(self, state: str) -> list[TopicRecord]:
        return [record for record in self._settings.view.topics() if record.state == state]

    async def _try(
        self, record: TopicRecord, step: Callable[[TopicRecord], Awaitable[None]]
    ) -> None:
        if not self._is_chosen(record.topic_id):
            return
        try:
            await step(record)
        except RemoteStorageError as error:
            if self._errors.get(record.topic_id) != str(error):
                log.warning("topic_end_failed", topic=record.name, error=str(error))
            self._errors[record.topic_id] = str(error)
        else:
            self._errors.pop(record.topic_id, None)

    def _is_chosen(self, topic_id: Uuid) -> bool:
        if self._refusal() is not None:
            return False
        view = self._settings.view
        live = live_nodes(
            heartbeats(view, self._clock.monotonic_ms()), max_age_ms=self._config.dead_after_ms
        )
        stores_of = {one.node_id: one.stores for one, _ in view.services() if one.node_id in live}
        return chosen_node(stores_of, self._stores(topic_id)) == self._config.node_id

    def _stores(self, topic_id: Uuid) -> frozenset[Uuid]:
        """Stores with segments of the topic, as far as their metadata say so."""
        found: set[Uuid] = set()
        for key in self._partitions_in_ledger(topic_id):
            for entry in self._ledger.ledger(key).entries.values():
                with contextlib.suppress(Invalid):
                    found.add(store_of(entry.metadata))
        return frozenset(found)

    def _refusal(self) -> str | None:
        """Why nothing may be deleted now, whatever the topic."""
        if not (self._ledger.is_ready and self._settings.is_ready):
            return "settings or ledger are not read yet"
        return self._ledger.problem or self._settings.problem or self._rival()

    async def _decide(self, record: TopicRecord, cause: str) -> None:
        """Record that the topic's remote data will be deleted; durable and read back."""
        await self._settings.barrier(self._config.barrier_deadline_ms)
        await self.check_gone(record.topic_id)
        now = self._settings.view.topic(record.topic_id)
        if now != record:
            raise Fenced(f"the settings of topic {record.name} changed meanwhile")
        await self._publish(replace(record, state="deleting", deletion_cause=cause))
        log.warning(
            "topic_end_decided", topic=record.name, topic_id=str(record.topic_id), cause=cause
        )

    async def _publish(self, record: TopicRecord) -> None:
        view = self._settings.view
        await self._settings.publish(record, view.newest_epoch(record.key), view.next_offset)

    async def check_gone(self, topic_id: Uuid) -> None:
        """Fenced unless it is proven now that no broker knows the topic (H7)."""
        cluster = self._settings.view.cluster
        if cluster is None:
            raise Fenced("there is no cluster record")
        answers = await self._presence.ask([topic_id], cluster.ledger_topic_id)
        why = self._doubt_of(answers)
        if why is not None:
            raise Fenced(f"it is not certain that topic {topic_id} is deleted: {why}")
        known_to = described_by(answers, topic_id)
        if known_to:
            raise _Present(topic_id, known_to)
        if topic_id not in unknown_everywhere(answers, [topic_id]):
            raise Fenced(f"not every broker says that it does not know topic {topic_id}")

    async def _advance(self, record: TopicRecord) -> None:
        """Take the steps that are due for a topic in state `deleting`."""
        await self._settings.barrier(self._config.barrier_deadline_ms)
        keys = self._partitions(record.topic_id)
        states = [self._ledger.ledger(key).deletion_state for key in keys]
        step = next_step(states, age_ms=self._age_ms(record), delay_ms=self._config.delay_ms)
        permit = EndPermit(
            refusal=lambda: self._refusal_of(record.topic_id),
            check_right=lambda: self._check_right(record),
            cause=f"topic-{record.deletion_cause}",
        )
        try:
            await self._take(step, record, keys, permit)
        except _Present as error:
            if not is_gone_end(record):
                raise
            await self._withdraw(record, keys, error)

    async def _take(
        self, step: EndStep, record: TopicRecord, keys: tuple[PartitionKey, ...], permit: EndPermit
    ) -> None:
        if step is EndStep.WAIT:
            return
        await permit.check()
        if step is EndStep.FORGET:
            await self._check_given_back(record)
            await self._partition_end.forget(record.topic_id, keys)
            log.warning("topic_ended", topic=record.name, topic_id=str(record.topic_id))
            return
        partitions = [
            TopicIdPartition(topic_id=key.topic_id, topic=record.name, partition=key.partition)
            for key in keys
        ]
        if step is EndStep.MARK:
            for partition in partitions:
                await self._partition_end.mark(partition)
            return
        for partition in partitions:
            await self._partition_end.begin(partition, permit)
        await self._raise_starts(record, permit)
        failures: list[RemoteStorageError] = []
        for partition in partitions:
            try:
                await self._partition_end.delete(partition, permit)
            except Fenced:
                raise
            except RemoteStorageError as error:
                failures.append(error)
        for failure in failures:
            raise failure

    async def _raise_starts(self, record: TopicRecord, permit: EndPermit) -> None:
        """Of a topic that stays in Kafka, its remote log ends where the brokers' logs begin. A
        start never comes down again, so it is raised when the deletion cannot be revoked any more.
        """
        if record.deletion_cause == DELETION_DISABLE:
            try:
                await self._local_starts.raise_starts(record, permit.check)
            except NotFound:
                await self.check_gone(record.topic_id)

    async def _check_given_back(self, record: TopicRecord) -> None:
        """Fenced while the topic's record is needed to give its retention back (H14)."""
        if record.deletion_cause == DELETION_DISABLE and record.originals:
            try:
                await self.check_gone(record.topic_id)
            except _Present as error:
                raise Fenced(f"{error}, and its retention is not given back yet") from error

    async def _check_right(self, record: TopicRecord) -> None:
        """Fenced unless the decision still counts and, where it was the reason, the topic is still
        gone.
        """
        await self._settings.barrier(self._config.barrier_deadline_ms)
        now = self._settings.view.topic(record.topic_id)
        if now != record:
            raise Fenced(f"the settings of topic {record.name} changed meanwhile")
        if is_gone_end(record):
            await self.check_gone(record.topic_id)

    def _refusal_of(self, topic_id: Uuid) -> str | None:
        stopped = self._settings.view.stopped_by(topic_id, STOPS_DELETE)
        frozen = f"{Forbidden.FREEZE_RECORD.value}: {stopped}" if stopped else None
        return self._refusal() or frozen or self._later_problem(topic_id) or self._time.why_not()

    def _later_problem(self, topic_id: Uuid) -> str | None:
        views = map(self._ledger.ledger, self._partitions_in_ledger(topic_id))
        return next((found for view in views if (found := view.later_problem)), None)

    async def _withdraw(
        self, record: TopicRecord, keys: Iterable[PartitionKey], present: "_Present"
    ) -> None:
        """The topic exists after all: while nothing was deleted, it is what it was before."""
        if any(self._ledger.ledger(key).deletion_state not in (None, _MARKED) for key in keys):
            raise Fenced(
                f"{present}, but the deletion of its remote data has begun: it is stopped; "
                f"`rlm topics describe {record.name}`"
            )
        state = "kept" if record.deletion_cause == DELETION_PURGE else "enabled"
        await self._publish(replace(record, state=state, deletion_cause=""))
        log.warning("topic_end_withdrawn", topic=record.name, reason=str(present))

    async def _remove_leftovers(self) -> None:
        """Of topics that are gone, and were for so long that their end would be over."""
        due_ms = self._config.grace_ms + self._config.delay_ms
        for topic_id in sorted(self._leftovers.topic_ids()):
            if self.unknown_for_ms.get(topic_id, -1) < due_ms or not self._is_chosen(topic_id):
                continue
            permit = EndPermit(
                refusal=partial(self._refusal_of, topic_id),
                check_right=partial(self._check_forgotten, topic_id),
                cause="topic-leftovers",
            )
            try:
                await self._remove_or_keep(topic_id, permit)
            except RemoteStorageError as error:
                log.warning("topic_end_failed", topic_id=str(topic_id), error=str(error))

    async def _remove_or_keep(self, topic_id: Uuid, permit: EndPermit) -> None:
        try:
            await self._leftovers.remove(topic_id, permit)
        except StillReadable as error:
            await permit.check()
            await self._publish(kept_record(topic_id, error.topic))
            log.warning("topic_kept", topic=error.topic, topic_id=str(topic_id), reason=str(error))

    async def _check_forgotten(self, topic_id: Uuid) -> None:
        await self._settings.barrier(self._config.barrier_deadline_ms)
        if self._settings.view.topic(topic_id) is not None:
            raise Fenced(f"topic {topic_id} has a settings record again")
        await self.check_gone(topic_id)

    def _partitions(self, topic_id: Uuid) -> tuple[PartitionKey, ...]:
        """All of which anything may be left; the first one stands for the topic."""
        known = self._settings.view.partitions_of(topic_id)
        return tuple(
            sorted({PartitionKey(topic_id, 0), *known, *self._partitions_in_ledger(topic_id)})
        )

    def _partitions_in_ledger(self, topic_id: Uuid) -> list[PartitionKey]:
        return [
            key
            for key in self._ledger.partitions()
            if key.topic_id == topic_id and not self._ledger.ledger(key).is_empty
        ]

    def _age_ms(self, record: TopicRecord) -> int:
        return self._settings.view.certain_age_ms(
            record.key, monotonic_ms=self._clock.monotonic_ms(), now_ms=self._clock.now_ms()
        )


class _Present(Fenced):
    """Brokers know the topic."""

    def __init__(self, topic_id: Uuid, node_ids: tuple[int, ...]) -> None:
        super().__init__(f"topic {topic_id} is known to broker {', '.join(map(str, node_ids))}")


def _seen_for(unknown_ms: int | None, grace_ms: int) -> str:
    if unknown_ms is None:
        return "a broker knows it, or does not say"
    return f"it has been unknown to every broker for {unknown_ms} of {grace_ms} ms"
