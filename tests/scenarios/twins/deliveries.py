"""What a group of consumers was given, checked against the log: nothing skipped, nothing twice but
what follows a lost member's last commit, in order.

A member has a partition from its assignment to the next revocation: one stint. The records of a
stint are consecutive ones of the log, and the first is the one at the group's last commit. A commit
whose answer did not come may count or not. This module must not know Kafka.
"""

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Record = tuple[int, str]
"""Offset, and a digest of everything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What happened to one member. `what`: assigned, revoked, records, committing, committed, lost
    (killed) or left; `offsets` are those of a commit.
    """

    at_ns: int
    member: str
    what: str
    partitions: tuple[int, ...] = ()
    records: Mapping[int, Sequence[Record]] = field(default_factory=dict)
    offsets: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Deliveries:
    """The partitions of a topic as one group has read them. AssertionError names what is wrong.

    `expected`: the records by partition. `trimmed_to`: below these offsets records may be skipped,
    because the reader's tier did not have them for all of the time.
    """

    expected: Mapping[int, Sequence[Record]]
    trimmed_to: Mapping[int, int] = field(default_factory=dict)
    reread: int = 0
    stints: int = 0
    _owners: dict[int, str] = field(default_factory=dict)
    _lost: set[str] = field(default_factory=set)
    _starts: dict[int, set[int]] = field(default_factory=dict)
    _next: dict[int, int | None] = field(default_factory=dict)
    _given: dict[int, set[int]] = field(default_factory=dict)

    def check(self, events: Iterable[Event]) -> None:
        """All that happened to all members of the group, to the end of the log."""
        for event in sorted(events, key=lambda one: one.at_ns):
            match event.what:
                case "assigned":
                    self._assigned(event)
                case "revoked":
                    self._revoked(event)
                case "records":
                    self._records(event)
                case "committing":
                    for partition, offset in event.offsets.items():
                        self._may_start(partition).add(offset)
                case "committed":
                    self._starts.update({one: {at} for one, at in event.offsets.items()})
                case "lost" | "left":
                    self._lost.add(event.member)
        self._check_end()

    def _assigned(self, event: Event) -> None:
        for partition in event.partitions:
            owner = self._owners.get(partition)
            is_free = owner in (None, event.member) or owner in self._lost
            assert is_free, f"partition {partition}: {event.member} has it, and {owner} too"
            self._owners[partition] = event.member
            self._next[partition] = None
            self.stints += 1

    def _revoked(self, event: Event) -> None:
        for partition in event.partitions:
            owner = self._owners.pop(partition, None)
            assert owner == event.member, f"partition {partition} was {owner}'s, not {event.member}"

    def _records(self, event: Event) -> None:
        for partition, records in event.records.items():
            owner = self._owners.get(partition)
            assert owner == event.member, f"{event.member} reads {partition}, which is {owner}'s"
            for record in records:
                at = self._index_of(partition, record)
                given = self._given.setdefault(partition, set())
                self.reread += at in given
                given.add(at)
                self._next[partition] = at + 1

    def _index_of(self, partition: int, record: Record) -> int:
        expected, at = self.expected[partition], self._next[partition]
        if at is not None:
            wanted = [at]
        else:
            starts = sorted(self._may_start(partition))
            wanted = [bisect.bisect_left(expected, (one, "")) for one in starts]
        for index in wanted:
            found = self._passing(partition, index, record)
            if found < len(expected) and expected[found] == record:
                return found
        due = [expected[one] for one in wanted if one < len(expected)]
        first = "first of a stint" if at is None else "next"
        raise AssertionError(f"partition {partition}: {record} came, due was as {first} {due}")

    def _passing(self, partition: int, index: int, record: Record) -> int:
        """The index from there on, without those that may be skipped."""
        expected, trimmed = self.expected[partition], self.trimmed_to.get(partition, 0)
        while index < len(expected) and expected[index] != record and expected[index][0] < trimmed:
            index += 1
        return index

    def _may_start(self, partition: int) -> set[int]:
        return self._starts.setdefault(partition, {0})

    def _check_end(self) -> None:
        for partition, expected in self.expected.items():
            given, trimmed = self._given.get(partition, set()), self.trimmed_to.get(partition, 0)
            missing = [
                one[0] for at, one in enumerate(expected) if at not in given and one[0] >= trimmed
            ]
            assert not missing, f"partition {partition}: {len(missing)} never came: {missing[:5]}"


def rebalances(events: Iterable[Event]) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """What each member's listener was called with, in order. A rebalance that gave a member what it
    had counts as none: brokers begin some on their own, at another time for each group.
    """
    found: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    for event in sorted(events, key=lambda one: one.at_ns):
        if event.what not in ("assigned", "revoked"):
            continue
        calls = found.setdefault(event.member, [])
        calls.append((event.what, tuple(sorted(event.partitions))))
        is_same = len(calls) > 2 and calls[-1] == calls[-3] and event.what == "assigned"
        if is_same:
            del calls[-2:]
    return found
