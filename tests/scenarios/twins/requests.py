"""Seeded random requests about positions and records: every version, every field, every border.

Topics are called by their role in a request; `named` puts in the topic with that role at a broker.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from tests.scenarios.twins.topics import PARTITIONS, LogOffsets, TwinTopics
from tests.scenarios.twins.wire import FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from tests.scenarios.twins.written_log import FIRST_MS, STEP_MS, WrittenLog

TWIN, OTHER, UNKNOWN = "twin", "other", "unknown"
_NO_PARTITION = 7
_FIRST_BY_ID = 13
_SIZES = (0, 1, 60, 200, 1_000, 5_000, 20_000, 60_000, 1 << 20, 50 << 20)
_WAITS_MS = (0, 1, 5, 20)
_LEAST = (0, 1, 1, 1, 500, 1 << 20)
_FULL, _NEW, _NONE = (0, -1), (0, 0), (77_777, 3)
_SESSIONS = (*[_FULL] * 12, *[_NEW] * 3, _NONE, (77_777, -1), (77_777, 0))
_SPECIAL_TIMESTAMPS = (-1, -2, -3, -4, -5, -6)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request, topics by role."""

    number: int
    api: str
    version: int
    body: Json

    def waiting(self, max_wait_ms: int) -> "Asked":
        """The same with more time."""
        return replace(self, body={**self.body, "MaxWaitMs": max_wait_ms})

    def fetched(self) -> Iterator[tuple[str, Json]]:
        """Role and partition, in the order asked; of one that is there twice only the last."""
        rows = [(one["Role"], row) for one in self.body["Topics"] for row in one["Partitions"]]
        last = {(role, row["Partition"]): row for role, row in rows}
        return ((role, row) for (role, _), row in last.items())

    def named(self, names: Mapping[str, str], ids: Mapping[str, bytes]) -> Json:
        """The request for one of the two."""
        by_id = self.api == FETCH and self.version >= _FIRST_BY_ID
        field = "Name" if self.api == LIST_OFFSETS else "TopicId" if by_id else "Topic"
        found = {role: ids[role] if by_id else name for role, name in names.items()}

        def with_names(topics: Sequence[Json]) -> list[Json]:
            return [{**topic, field: found[topic["Role"]]} for topic in topics]

        lists = {name: with_names(self.body[name]) for name in _LISTS if name in self.body}
        return {**self.body, **lists}


_LISTS = ("Topics", "ForgottenTopicsData")


class Requests:
    """Endless; every version of an API is asked in turn."""

    def __init__(self, chance: random.Random, twins: TwinTopics, versions: Mapping[str, range]):
        self._chance = chance
        self._twins = twins
        self._versions = {api: cycle(offered) for api, offered in versions.items()}
        self._number = 0

    def __iter__(self) -> Iterator[Asked]:
        kinds: tuple[tuple[str, Callable[[], Json]], ...] = (
            (FETCH, self._fetch),
            (LIST_OFFSETS, self._list_offsets),
            (OFFSET_FOR_LEADER_EPOCH, self._epoch_ends),
        )
        while True:
            [(api, make)] = self._chance.choices(kinds, (5, 2, 1))
            self._number += 1
            version = next(self._versions[api])
            yield Asked(number=self._number, api=api, version=version, body=make())

    def _topics(self, one: Callable[[str, int], Json]) -> list[Json]:
        """One to five partitions, some of other topics, one perhaps twice; topics in some order."""
        partitions = [self._partition() for _ in range(self._chance.choice((1, 1, 2, 3, 5)))]
        if self._chance.random() < 0.9:
            partitions = list(dict.fromkeys(partitions))
        roles = list(dict.fromkeys(role for role, _ in partitions))
        return [
            {
                "Role": role,
                "Partitions": [one(role, index) for of, index in partitions if of == role],
            }
            for role in roles
        ]

    def _partition(self) -> tuple[str, int]:
        role = self._chance.choices((TWIN, OTHER, UNKNOWN), (20, 2, 1))[0]
        index = self._chance.randrange(PARTITIONS)
        return role, _NO_PARTITION if self._chance.random() < 0.03 else index

    def _fetch(self) -> Json:
        pick = self._chance.choice
        session_id, session_epoch = pick(_SESSIONS)
        body: Json = {
            "ReplicaId": -1,
            "MaxWaitMs": pick(_WAITS_MS),
            "MinBytes": pick(_LEAST),
            "MaxBytes": pick(_SIZES),
            "IsolationLevel": pick((0, 1)),
            "SessionId": session_id,
            "SessionEpoch": session_epoch,
            "RackId": pick(("", "", "rack-1", "elsewhere")),
            "Topics": self._topics(self._fetched),
        }
        if self._chance.random() < 0.05:
            body["ForgottenTopicsData"] = [{"Role": OTHER, "Partitions": [0, 1]}]
        return body

    def _fetched(self, role: str, index: int) -> Json:
        pick = self._chance.choice
        body = {
            "Partition": index,
            "CurrentLeaderEpoch": self._current_epoch(),
            "FetchOffset": self._offset(role, index),
            "LastFetchedEpoch": pick((-1, -1, -1, self._epoch())),
            "LogStartOffset": pick((-1, -1, 0, 300)),
            "PartitionMaxBytes": pick(_SIZES),
        }
        if self._chance.random() < 0.1:
            body["HighWatermark"] = pick((-1, 0, 1 << 40))
        return body

    def _list_offsets(self) -> Json:
        return {
            "ReplicaId": -1,
            "IsolationLevel": self._chance.choice((0, 1)),
            "TimeoutMs": self._chance.choice((0, 1_000)),
            "Topics": self._topics(self._listed),
        }

    def _listed(self, role: str, index: int) -> Json:
        return {
            "PartitionIndex": index,
            "CurrentLeaderEpoch": self._current_epoch(),
            "Timestamp": self._timestamp(role, index),
        }

    def _epoch_ends(self) -> Json:
        def one(role: str, index: int) -> Json:
            current = self._current_epoch()
            return {"Partition": index, "CurrentLeaderEpoch": current, "LeaderEpoch": self._epoch()}

        return {"ReplicaId": -1, "Topics": self._topics(one)}

    def _epoch(self) -> int:
        """A leader epoch that was, is, or never was."""
        latest = self._twins.offsets[0].leader_epoch
        epochs: tuple[int, ...] = (-1, *range(latest + 1), latest + 1, latest + 3)
        return self._chance.choice(epochs)

    def _current_epoch(self) -> int:
        """Mostly none or the right one: what is refused is not answered any further."""
        latest = self._twins.offsets[0].leader_epoch
        epochs = [-1] * 8 + [latest] * 5 + [latest - 1, 0, latest + 1]
        return self._chance.choice(epochs)

    def _log(self, role: str, index: int) -> tuple[WrittenLog, LogOffsets] | None:
        known = role == TWIN and index < PARTITIONS
        return (self._twins.logs[index], self._twins.offsets[index]) if known else None

    def _offset(self, role: str, index: int) -> int:
        known = self._log(role, index)
        if known is None:
            return self._chance.choice((-1, 0, 0, 5))
        log, offsets = known
        batch = self._chance.choice(log.batches)
        borders = (
            offsets.log_start,
            offsets.local_start,
            offsets.remote_end,
            offsets.last_stable,
            offsets.log_end,
            self._chance.choice(sorted(log.segments)),
        )
        return self._chance.choice(
            (
                *(border + self._chance.choice((-1, 0, 0, 1)) for border in borders),
                batch.base_offset,
                (batch.base_offset + batch.last_offset) // 2,
                batch.last_offset,
                self._chance.randint(offsets.log_start, offsets.local_start),
                self._chance.randint(offsets.log_start, offsets.local_start),
                self._chance.randint(-2, offsets.log_end + 20),
                self._chance.choice((-1, 0, 1 << 40, offsets.log_end + 1_000)),
            )
        )

    def _timestamp(self, role: str, index: int) -> int:
        known = self._log(role, index)
        if known is None or self._chance.random() < 0.4:
            return self._chance.choice(_SPECIAL_TIMESTAMPS)
        log, _ = known
        near = self._chance.choice(log.batches).max_ms + self._chance.randint(-2, 2) * STEP_MS // 2
        anywhere = FIRST_MS + self._chance.randint(-50, 11_000) * STEP_MS
        return self._chance.choice((near, near, near, near + 1, anywhere, 0, 1_000, 1_001, 1 << 50))


def known_cases(twins: TwinTopics) -> list[Asked]:
    """What once was answered wrongly; partition 0, unless it takes several."""
    offsets, latest = twins.offsets[0], twins.offsets[0].leader_epoch
    remote, large = offsets.local_start - 1, 1 << 20
    bodies: list[tuple[str, int, Json]] = [
        *((FETCH, 12, _one(at, LastFetchedEpoch=latest + 3)) for at in (remote, offsets.log_end)),
        *((FETCH, 12, _one(at, LastFetchedEpoch=0)) for at in (remote, offsets.log_end + 1)),
        (FETCH, 13, _one(offsets.log_start + 1, LastFetchedEpoch=0)),
        (FETCH, 18, _one(offsets.remote_end + 1, LastFetchedEpoch=1)),
        (FETCH, 11, {**_one(remote), "MaxBytes": 0}),
        (FETCH, 4, {**_one(remote), "MaxWaitMs": 1}),
        (FETCH, 9, _one(offsets.log_start, PartitionMaxBytes=large)),
        (FETCH, 17, {**_one(offsets.log_start, PartitionMaxBytes=large), "IsolationLevel": 1}),
        (FETCH, 12, _several((0, remote), (0, offsets.log_end), (0, offsets.log_start))),
        (FETCH, 16, {**_several((0, remote), (1, twins.offsets[1].local_start)), "MaxBytes": 1}),
        (FETCH, 12, _several((1, twins.offsets[1].local_start), (0, remote), max_bytes=1)),
        (OFFSET_FOR_LEADER_EPOCH, 4, _epoch_ends_of(0, 2)),
        (OFFSET_FOR_LEADER_EPOCH, 2, _epoch_ends_of(2, latest + 3)),
    ]
    return [
        Asked(number=-number, api=api, version=version, body=body)
        for number, (api, version, body) in enumerate(bodies)
    ]


def _one(offset: int, **fields: int) -> Json:
    asked = {"Partition": 0, "FetchOffset": offset, "PartitionMaxBytes": 1_000, **fields}
    topics = [{"Role": TWIN, "Partitions": [asked]}]
    return {"MaxWaitMs": 20, "MinBytes": 1, "SessionEpoch": -1, "Topics": topics}


def _several(*partitions: tuple[int, int], max_bytes: int = 1_000) -> Json:
    asked = [
        {"Partition": index, "FetchOffset": offset, "PartitionMaxBytes": max_bytes}
        for index, offset in partitions
    ]
    return {**_one(0), "Topics": [{"Role": TWIN, "Partitions": asked}]}


def _epoch_ends_of(*epochs: int) -> Json:
    """Of the same partition."""
    partitions = [{"Partition": 0, "LeaderEpoch": epoch} for epoch in epochs]
    return {"ReplicaId": -1, "Topics": [{"Role": TWIN, "Partitions": partitions}]}
