"""Bugs in the ends of topics and in what operators decide, which the simulator must see (H34)."""

from dataclasses import replace
from typing import Any

from kip405.ids import PartitionKey
from kip405.segments import RemotePartitionDeleteState
from rlm.plans import discard as plan_of_discard
from rlm.plans import topic_end
from rlm.tasks import discard
from rlm.tasks.partition_end import PartitionEnd
from rlm.topics import ends, leftovers, presence
from rlm.topics.discards import Discards
from rlm.topics.ends import TopicEnds
from rlm.topics.presence import TopicPresence
from rlmm.settings_view import SettingsView
from tests.simulation.decisions import disabled
from tests.simulation.discards import discarded
from tests.simulation.planting import Patch, Planted, nothing
from tests.simulation.topic_events import hidden, kept


def _one_brokers_word() -> list[Patch]:
    """What our own broker does not know is gone, whatever the others know (H7)."""

    async def ask(self: TopicPresence, topic_ids: Any, ledger_topic_id: Any) -> Any:
        answer = await self._own.topic_ids([*topic_ids, ledger_topic_id])
        return (presence._evidence(self._node_id, answer),)

    return [(TopicPresence, "ask", ask), (topic_end, "_ENOUGH_BROKERS", 1)]


def _one_occasion() -> list[Patch]:
    """A topic is gone as soon as no broker knows it (H7)."""
    return [(topic_end.Occasions, "proven", lambda self, *_: frozenset(self.unknown_since_ms))]


def _hidden_is_gone() -> list[Patch]:
    """A topic that an answer refuses or leaves out is gone (H7)."""

    def unknown(answers: Any, topic_ids: Any) -> frozenset[Any]:
        seen = {one for answer in answers for one, code in answer.error_codes.items() if code == 0}
        return frozenset(topic_ids) - seen

    return [(owner, "unknown_everywhere", unknown) for owner in (ends, presence)]


def _no_delay() -> list[Patch]:
    """What was decided is carried out at once."""
    next_step = topic_end.next_step

    def at_once(states: Any, *, age_ms: int, delay_ms: int) -> Any:
        return next_step(states, age_ms=age_ms, delay_ms=0)

    return [(ends, "next_step", at_once)]


def _ends_by_name() -> list[Patch]:
    """The end of a topic takes all partitions that have its name (H39)."""
    partitions = TopicEnds._partitions

    def of_name(self: Any, topic_id: Any) -> tuple[PartitionKey, ...]:
        records = self._settings.view.topics()
        names = {one.name for one in records if one.topic_id == topic_id}
        ids = {topic_id, *(one.topic_id for one in records if one.name in names)}
        return tuple(sorted(key for one in ids for key in partitions(self, one)))

    return [(TopicEnds, "_partitions", of_name)]


def _kept_goes_too() -> list[Patch]:
    """What an operator keeps of a deleted topic ends as if nobody had (H7)."""

    def in_state(self: Any, state: str) -> list[Any]:
        states = (state, "kept") if state == "deleting" else (state,)
        return [record for record in self._settings.view.topics() if record.state in states]

    return [(TopicEnds, "_in_state", in_state), (leftovers, "_REVOKED_IN", ())]


def _own_record_only() -> list[Patch]:
    """Of the settings of an ended topic, only its own record is removed (G4)."""
    keys_of = SettingsView.keys_of
    return [
        (SettingsView, "keys_of", lambda self, topic_id: keys_of(self, topic_id)[:1]),
        (TopicEnds, "_remove_leftovers", nothing),
    ]


def _undo_ignored() -> list[Patch]:
    """Remote data that was to be deleted goes, though an operator has kept it since (H7)."""
    in_state, decided = TopicEnds._in_state, dict[Any, Any]()

    def remembered(self: Any, state: str) -> list[Any]:
        found = in_state(self, state)
        if state != "deleting":
            return found
        ours = decided.setdefault(self, {})
        ours.update({one.topic_id: one for one in found if one.deletion_cause == "disable"})
        kept = {one.topic_id for one in in_state(self, "kept")}
        return found + [one for topic_id, one in ours.items() if topic_id in kept]

    return [
        (TopicEnds, "_in_state", remembered),
        (TopicEnds, "_check_right", nothing),
        (leftovers, "_REVOKED_IN", ()),
    ]


def _settings_first() -> list[Patch]:
    """A disabled topic is forgotten when the deletion of its segments has only begun (G4)."""

    async def delete(self: Any, partition: Any, permit: Any) -> int:
        await self._publish(partition, RemotePartitionDeleteState.DELETE_PARTITION_FINISHED, permit)
        return 0

    return [(PartitionEnd, "delete", delete)]


def _discard_at_once() -> list[Patch]:
    """What is discarded is deleted without the delay (H4)."""
    next_step = plan_of_discard.next_step

    def at_once(record: Any, state: Any, *, same_log: bool, age_ms: int) -> Any:
        now = replace(record, delay_ms=0) if record is not None else None
        return next_step(now, state, same_log=same_log, age_ms=age_ms)

    return [(discard, "next_step", at_once)]


def _discard_of_any_log() -> list[Patch]:
    """What is discarded is deleted whichever log leads, be it the one with every record (H4)."""
    owners = (plan_of_discard, discard)
    same = [(one, "is_same_log", lambda *_: True) for one in owners]
    guards = [(discard, one, lambda *_: False) for one in ("has_newer_copies", "has_foreign_trim")]
    return [*same, *guards]


def _discard_undone_by_word() -> list[Patch]:
    """An operator is told that a discard is undone, and it stays on record."""
    return [(Discards, "undo", nothing)]


ENDS: tuple[Planted, ...] = (
    Planted(
        name="a topic is deleted on one broker's word",
        broken=("early end",),
        patches=_one_brokers_word,
    ),
    Planted(
        name="a topic is deleted without the second occasion",
        broken=("early end",),
        patches=_one_occasion,
    ),
    Planted(
        name="a topic that may not be seen is deleted",
        broken=("early end",),
        patches=_hidden_is_gone,
        among=(hidden,),
    ),
    Planted(
        name="a topic ends without the delay",
        broken=("early deletion",),
        patches=_no_delay,
    ),
    Planted(
        name="a topic ends by name instead of id",
        broken=("early deletion", "offset"),
        patches=_ends_by_name,
    ),
    Planted(
        name="what is kept of a topic is deleted",
        broken=("early deletion",),
        patches=_kept_goes_too,
        among=(kept,),
    ),
    Planted(
        name="the end of a topic leaves its settings",
        broken=("settings",),
        patches=_own_record_only,
    ),
    Planted(
        name="a disabled topic's data goes without the delay",
        broken=("remote log start", "early deletion"),
        patches=_no_delay,
        among=(disabled,),
    ),
    Planted(
        name="a deletion of a disabled topic that was undone goes on",
        broken=("early deletion", "early end", "remote log start"),
        patches=_undo_ignored,
        among=(disabled,),
    ),
    Planted(
        name="a disabled topic is forgotten before its segments are deleted",
        broken=("are left of what was to be deleted",),
        patches=_settings_first,
        among=(disabled,),
    ),
    Planted(
        name="a discard does not wait",
        broken=("early deletion", "remote log start"),
        patches=_discard_at_once,
        among=(discarded,),
    ),
    Planted(
        name="a discard deletes what the leading log has",
        broken=("early deletion", "remote log start", "offset"),
        patches=_discard_of_any_log,
        among=(discarded,),
        within=600,
    ),
    Planted(
        name="an undo of a discard changes nothing",
        broken=("is on record",),
        patches=_discard_undone_by_word,
        among=(discarded,),
    ),
)
