"""The coordinator of the consumer groups of Kafka clients that read an attached reader.

Members are in memory: after a restart they join again, as their ids are known no more. Offsets are
in files. Nothing is known of the groups that the lost cluster had. Versions with static members and
with ids of topics are not offered, nor is the protocol of KIP-848: clients name what is missing.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from kafka_protocol.apis import (
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from kafka_protocol.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    GROUP_MAX_SIZE_REACHED,
    INVALID_COMMIT_OFFSET_SIZE,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    NONE,
    OFFSET_METADATA_TOO_LARGE,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kafka_protocol.schema import Api, Value, VersionRange
from kip405.addresses import Address
from kip405.errors import Invalid, RemoteStorageError
from kip405.ids import PartitionKey, Uuid
from rlm.clock import Clock, new_uuid
from rlm.history_proxy.committed import Committed, CommittedOffsets
from rlm.history_proxy.group import Group, JoinRequest, Reply
from rlm.remote_log.remote_only import RemoteView
from rlm.v1 import fetch_pb2

log = structlog.get_logger(__name__)

GROUP_APIS = {
    OFFSET_COMMIT: VersionRange(2, 6),
    OFFSET_FETCH: VersionRange(1, 7),
    FIND_COORDINATOR: VersionRange(0, 3),
    JOIN_GROUP: VersionRange(0, 4),
    HEARTBEAT: VersionRange(0, 2),
    LEAVE_GROUP: VersionRange(0, 2),
    SYNC_GROUP: VersionRange(0, 2),
}
MOST_MEMBERS = 256
"""Of all groups together, with those that are about to join."""
MOST_MEMBER_BYTES = 256 << 10
"""Of what one member says of itself to the leader: its subscription, for each protocol."""
LEAST_SESSION_MS, MOST_SESSION_MS = 6_000, 1_800_000
"""group.min.session.timeout.ms and group.max.session.timeout.ms, as Kafka has them."""
MOST_METADATA_BYTES = 4_096
"""offset.metadata.max.bytes of a committed offset."""
_EXPIRE_EVERY_MS = 500
_OF_A_GROUP = 0
_FIRST_WITH_ID_REQUIRED = 4
_UNKNOWN = -1


class GroupCoordinator:
    """Owns the members of groups, and nothing of what it is given."""

    def __init__(
        self,
        *,
        view: RemoteView,
        committed: CommittedOffsets,
        advertised: Address,
        node_id: int,
        clock: Clock,
    ) -> None:
        self._view = view
        self._committed = committed
        self._advertised = advertised
        self._node_id = node_id
        self._clock = clock
        self._groups: dict[str, Group] = {}

    async def run(self) -> None:
        """Remove members that are not heard any more, until cancelled."""
        while True:
            await self._clock.sleep_ms(_EXPIRE_EVERY_MS)
            self.expire()

    def expire(self) -> None:
        """See `run`; groups without members are forgotten."""
        now_ms = self._clock.monotonic_ms()
        for group in self._groups.values():
            group.expire(now_ms)
        self._groups = {key: one for key, one in self._groups.items() if one.size}

    async def answer(self, api: Api, version: int, request: Value) -> Value:
        """The answer to a request of GROUP_APIS."""
        if api is FIND_COORDINATOR:
            return self._found(request)
        if api is JOIN_GROUP:
            return await self._join(version, request)
        if api is SYNC_GROUP:
            return await self._sync(request)
        if api is OFFSET_COMMIT:
            return await self._commit(request)
        if api is OFFSET_FETCH:
            return await self._fetch(request)
        return {"error_code": self._beat(api, request)}

    def _found(self, request: Value) -> Value:
        """This node, for every group; nobody for transactions."""
        if request["key_type"] != _OF_A_GROUP:
            return _nobody(
                TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "an attached reader takes no records"
            )
        if not request["key"]:
            return _nobody(INVALID_GROUP_ID, "a group has an id")
        at = self._advertised
        return {"error_code": NONE, "node_id": self._node_id, "host": at.host, "port": at.port}

    async def _join(self, version: int, request: Value) -> Value:
        error = self._join_refusal(request)
        if error != NONE:
            member_id = request["member_id"]
            return {"error_code": error, "protocol_name": "", "member_id": member_id}
        session_ms = request["session_timeout_ms"]
        wait_ms = request["rebalance_timeout_ms"]
        joining = JoinRequest(
            member_id=request["member_id"],
            new_member_id=f"member-{new_uuid()}",
            needs_id=version >= _FIRST_WITH_ID_REQUIRED,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=wait_ms if wait_ms >= 0 else session_ms,
            protocol_type=request["protocol_type"],
            protocols={one["name"]: bytes(one["metadata"]) for one in request["protocols"]},
        )
        group = self._groups.setdefault(request["group_id"], Group())
        return await _reply(lambda reply: group.join(joining, reply, self._clock.monotonic_ms()))

    def _join_refusal(self, request: Value) -> int:
        if not request["group_id"]:
            return INVALID_GROUP_ID
        if not LEAST_SESSION_MS <= request["session_timeout_ms"] <= MOST_SESSION_MS:
            return INVALID_SESSION_TIMEOUT
        said = request["protocols"]
        if sum(len(one["name"]) + len(one["metadata"]) for one in said) > MOST_MEMBER_BYTES:
            return GROUP_MAX_SIZE_REACHED
        if request["member_id"]:
            return NONE if request["group_id"] in self._groups else UNKNOWN_MEMBER_ID
        is_full = sum(one.size for one in self._groups.values()) >= MOST_MEMBERS
        if is_full:
            log.warning("group_member_refused", limit=MOST_MEMBERS, group=request["group_id"])
        return GROUP_MAX_SIZE_REACHED if is_full else NONE

    async def _sync(self, request: Value) -> Value:
        group = self._groups.get(request["group_id"])
        if group is None:
            return {"error_code": UNKNOWN_MEMBER_ID}
        member_id, generation = request["member_id"], request["generation_id"]
        given = {one["member_id"]: bytes(one["assignment"]) for one in request["assignments"]}
        now_ms = self._clock.monotonic_ms()
        return await _reply(lambda reply: group.sync(member_id, generation, given, reply, now_ms))

    def _beat(self, api: Api, request: Value) -> int:
        """The error code of a Heartbeat or LeaveGroup."""
        group, now_ms = self._groups.get(request["group_id"]), self._clock.monotonic_ms()
        if group is None:
            return UNKNOWN_MEMBER_ID
        if api is HEARTBEAT:
            return group.heartbeat(request["member_id"], request["generation_id"], now_ms)
        return group.leave(request["member_id"], now_ms)

    def _may_commit(self, request: Value) -> int:
        generation = request["generation_id_or_member_epoch"]
        group = self._groups.get(request["group_id"])
        if not request["group_id"]:
            return INVALID_GROUP_ID
        if group is None:
            return NONE if generation < 0 else UNKNOWN_MEMBER_ID
        return group.may_commit(request["member_id"], generation, self._clock.monotonic_ms())

    async def _commit(self, request: Value) -> Value:
        """Who may is asked last: a rebalance may begin while the topics are found."""
        codes: dict[tuple[str, int], int] = {}
        wanted: dict[PartitionKey, Committed] = {}
        before = self._committed.of(request["group_id"])
        for topic in request["topics"]:
            topic_id, unknown = await self._topic_id(topic["name"])
            for row in topic["partitions"]:
                at = topic["name"], row["partition_index"]
                codes[at] = _row_refusal(row) or unknown
                if topic_id is None or codes[at] != NONE:
                    continue
                key = PartitionKey(topic_id, row["partition_index"])
                if key not in before and not self._view.is_there(key):
                    codes[at] = UNKNOWN_TOPIC_OR_PARTITION
                    continue
                wanted[key] = Committed(
                    topic=topic["name"],
                    offset=row["committed_offset"],
                    leader_epoch=row["committed_leader_epoch"],
                    metadata=row["committed_metadata"],
                )
        error = self._may_commit(request)
        if error == NONE and wanted:
            error = await self._written(request["group_id"], wanted)
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": row["partition_index"],
                        "error_code": error or codes[topic["name"], row["partition_index"]],
                    }
                    for row in topic["partitions"]
                ],
            }
            for topic in request["topics"]
        ]
        return {"topics": topics}

    async def _written(self, group_id: str, wanted: dict[PartitionKey, Committed]) -> int:
        try:
            await self._committed.commit(group_id, wanted)
        except Invalid as error:
            log.warning("commit_refused", group=group_id, error=str(error))
            return GROUP_MAX_SIZE_REACHED
        except RemoteStorageError:
            return COORDINATOR_NOT_AVAILABLE  # as of a broker that cannot write; logged there
        return NONE

    async def _topic_id(self, name: str) -> tuple[Uuid | None, int]:
        """Of a topic, or the error code of a name that has none."""
        try:
            found = await self._view.topic(fetch_pb2.TopicRef(name=name))
        except RemoteStorageError as error:
            is_early = error.retriable
            return None, COORDINATOR_LOAD_IN_PROGRESS if is_early else UNKNOWN_TOPIC_OR_PARTITION
        return found.topic_id, NONE

    async def _fetch(self, request: Value) -> Value:
        """What is committed; -1 where nothing is. An error of all, while topics are not known: a
        client would take -1 for a group that has never read.
        """
        group_id = request["group_id"]
        if not group_id:
            return {"error_code": INVALID_GROUP_ID, "topics": []}
        asked: dict[str, list[int]] = {}
        if request["topics"] is None:
            for key, known in self._committed.of(group_id).items():
                asked.setdefault(known.topic, []).append(key.partition)
        for topic in request["topics"] or ():
            asked.setdefault(topic["name"], []).extend(topic["partition_indexes"])
        topics, error = [], NONE
        for name, numbers in asked.items():
            topic_id, unknown = await self._topic_id(name)
            early = unknown if unknown == COORDINATOR_LOAD_IN_PROGRESS else NONE
            error = error or early
            rows = [self._position(group_id, topic_id, number, early) for number in numbers]
            topics.append({"name": name, "partitions": rows})
        return {"error_code": error, "topics": topics}

    def _position(
        self, group_id: str, topic_id: Uuid | None, partition: int, error: int
    ) -> dict[str, Any]:
        """Also of a partition of which nothing is left: its next record is read from there on."""
        row: dict[str, Any] = {"partition_index": partition, "committed_offset": _UNKNOWN}
        row |= {"metadata": "", "error_code": error}
        key = None if topic_id is None else PartitionKey(topic_id, partition)
        found = None if key is None else self._committed.of(group_id).get(key)
        if found is None:
            return row
        return {
            **row,
            "committed_offset": found.offset,
            "committed_leader_epoch": found.leader_epoch,
            "metadata": found.metadata,
        }


async def _reply(ask: Callable[[Reply], None]) -> Value:
    """What the group answers, now or later."""
    future: asyncio.Future[Value] = asyncio.get_running_loop().create_future()

    def reply(value: Value) -> None:
        if not future.done():  # of a connection that has ended
            future.set_result(value)

    ask(reply)
    return await future


def _row_refusal(row: Value) -> int:
    if row["committed_offset"] < 0:
        return INVALID_COMMIT_OFFSET_SIZE
    size_bytes = len((row["committed_metadata"] or "").encode())
    return OFFSET_METADATA_TOO_LARGE if size_bytes > MOST_METADATA_BYTES else NONE


def _nobody(error_code: int, message: str) -> Value:
    return {
        "error_code": error_code,
        "error_message": message,
        "node_id": _UNKNOWN,
        "host": "",
        "port": _UNKNOWN,
    }
