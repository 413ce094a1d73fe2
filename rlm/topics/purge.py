"""Lists topics that seem to be deleted, ends those that an operator confirms (`rlm purge`), and
keeps what an operator wants back (`rlm deletions undo`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from kip405.errors import Fenced, NotFound
from kip405.ids import Uuid
from rlm.plans.problems import Finding, ProblemKind, human_bytes, human_duration
from rlm.plans.remote_extent import RemoteExtent, extent_of
from rlm.tasks.partition_end import Ledger
from rlm.topics.ends import TopicEnds
from rlm.topics.ports import Settings
from rlm.topics.revocation import Revocation
from rlmm.settings_records import DELETION_DISABLE, DELETION_GONE, TopicRecord

WAITS_FOR_GRACE = "the grace period (topic.deletion.grace.ms)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEnd:
    """A topic that every broker says it does not know, or whose remote data will be deleted.

    `due_in_ms`: until its deletion can be revoked no more, None = it is not decided. `waits`: what
    it waits for, empty = for nothing else. `by`: the service that recorded the decision,
    `decided_ms` by its clock.
    """

    record: TopicRecord
    segments: int
    size_bytes: int
    due_in_ms: int | None
    waits: str
    by: str = ""
    decided_ms: int = -1

    @property
    def is_kept(self) -> bool:
        return self.record.state == "kept"

    @property
    def cause(self) -> str:
        """Of what was decided, or will be."""
        return self.record.deletion_cause or DELETION_GONE

    def is_named(self, name: str) -> bool:
        """Whether it has this name or id."""
        return self.record.is_named(name)


class Purge:
    """What `rlm purge` shows and confirms, by what this service knows. `lock`: of topic verbs."""

    def __init__(
        self,
        *,
        ends: TopicEnds,
        settings: Settings,
        ledger: Ledger,
        revocation: Revocation,
        lock: asyncio.Lock,
    ) -> None:
        self._ends = ends
        self._settings = settings
        self._ledger = ledger
        self._revocation = revocation
        self._lock = lock

    def listed(self) -> tuple[TopicEnd, ...]:
        """By name."""
        unknown = self._ends.unknown_for_ms
        ending = [
            record
            for record in self._settings.view.topics()
            if record.state == "deleting" or record.topic_id in unknown
        ]
        sizes = self._ends.sizes() if ending else {}
        found = [self._end(record, sizes.get(record.topic_id, (0, 0))) for record in ending]
        return tuple(sorted(found, key=lambda one: (one.record.name, one.record.topic_id)))

    def _end(self, record: TopicRecord, size: tuple[int, int]) -> TopicEnd:
        due_in_ms = None
        if record.state == "deleting":
            due_in_ms = self._ends.due_in_ms(record)
            waits = "" if due_in_ms else self._ends.why_not(record.topic_id)
        elif record.state == "kept":
            waits = f"kept; `rlm purge {record.topic_id} --confirm` deletes it"
        else:
            waits = self._ends.held.get(record.topic_id) or WAITS_FOR_GRACE
        decision = None if due_in_ms is None else self._settings.view.get(record.key)
        return TopicEnd(
            record=record,
            segments=size[0],
            size_bytes=size[1],
            due_in_ms=due_in_ms,
            waits=waits,
            by="" if decision is None else f"service/{decision.stamp.node_id}",
            decided_ms=-1 if decision is None else decision.stamp.time_ms,
        )

    def extent(self, topic_id: Uuid) -> RemoteExtent:
        """What is remote of a topic; reads all of its finished segments."""
        keys = (key for key in self._ledger.partitions() if key.topic_id == topic_id)
        return extent_of(self._ledger.ledger(key) for key in keys)

    async def keep(self, name: str) -> tuple[TopicRecord, ...]:
        """Keep what is remote of the topics of this name or id whose deletion waits or runs; their
        new records, none where there are none.

        Fenced: an enabled one is not proven to be deleted, so that it would be disabled; or as of
        Revocation.keep.
        """
        async with self._lock:
            found = [one.record for one in self.listed() if one.is_named(name) and not one.is_kept]
            for record in found:
                if record.state == "enabled":
                    await self._ends.check_gone(record.topic_id)
            return await self._revocation.keep_topics({record.topic_id for record in found})

    async def confirm(self, names: Sequence[str]) -> None:
        """Decide that the remote data of deleted topics goes: of these names or ids, without any
        those that wait for an operator.

        NotFound: no topic of that name seems to be deleted. Fenced: it is not proven (yet), or
        several had the name.
        """
        for record in self._chosen(names):
            if record.state != "deleting":
                await self._ends.confirm(record)

    def _chosen(self, names: Sequence[str]) -> list[TopicRecord]:
        listed = self.listed()
        if not names:
            return [one.record for one in listed if one.record.state == "enabled"]
        chosen: list[TopicRecord] = []
        for name in names:
            found = [one.record for one in listed if one.is_named(name)]
            if not found:
                raise NotFound(f"no topic {name} is known to be deleted; `rlm purge` lists them")
            if len(found) > 1:
                ids = ", ".join(str(one.topic_id) for one in found)
                raise Fenced(
                    f"{len(found)} topics with remote data had the name {name}: give the id: {ids}"
                )
            chosen += found
        return chosen

    def findings(self) -> tuple[Finding, ...]:
        """As problems."""
        due = (one for one in self.listed() if one.waits != WAITS_FOR_GRACE)
        return tuple(found for one in due if (found := _finding(one)) is not None)


def _finding(end: TopicEnd) -> Finding | None:
    record = end.record
    is_disabled = record.deletion_cause == DELETION_DISABLE
    if record.state == "kept" or (is_disabled and not end.waits):
        return None
    why = "was disabled with --delete" if is_disabled else "was deleted"
    what = (
        f"topic {record.name} (id {record.topic_id}) {why}: its remote data "
        f"({end.segments} segments, {human_bytes(end.size_bytes)})"
    )
    kind, text = ProblemKind.DELETION_WAITS, f"{what} is not deleted yet: {end.waits}"
    if end.due_in_ms is None:
        text = f"{text}; `rlm purge {record.topic_id} --confirm` deletes it"
    elif not end.waits:
        kind = ProblemKind.DELETION_DUE
        when = f"in {human_duration(end.due_in_ms)}" if end.due_in_ms else "now"
        text = f"{what} will be deleted {when}"
    if end.due_in_ms != 0:
        name = record.name if is_disabled else record.topic_id  # another may have the name
        text = f"{text}, `rlm topics disable {name}` keeps it"
    return Finding(
        kind=kind, subject=f"deleted topic {record.topic_id}", topic=record.name, text=text
    )
