"""Which fact counts: fold of the settings topic by docs/reference/formats.md, "Settings".

The newest record of a key is adopted, but never a remote log start lower than one seen (H2), and
never a fact written under an older leader epoch than the newest seen for its key. What was not
adopted leaves the key in `reassert`: the partition's leader writes the adopted fact again.

Facts that must not be denied by a late record bear what their writer knew (`fact_headers`): one
that did not know the adopted record of its key, and is of no newer epoch, does not count; nor does
a tombstone that did not know what it would remove, or is of an older epoch. Pure. Must not know how
facts travel.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kip405.errors import Corrupt
from kip405.ids import PartitionKey, Uuid
from rlmm.fact_codec import decode_fact
from rlmm.fact_headers import Headers, WriterKnowledge
from rlmm.facts import (
    NO_LEADER_EPOCH,
    ClusterFact,
    DivergenceFact,
    Fact,
    FreezeFact,
    HistoryFact,
    HolesFact,
    ReaderFact,
    ServiceFact,
    Stamp,
    StartFact,
    StoreFact,
    TopicFact,
    TrimFact,
)
from rlmm.ledger import Hole
from rlmm.log_time import MOST_SKEW_MS, ClockSkew, LogTime, RecordTimes

FENCED_FACTS = (TopicFact, HistoryFact, DivergenceFact, HolesFact)
"""Facts whose late record could undo a newer one. Heartbeats only go on, starts only rise, a freeze
that lands late errs on the safe side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedFact:
    """The fact that counts for its key, who wrote it, and the offset of its record.

    `times`: when it was appended and read, None where nobody said.
    """

    fact: Fact
    stamp: Stamp
    offset: int
    times: RecordTimes | None = None


class SettingsView:
    """What one reader has made of the settings topic; `apply` awaits nothing."""

    def __init__(self) -> None:
        self._adopted: dict[str, AdoptedFact] = {}
        self._newest_epoch: dict[str, int] = {}
        self._overruled: dict[str, int] = {}
        self._problems: dict[bytes, str] = {}
        self._log_time = LogTime()
        self.next_offset = 0
        """Every record below was read."""
        self.version = 0

    def apply(
        self,
        *,
        key: bytes | None,
        value: bytes | None,
        offset: int,
        times: RecordTimes | None = None,
        headers: Headers = (),
    ) -> None:
        """Take the next record in; one that cannot be read is remembered as a problem until its
        key is mended.
        """
        self.version += 1
        self.next_offset = offset + 1
        if times is not None:
            self._log_time.note(times)
        name = key or b""
        self._problems.pop(name, None)
        try:
            knew = WriterKnowledge.decode(headers)
            decoded = None if value is None else decode_fact(name, value)
        except Corrupt as error:
            self._problems[name] = f"settings offset {offset}: {error}"
            return
        if value is None:
            self._remove(name.decode(errors="replace"), offset, knew)
        elif decoded is not None:
            fact, stamp = decoded
            newcomer = AdoptedFact(fact=fact, stamp=stamp, offset=offset, times=times)
            self._consider(newcomer, knew.seen if knew else None)

    @property
    def problem(self) -> str | None:
        """Why nothing may be deleted or trimmed; None = all was understood."""
        return next(iter(self._problems.values()), None)

    @property
    def reassert(self) -> tuple[AdoptedFact, ...]:
        """Adopted facts that a newer record denies; the leader of the partition publishes them
        again.
        """
        return tuple(self._adopted[key] for key in self._overruled)

    def get(self, key: str) -> AdoptedFact | None:
        """The adopted fact of a key, with its stamp."""
        return self._adopted.get(key)

    def facts(self) -> Iterator[AdoptedFact]:
        """Every adopted fact, by key."""
        return iter([self._adopted[key] for key in sorted(self._adopted)])

    @property
    def cluster(self) -> ClusterFact | None:
        fact = self._fact("cluster")
        return fact if isinstance(fact, ClusterFact) else None

    def store(self, store_id: Uuid) -> StoreFact | None:
        fact = self._fact(f"{StoreFact.KIND}/{store_id}")
        return fact if isinstance(fact, StoreFact) else None

    def stores(self) -> tuple[StoreFact, ...]:
        return tuple(found.fact for found in self.facts() if isinstance(found.fact, StoreFact))

    def topic(self, topic_id: Uuid) -> TopicFact | None:
        fact = self._fact(f"{TopicFact.KIND}/{topic_id}")
        return fact if isinstance(fact, TopicFact) else None

    def topics(self) -> tuple[TopicFact, ...]:
        return tuple(found.fact for found in self.facts() if isinstance(found.fact, TopicFact))

    def services(self) -> tuple[tuple[ServiceFact, Stamp], ...]:
        """Heartbeats; `stamp.time_ms` is by the writer's clock: see `heard_age_ms`."""
        return tuple(
            (found.fact, found.stamp)
            for found in self.facts()
            if isinstance(found.fact, ServiceFact)
        )

    def readers(self) -> tuple[tuple[ReaderFact, Stamp], ...]:
        """Heartbeats of services without a broker, likewise."""
        return tuple(
            (found.fact, found.stamp)
            for found in self.facts()
            if isinstance(found.fact, ReaderFact)
        )

    def heard_age_ms(self, key: str, monotonic_ms: int) -> int | None:
        """How long ago a fact was heard, None = not since this process follows the log (G1, H16).

        For who relies upon it that a writer is alive; clocks of writers play no part in it.
        """
        return self._log_time.heard_age_ms(self._times(key), monotonic_ms)

    def least_age_ms(self, key: str, monotonic_ms: int) -> int | None:
        """How old a fact is at least, for showing: of a replay it may be older. None = unknown."""
        return self._log_time.least_age_ms(self._times(key), monotonic_ms)

    def clock_skews(self) -> tuple[ClockSkew, ...]:
        """Services whose clock was more than MOST_SKEW_MS off the brokers' at their last heartbeat,
        by node id.
        """
        skews = (_clock_skew(found) for found in self.facts())
        return tuple(skew for skew in skews if skew and abs(skew.skew_ms) > MOST_SKEW_MS)

    def _times(self, key: str) -> RecordTimes | None:
        found = self._adopted.get(key)
        return found.times if found else None

    def remote_log_start(self, partition: PartitionKey) -> int | None:
        """The durable remote log start offset; None = never set, so nothing may be deleted (H2)."""
        fact = self._fact(f"{StartFact.KIND}/{partition}")
        return fact.remote_log_start_offset if isinstance(fact, StartFact) else None

    def remote_log_start_epoch(self, partition: PartitionKey) -> int:
        """The leader epoch under which the remote log start was decided, -1 where none was or it
        does not say.

        The epoch it was written under is no answer: the leader of a log that began anew may have
        written it again for another one's lower start, and what is in that log nobody ended (H4).
        So one that does not say is taken for older than every record.
        """
        found = self._adopted.get(f"{StartFact.KIND}/{partition}")
        if found is None or not isinstance(found.fact, StartFact):
            return NO_LEADER_EPOCH
        decided = found.fact.decided_epoch
        return NO_LEADER_EPOCH if decided is None else min(decided, found.stamp.leader_epoch)

    def trim(self, partition: PartitionKey) -> TrimFact | None:
        fact = self._fact(f"{TrimFact.KIND}/{partition}")
        return fact if isinstance(fact, TrimFact) else None

    def holes(self, partition: PartitionKey) -> tuple[Hole, ...]:
        fact = self._fact(f"{HolesFact.KIND}/{partition}")
        return fact.holes if isinstance(fact, HolesFact) else ()

    def divergence(self, partition: PartitionKey) -> DivergenceFact | None:
        fact = self._fact(f"{DivergenceFact.KIND}/{partition}")
        return fact if isinstance(fact, DivergenceFact) else None

    def history(self, partition: PartitionKey) -> HistoryFact | None:
        """What the leader has told of the partition's history (H4). Corrupt: it told something that
        this version cannot read, so nothing is known.
        """
        key = f"{HistoryFact.KIND}/{partition}"
        unread = self._problems.get(key.encode())
        if unread is not None:
            raise Corrupt(unread)
        fact = self._fact(key)
        return fact if isinstance(fact, HistoryFact) else None

    def freeze(self, topic_id: Uuid) -> tuple[FreezeFact, ...]:
        """Freezes that hold for a topic: the cluster's and its own."""
        found = (self._fact(FreezeFact.KIND), self._fact(f"{FreezeFact.KIND}/{topic_id}"))
        return tuple(fact for fact in found if isinstance(fact, FreezeFact))

    def is_stopped(self, topic_id: Uuid, what: str) -> bool:
        """Whether `what` (trim, delete, sweep) is frozen for the topic."""
        return any(what in freeze.stopped for freeze in self.freeze(topic_id))

    def _fact(self, key: str) -> Fact | None:
        found = self._adopted.get(key)
        return found.fact if found else None

    def _forget(self, key: str) -> None:
        self._adopted.pop(key, None)
        self._newest_epoch.pop(key, None)
        self._overruled.pop(key, None)

    def _remove(self, key: str, offset: int, knew: WriterKnowledge | None) -> None:
        if knew is not None and self.objection_to_removal(key, knew) is not None:
            self._overruled[key] = offset
        else:
            self._forget(key)

    def objection_to_removal(self, key: str, knew: WriterKnowledge) -> str | None:
        """Why a tombstone would not count if it were the next record; None = it would."""
        adopted = self._adopted.get(key)
        if adopted is None:
            return None
        if adopted.offset >= knew.seen:
            return _unaware(adopted, knew.seen)
        newest_epoch = self._newest_epoch.get(key, knew.leader_epoch)
        if knew.leader_epoch < newest_epoch:
            return f"leader epoch {knew.leader_epoch} is older than {newest_epoch}"
        return None

    def objection(self, fact: Fact, leader_epoch: int, seen: int | None = None) -> str | None:
        """Why a fact would not count if it were the next record; None = it would.

        `seen`: how far its writer had read, None = it does not say.
        """
        newest_epoch = self._newest_epoch.get(fact.key, leader_epoch)
        if leader_epoch < newest_epoch:
            return f"leader epoch {leader_epoch} is older than {newest_epoch}"
        adopted = self._adopted.get(fact.key)
        if adopted and _lowers_start(adopted.fact, fact):
            return "the remote log start never goes back"
        if (
            adopted is not None
            and seen is not None
            and isinstance(fact, FENCED_FACTS)
            and adopted.offset >= seen
            and leader_epoch <= adopted.stamp.leader_epoch
        ):
            return _unaware(adopted, seen)
        return None

    def _consider(self, newcomer: AdoptedFact, seen: int | None) -> None:
        key = newcomer.fact.key
        epoch = newcomer.stamp.leader_epoch
        why = self.objection(newcomer.fact, epoch, seen)
        self._newest_epoch[key] = max(self._newest_epoch.get(key, epoch), epoch)
        if why and key in self._adopted:
            self._overruled[key] = newcomer.offset
            return
        self._overruled.pop(key, None)
        self._adopted[key] = newcomer


def _unaware(adopted: AdoptedFact, seen: int) -> str:
    return f"its writer had read to {seen} and did not know the record at {adopted.offset}"


def _clock_skew(found: AdoptedFact) -> ClockSkew | None:
    if found.times is None or not isinstance(found.fact, ServiceFact | ReaderFact):
        return None
    return ClockSkew(
        node_id=found.stamp.node_id,
        who=found.fact.key,
        skew_ms=found.stamp.time_ms - found.times.appended_ms,
    )


def _lowers_start(adopted: Fact, newcomer: Fact) -> bool:
    return (
        isinstance(adopted, StartFact)
        and isinstance(newcomer, StartFact)
        and newcomer.remote_log_start_offset < adopted.remote_log_start_offset
    )
