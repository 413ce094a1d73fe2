"""Two answers to the same question, field by field, and the differences that are allowed."""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.scenarios.twins.requests import TWIN, Asked
from tests.scenarios.twins.topics import LogOffsets, TwinTopics
from tests.scenarios.twins.wire import FETCH, LIST_OFFSETS

Json = dict[str, Any]
TwinPartition = tuple[str, int, int] | None
"""Role of the topic, partition, and which answer about it; None: said of the whole answer."""
Roles = Mapping[str | bytes, str]
"""Topic names and ids to roles."""

ABSENT = "absent"
_BATCH_HEAD = struct.Struct(">qi")
_LAST_DELTA_AT = 23
_TOPIC_FIELDS = ("topic_id", "topic", "name")
_INDEX_FIELDS = ("partition_index", "partition")
_EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING_UPLOAD = -4, -5, -6
_ASK_AGAIN = (5, 56)  # LEADER_NOT_AVAILABLE, KAFKA_STORAGE_ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A field that the proxy answers otherwise than the plain broker."""

    partition: TwinPartition
    field: str
    through: Any
    beside: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A question and its two answers: `through` the proxy, `beside` it."""

    asked: Asked
    through: dict[TwinPartition, Json]
    beside: dict[TwinPartition, Json]

    def differences(self, twins: TwinTopics) -> list[Difference]:
        """All of them, allowed ones aside."""
        found = []
        for partition in dict.fromkeys((*self.through, *self.beside)):
            ours, theirs = self.through.get(partition, {}), self.beside.get(partition, {})
            for field in dict.fromkeys((*ours, *theirs)):
                one = Difference(
                    partition=partition,
                    field=field,
                    through=ours.get(field, ABSENT),
                    beside=theirs.get(field, ABSENT),
                )
                if one.through != one.beside and not self._is_allowed(one, twins):
                    found.append(one)
        return found

    def is_not_ready(self, twins: TwinTopics) -> bool:
        """Whether the proxy says of something that differs "not yet", which it may, for a while:
        no records and no verdict either, or an error that has every client ask again.
        """
        partitions = {one.partition for one in self.differences(twins)}
        return any(_is_not_yet(self.through.get(partition, {})) for partition in partitions)

    def remote_records(self, twins: TwinTopics) -> int:
        """How many partitions were answered with records that only the remote store has."""
        return sum(
            partition is not None
            and partition[0] == TWIN
            and bool(ours.get("records"))
            and _base_offset(ours["records"]) < twins.offsets[partition[1]].local_start
            for partition, ours in self.through.items()
        )

    def _is_allowed(self, one: Difference, twins: TwinTopics) -> bool:
        return any(allowed.holds(self, one, twins) for allowed in ALLOWED)


def _is_not_yet(answered: Json) -> bool:
    error_code = answered.get("error_code")
    return error_code in _ASK_AGAIN or (error_code == 0 and answered.get("records") == b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """A difference that may be, and why."""

    reason: str
    holds: Callable[[Pair, Difference, TwinTopics], bool]


def _is_of_the_whole(field: str) -> Callable[[Pair, Difference, TwinTopics], bool]:
    return lambda _, one, __: one.partition is None and one.field == field


def _is_unseen_abort(pair: Pair, one: Difference, _: TwinTopics) -> bool:
    """What one of both names more begins behind the last record that they return."""
    if one.field != "aborted_transactions" or one.through is None or one.beside is None:
        return False
    end = end_offset(pair.through[one.partition]["records"])
    seen, wanted = (
        [row for row in rows if row["first_offset"] < end] for rows in (one.through, one.beside)
    )
    return seen == wanted


def _is_list_of_nothing(pair: Pair, one: Difference, _: TwinTopics) -> bool:
    """Of a partition that was given no room by those before it."""
    if one.field != "aborted_transactions" or len(pair.through) <= 2:
        return False
    return not pair.through[one.partition]["records"] and not pair.beside[one.partition]["records"]


def _is_behind_what_was_taken_out(pair: Pair, one: Difference, twins: TwinTopics) -> bool:
    """Nothing, behind a partition of the broker's whose first batch is larger than what was left:
    it was the first that the broker had records for, so the broker gave it that batch and had no
    room for others. It has to go without them where a remote one before it has records, or where
    its client's last fetched epoch diverges, which a broker does not see at its log start.
    """
    if pair.asked.api != FETCH or one.field not in ("records", "aborted_transactions"):
        return False
    has_remote, has_taken_out = False, False
    for role, row in pair.asked.fetched():
        partition = role, row["Partition"], 0
        if partition == one.partition:
            return has_taken_out and not bool(pair.through[partition]["records"])
        ours, theirs = pair.through[partition]["records"], pair.beside[partition]["records"]
        is_remote = role == TWIN and _is_remote(row, twins)
        has_remote |= bool(ours) and is_remote
        is_without = not is_remote and not ours and not theirs
        has_taken_out |= is_without and (has_remote or _diverges(pair.through[partition]))
    return False


def _is_behind_unused_room(pair: Pair, one: Difference, twins: TwinTopics) -> bool:
    """Fewer of the very records, of a partition of the broker's behind a remote one that has less
    than its room: that was not known yet when the broker was asked for what it left. None at all
    only where the remote one has none either, as its first batch did not fit.
    """
    if pair.asked.api != FETCH or one.field not in ("records", "aborted_transactions"):
        return False
    left_some, left_all = False, False
    for role, row in pair.asked.fetched():
        partition = role, row["Partition"], 0
        ours, theirs = (
            pair.through[partition]["records"] or b"",
            pair.beside[partition]["records"] or b"",
        )
        if partition == one.partition:
            return theirs.startswith(ours) and (left_all or (left_some and bool(ours)))
        if role == TWIN and _is_remote(row, twins):
            left_some |= len(ours) < row["PartitionMaxBytes"]
            left_all |= not ours and not theirs
    return False


def _diverges(answered: Json) -> bool:
    verdict = answered.get("diverging_epoch")
    return verdict is not None and verdict["epoch"] >= 0


def _is_remote(row: Json, twins: TwinTopics) -> bool:
    index = row["Partition"]
    return index < len(twins.offsets) and int(row["FetchOffset"]) < twins.offsets[index].local_start


def _is_answer_about_tiers(pair: Pair, one: Difference, twins: TwinTopics) -> bool:
    """Questions that have another answer because of the tiers: which one is known."""
    if pair.asked.api != LIST_OFFSETS or one.partition is None or one.partition[0] != TWIN:
        return False
    index = one.partition[1]
    timestamps = {
        row["Timestamp"]
        for topic in pair.asked.body["Topics"]
        for row in topic["Partitions"]
        if (topic["Role"], row["PartitionIndex"]) == (TWIN, index)
    }
    wanted = _of_tiers(timestamps.pop(), twins.offsets[index]) if len(timestamps) == 1 else None
    if wanted is None:
        return False
    known = {"offset": wanted, "leader_epoch": twins.logs[index].epoch_of(wanted)}
    return bool(one.through == known.get(one.field, ABSENT))


def _of_tiers(timestamp: int, offsets: LogOffsets) -> int | None:
    return {
        _EARLIEST_LOCAL: offsets.local_start,
        _LATEST_TIERED: offsets.remote_end - 1,
        _EARLIEST_PENDING_UPLOAD: offsets.remote_end,
    }.get(timestamp)


ALLOWED = (
    Allowed(
        reason="the proxy keeps every client in full fetches: it gives no session out",
        holds=_is_of_the_whole("session_id"),
    ),
    Allowed(
        reason="they name proxies",
        holds=_is_of_the_whole("node_endpoints"),
    ),
    Allowed(
        reason="a broker's offset index is sparse, so its list may reach beyond the records",
        holds=_is_unseen_abort,
    ),
    Allowed(
        reason="without records it says nothing, null or not: that hangs on bytes of cut batches",
        holds=_is_list_of_nothing,
    ),
    Allowed(
        reason="what the broker gave had to be taken out again, the next fetch gives it",
        holds=_is_behind_what_was_taken_out,
    ),
    Allowed(
        reason="a remote one before it was left more room than it has records that fit",
        holds=_is_behind_unused_room,
    ),
    Allowed(
        reason="-4, -5 and -6 ask which tier has what",
        holds=_is_answer_about_tiers,
    ),
)


def flat(answer: Json, roles: Roles) -> dict[TwinPartition, Json]:
    """Fields by partition; the order of topics and partitions means nothing to anybody."""
    topics = answer["responses"] if "responses" in answer else answer.get("topics", ())
    found: dict[TwinPartition, Json] = {
        None: {name: value for name, value in answer.items() if value is not topics}
    }
    for topic in topics:
        role = roles[next(topic[name] for name in _TOPIC_FIELDS if name in topic)]
        for partition in topic["partitions"]:
            index = next(partition[name] for name in _INDEX_FIELDS if name in partition)
            number = sum(key is not None and key[:2] == (role, index) for key in found)
            found[role, index, number] = _comparable(partition)
    return found


def _comparable(partition: Json) -> Json:
    """With whole batches only: brokers cut an answer anywhere, clients drop what is incomplete."""
    records: Any = partition.get("records")
    return partition if records is None else {**partition, "records": whole_batches(bytes(records))}


def whole_batches(records: bytes) -> bytes:
    """Without the rest of a batch behind them."""
    position = 0
    while position + _BATCH_HEAD.size <= len(records):
        _, size_bytes = _BATCH_HEAD.unpack_from(records, position)
        if position + _BATCH_HEAD.size + size_bytes > len(records):
            break
        position += _BATCH_HEAD.size + size_bytes
    return records[:position]


def end_offset(records: bytes) -> int:
    """The offset behind whole batches; 0 without any."""
    position, end = 0, 0
    while position < len(records):
        base, size_bytes = _BATCH_HEAD.unpack_from(records, position)
        (delta,) = struct.unpack_from(">i", records, position + _LAST_DELTA_AT)
        position, end = position + _BATCH_HEAD.size + size_bytes, base + delta + 1
    return end


def _base_offset(records: bytes) -> int:
    return int.from_bytes(records[:8], "big")
