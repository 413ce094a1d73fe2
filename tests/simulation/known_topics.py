"""Topics by their ids: which exist, what was decided of their remote data, and what may go.

The truth is the controller's: a topic is deleted when that says so, whatever brokers and services
know. What was decided is what counts in the settings topic, whoever wrote it. Remote data may go
some time after it was decided. Of a topic that was deleted that may be decided when every broker
has not known the topic for a while; of one that stays in Kafka an operator decides it
(`rlm topics disable --delete`), and then what lies below the brokers' log starts is in no tier.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kip405.ids import PartitionKey, Uuid
from rlm.topics.recreated import is_gone_end
from rlmm.log_reader import TailRecord
from rlmm.records import ledger_partition
from rlmm.settings_records import DELETION_DISABLE, TopicRecord
from rlmm.settings_view import SettingsView
from tests.builders.log_dir import TOPIC_ID
from tests.simulation.ends import Ends
from tests.simulation.invariants import Broken
from tests.simulation.model_broker import Batch
from tests.simulation.model_log import ModelTopics
from tests.simulation.model_service import (
    DELETE_DELAY_MS,
    KEY,
    LEDGER,
    SETTINGS,
    TOPIC_GRACE_MS,
)

_MOST_TOPICS = 4


def _ids() -> Iterator[Uuid]:
    """Ids of topics whose partition 0 has its records in the same partition of the ledger."""
    number = 0
    while True:
        number += 1
        one = Uuid(number.to_bytes(16, "big"))
        if ledger_partition(PartitionKey(one, 0)) == ledger_partition(KEY):
            yield one


_OTHER_IDS = tuple(one for one, _ in zip(_ids(), range(_MOST_TOPICS), strict=False))


@dataclass(slots=True)
class TopicLife:
    """One topic. `history`: of its log when it was deleted, with what lay below its start."""

    topic_id: Uuid
    ends: Ends
    deleted_ms: int | None = None
    history: Sequence[Batch] = ()
    decided_ms: int | None = None
    """When it was decided that its remote data goes; None = that is not decided now."""
    is_kept: bool = False
    """An operator keeps its remote data, and knows that."""
    is_disabled: bool = False
    """An operator has disabled it, or tried to; only `rlm topics enable` enables it again."""
    times_disabled: int = 0
    has_begun: bool = False
    """Something of it was deleted, or put out of reach, as an operator disabled it."""

    @property
    def key(self) -> PartitionKey:
        return PartitionKey(self.topic_id, 0)


@dataclass(slots=True)
class KnownTopics:
    """All topics that ever had the name, the newest last."""

    topics: ModelTopics
    all: list[TopicLife]
    view: SettingsView = field(default_factory=SettingsView)
    """What counts in the settings topic, by whoever reads all of it."""

    @classmethod
    def first(cls, topics: ModelTopics, ends: Ends) -> "KnownTopics":
        return cls(topics, [TopicLife(TOPIC_ID, ends)])

    @property
    def current(self) -> TopicLife:
        """The topic that has the name, or had it last."""
        return self.all[-1]

    @property
    def deleted(self) -> Sequence[TopicLife]:
        return [one for one in self.all if one.deleted_ms is not None]

    def of(self, topic_id: Uuid) -> TopicLife:
        return next(one for one in self.all if one.topic_id == topic_id)

    def delete(self, history: Sequence[Batch]) -> None:
        """The controller deletes the current topic."""
        self.current.deleted_ms = self.topics.clock.now_ms()
        self.current.history = tuple(history)

    def create(self, ends: Ends) -> Uuid | None:
        """Another topic gets the name; None where there were enough."""
        if len(self.all) > len(_OTHER_IDS):
            return None
        life = TopicLife(_OTHER_IDS[len(self.all) - 1], ends)
        self.all.append(life)
        return life.topic_id

    def take(self, record: TailRecord) -> None:
        """A record of the settings topic is about to be appended. Broken: it decides too early that
        the remote data of a topic goes.
        """
        self.view.apply(
            key=record.key, value=record.value, offset=record.offset, headers=record.headers
        )
        for life in self.all:
            found = self.view.topic(life.topic_id)
            if found is None or found.state != "deleting":
                life.decided_ms = None
                life.has_begun = life.has_begun and found is not None and found.state == "kept"
            elif life.decided_ms is None:
                life.decided_ms = self.topics.clock.now_ms()
                self._check_decision(life, found)

    def _check_decision(self, life: TopicLife, record: TopicRecord) -> None:
        if not is_gone_end(record):
            return
        now_ms = self.topics.clock.now_ms()
        gone_ms = -1 if life.deleted_ms is None else now_ms - life.deleted_ms
        if gone_ms < TOPIC_GRACE_MS:
            when = "which exists" if gone_ms < 0 else f"{gone_ms} ms after it was deleted"
            raise Broken(f"early end: it is decided of topic {life.topic_id}, {when}")

    def may_go(self, life: TopicLife) -> bool:
        """Whether all that is remote of a topic may be deleted now."""
        found, now_ms = self.view.topic(life.topic_id), self.topics.clock.now_ms()
        is_due = life.decided_ms is not None and now_ms - life.decided_ms >= DELETE_DELAY_MS
        if life.deleted_ms is None:
            return is_due and found is not None and found.deletion_cause == DELETION_DISABLE
        if life.is_kept:
            return False
        return found is None or is_due  # it was ended; what is left came later

    def begin_disabled_end(self, life: TopicLife) -> None:
        """Of a topic that stays in Kafka, what lies below its log starts is about to go."""
        life.has_begun = True
        life.ends.ask(life.ends.trimmed)

    def has_ended(self, record: TailRecord) -> TopicLife | None:
        """The topic that stays in Kafka and whose deletion is over with this record, which is about
        to be appended; None = it is of something else.
        """
        for life in self.all:
            own = f"{TopicRecord.KIND}/{life.topic_id}".encode()
            if life.deleted_ms is None and record.key == own and record.value is None:
                return life
        return None

    def is_kept(self, life: TopicLife) -> bool:
        """Whether the newest decision is that its remote data stays, whoever knows that."""
        found = self.view.topic(life.topic_id)
        return found is not None and found.state == "kept"

    def left(self, life: TopicLife, names: Sequence[str]) -> str | None:
        """What is there of a deleted topic, None = nothing. `names`: its objects."""
        keys = self.view.keys_of(life.topic_id) and self._read_again().keys_of(life.topic_id)
        if keys:
            return f"settings {keys} of deleted topic {life.topic_id}"
        raw = life.topic_id.raw
        newest = {one.key: one for one in self.topics.records.get(LEDGER, [])}
        left = [one for key, one in newest.items() if key and key[:16] == raw and one.value]
        if left:
            return f"ledger records {[one.offset for one in left]} of deleted topic {life.topic_id}"
        return f"objects {names} of deleted topic {life.topic_id}" if names else None

    def _read_again(self) -> SettingsView:
        """What a service reads that starts now. Compaction may have removed the record that
        overruled the newest one of its key: then the newest counts.
        """
        view = SettingsView()
        for one in self.topics.records.get(SETTINGS, []):
            view.apply(key=one.key, value=one.value, offset=one.offset, headers=one.headers)
        return view
