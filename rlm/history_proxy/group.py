"""The members of one consumer group, by Kafka's classic protocol: who joins, leads and has which
partitions. Pure.

    EMPTY --join--> PREPARING --all have joined, or deadline--> COMPLETING --leader syncs--> STABLE
      ^                 ^                                            |                         |
      |                 +------ join, leave, expiry, deadline -------+-------------------------+
      +--- nobody is left (from PREPARING)

A request is answered by its `Reply`, exactly once: at once, or when others have come or the time is
over. Times are those of a monotonic clock. Codes and order of checks are those of Kafka's
GroupCoordinator. There are no static members (group.instance.id): the versions that have them are
not offered. This module must not know offsets.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from kafka_protocol.error_codes import (
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    MEMBER_ID_REQUIRED,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from kafka_protocol.schema import Value

Reply = Callable[[Value], None]


class GroupState(Enum):
    """Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """`new_member_id`: the id of one that has none yet. `needs_id`: such a one has to join again
    with it (KIP-394), so that lost answers leave no members behind. `protocols`: by preference.
    """

    member_id: str
    new_member_id: str
    needs_id: bool
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Mapping[str, bytes]


@dataclass(slots=True, kw_only=True)
class _Member:
    member_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Mapping[str, bytes]
    expires_ms: int
    join: Reply | None = None
    sync: Reply | None = None
    assignment: bytes = b""

    @property
    def is_waiting(self) -> bool:
        return self.join is not None or self.sync is not None

    def seen(self, now_ms: int) -> None:
        self.expires_ms = now_ms + self.session_timeout_ms

    def answer_join(self, value: Value) -> None:
        reply, self.join = self.join, None
        if reply is not None:
            reply(value)

    def answer_sync(self, value: Value) -> None:
        reply, self.sync = self.sync, None
        if reply is not None:
            reply(value)


class Group:
    """One group. `expire` has to be called every now and then."""

    def __init__(self) -> None:
        self.state = GroupState.EMPTY
        self._generation = 0
        self._protocol_type = ""
        self._protocol = ""
        self._leader = ""
        self._members: dict[str, _Member] = {}
        self._ids_given: dict[str, int] = {}
        """Of members that have to join again with them, with the time at which that is over."""
        self._deadline_ms = 0
        """For all to join or, while COMPLETING, to sync."""

    @property
    def size(self) -> int:
        """Members, and those that are about to join."""
        return len(self._members) + len(self._ids_given)

    def join(self, request: JoinRequest, reply: Reply, now_ms: int) -> None:
        """JoinGroup."""
        if not self._is_consistent(request):
            reply(_not_joined(INCONSISTENT_GROUP_PROTOCOL, request.member_id))
            return
        member = self._members.get(request.member_id)
        if member is None:
            self._join_new(request, reply, now_ms)
            return
        member.answer_join(_not_joined(REBALANCE_IN_PROGRESS, member.member_id))
        is_same = tuple(member.protocols.items()) == tuple(request.protocols.items())
        is_follower = member.member_id != self._leader
        is_answered_again = self.state is GroupState.COMPLETING or (
            self.state is GroupState.STABLE and is_follower
        )
        if is_same and is_answered_again:
            member.seen(now_ms)
            reply(self._joined(member))
            return
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.join = reply
        self._prepare(now_ms)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes],
        reply: Reply,
        now_ms: int,
    ) -> None:
        """SyncGroup. `assignments`: of the leader, by member."""
        error = self._error_of(member_id, generation)
        if error == NONE and self.state is GroupState.PREPARING:
            error = REBALANCE_IN_PROGRESS
        if error != NONE:
            reply(_not_synced(error))
            return
        member = self._members[member_id]
        member.seen(now_ms)
        if self.state is GroupState.STABLE:
            reply(_synced(member))
            return
        member.answer_sync(_not_synced(REBALANCE_IN_PROGRESS))
        member.sync = reply
        if member_id == self._leader:
            self.state = GroupState.STABLE
            for one in self._members.values():
                one.assignment = assignments.get(one.member_id, b"")
                one.seen(now_ms)
                one.answer_sync(_synced(one))

    def heartbeat(self, member_id: str, generation: int, now_ms: int) -> int:
        """The error code of a Heartbeat."""
        error = self._error_of(member_id, generation)
        if error != NONE:
            return error
        self._members[member_id].seen(now_ms)
        return REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else NONE

    def leave(self, member_id: str, now_ms: int) -> int:
        """The error code of a LeaveGroup."""
        if self._ids_given.pop(member_id, None) is not None:
            self._complete_if_all_joined(now_ms)
            return NONE
        if member_id not in self._members:
            return UNKNOWN_MEMBER_ID
        self._remove(member_id, now_ms)
        return NONE

    def may_commit(self, member_id: str, generation: int, now_ms: int) -> int:
        """The error code of an OffsetCommit. A negative generation: of no member, which is for
        groups that have none.
        """
        if generation < 0:
            return UNKNOWN_MEMBER_ID if self._members else NONE
        error = self._error_of(member_id, generation)
        if error != NONE:
            return error
        if self.state is GroupState.COMPLETING:
            return REBALANCE_IN_PROGRESS
        self._members[member_id].seen(now_ms)
        return NONE

    def expire(self, now_ms: int) -> None:
        """Remove members that were not heard in time, and end a rebalance whose time is over."""
        for member_id in [one for one, until_ms in self._ids_given.items() if until_ms <= now_ms]:
            del self._ids_given[member_id]
        has_not_synced = self.state is GroupState.COMPLETING and now_ms >= self._deadline_ms
        late = [
            one.member_id
            for one in self._members.values()
            if (one.expires_ms <= now_ms and not one.is_waiting)
            or (has_not_synced and one.sync is None)
        ]
        for member_id in late:
            self._remove(member_id, now_ms)
        if self.state is GroupState.PREPARING and now_ms >= self._deadline_ms:
            self._complete(now_ms)
        else:
            self._complete_if_all_joined(now_ms)

    def _error_of(self, member_id: str, generation: int) -> int:
        if member_id not in self._members:
            return UNKNOWN_MEMBER_ID
        return NONE if generation == self._generation else ILLEGAL_GENERATION

    def _is_consistent(self, request: JoinRequest) -> bool:
        """Whether there is a protocol that all members have."""
        if not request.protocol_type or not request.protocols:
            return False
        if not self._members:
            return True
        shared = self._shared_protocols()
        is_shared = any(name in shared for name in request.protocols)
        return request.protocol_type == self._protocol_type and is_shared

    def _shared_protocols(self) -> set[str]:
        return set.intersection(*(set(one.protocols) for one in self._members.values()))

    def _join_new(self, request: JoinRequest, reply: Reply, now_ms: int) -> None:
        if not request.member_id and request.needs_id:
            self._ids_given[request.new_member_id] = now_ms + request.session_timeout_ms
            reply(_not_joined(MEMBER_ID_REQUIRED, request.new_member_id))
            return
        if request.member_id and self._ids_given.pop(request.member_id, None) is None:
            reply(_not_joined(UNKNOWN_MEMBER_ID, request.member_id))
            return
        if not self._members:
            self._protocol_type = request.protocol_type
        member_id = request.member_id or request.new_member_id
        self._members[member_id] = _Member(
            member_id=member_id,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
            expires_ms=now_ms + request.session_timeout_ms,
            join=reply,
        )
        self._prepare(now_ms)

    def _remove(self, member_id: str, now_ms: int) -> None:
        member = self._members.pop(member_id)
        member.answer_join(_not_joined(UNKNOWN_MEMBER_ID, member_id))
        member.answer_sync(_not_synced(UNKNOWN_MEMBER_ID))
        self._prepare(now_ms)

    def _prepare(self, now_ms: int) -> None:
        if self.state is not GroupState.PREPARING:
            self.state = GroupState.PREPARING
            waits = (one.rebalance_timeout_ms for one in self._members.values())
            self._deadline_ms = now_ms + max(waits, default=0)
            for one in self._members.values():
                one.assignment = b""
                if one.sync is not None:
                    one.seen(now_ms)
                    one.answer_sync(_not_synced(REBALANCE_IN_PROGRESS))
        self._complete_if_all_joined(now_ms)

    def _complete_if_all_joined(self, now_ms: int) -> None:
        are_all_here = all(one.join is not None for one in self._members.values())
        if self.state is GroupState.PREPARING and are_all_here and not self._ids_given:
            self._complete(now_ms)

    def _complete(self, now_ms: int) -> None:
        """Who has joined is in the new generation, and nobody else."""
        self._members = {key: one for key, one in self._members.items() if one.join is not None}
        self._generation += 1
        if not self._members:
            self.state, self._leader, self._protocol = GroupState.EMPTY, "", ""
            return
        self.state = GroupState.COMPLETING
        waits = (one.rebalance_timeout_ms for one in self._members.values())
        self._deadline_ms = now_ms + max(waits)
        self._protocol = self._chosen_protocol()
        if self._leader not in self._members:
            self._leader = next(iter(self._members))
        for one in self._members.values():
            one.seen(now_ms)
            one.answer_join(self._joined(one))

    def _chosen_protocol(self) -> str:
        """Each member votes for the first of its protocols that all have."""
        shared = self._shared_protocols()
        votes = Counter(
            next(name for name in one.protocols if name in shared) for one in self._members.values()
        )
        return votes.most_common(1)[0][0]

    def _joined(self, member: _Member) -> Value:
        """The leader is given all members."""
        is_leader = member.member_id == self._leader
        members = self._members.values() if is_leader else ()
        return {
            "error_code": NONE,
            "generation_id": self._generation,
            "protocol_type": self._protocol_type,
            "protocol_name": self._protocol,
            "leader": self._leader,
            "member_id": member.member_id,
            "members": [
                {"member_id": one.member_id, "metadata": one.protocols[self._protocol]}
                for one in members
            ],
        }


def _not_joined(error_code: int, member_id: str) -> Value:
    return {"error_code": error_code, "protocol_name": "", "member_id": member_id}


def _synced(member: _Member) -> Value:
    return {"error_code": NONE, "assignment": member.assignment}


def _not_synced(error_code: int) -> Value:
    return {"error_code": error_code}
