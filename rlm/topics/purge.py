"""Lists topics that seem to be deleted, and ends those that an operator confirms (`rlm purge`)."""

from collections.abc import Sequence
from dataclasses import dataclass

from kip405.errors import Fenced, NotFound
from rlm.plans.problems import Finding, ProblemKind, human_bytes, human_duration
from rlm.topics.ends import TopicEnds
from rlm.topics.ports import Settings
from rlmm.settings_records import DELETION_DISABLE, TopicRecord

WAITS_FOR_GRACE = "the grace period (topic.deletion.grace.ms)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEnd:
    """A topic that every broker says it does not know, or whose remote data will be deleted.

    `due_in_ms`: until its deletion can be revoked no more, None = it is not decided. `waits`: what
    it waits for, empty = for nothing else.
    """

    record: TopicRecord
    segments: int
    size_bytes: int
    due_in_ms: int | None
    waits: str


class Purge:
    """What `rlm purge` shows and confirms, by what this service knows."""

    def __init__(self, *, ends: TopicEnds, settings: Settings) -> None:
        self._ends = ends
        self._settings = settings

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
        return TopicEnd(
            record=record, segments=size[0], size_bytes=size[1], due_in_ms=due_in_ms, waits=waits
        )

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
        listed = [one.record for one in self.listed()]
        if not names:
            return [record for record in listed if record.state == "enabled"]
        chosen = []
        for name in names:
            found = [one for one in listed if name in (one.name, str(one.topic_id))]
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
