"""What one connection of the proxy holds of the memory of all, and what it may do next (H36). Pure.

A request in work counts `WORK_TIMES` its bytes from its beginning to its answer, also while it is
a long poll that only waits for the broker. What the broker answers at once never waits for the room
of such work: a client that logs in again would lose its connection meanwhile, and a transaction its
time. It counts as received until it is answered, so it is bounded like all that is received. This
module must not know sockets or frames.
"""

from typing import NamedTuple

from kafka_protocol.apis import ADD_PARTITIONS_TO_TXN, SASL_AUTHENTICATE, SASL_HANDSHAKE
from rlm.proxy.memory import SMALL_BYTES, ConnectionMemory, Holder, Verdict
from rlm.proxy.session import SessionError

ANSWER_TIMES = 2
"""What the broker answers without records: 37 to 55 bytes for each partition, of which a request
has 28 or 33.
"""
WORK_TIMES = 19
"""The answer without records, and what a Fetch is read into, which is needed until it is answered:
each answer may be one that must be changed. Measured by tracemalloc, with the request itself and
the copy that the broker is asked: 450 bytes for each partition, which are 14 times the bytes of a
request of v12 on, and 17 times those of v9 to v11. What older clients send takes up to 28 times.
"""
ANSWERED_AT_ONCE = frozenset({SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key, ADD_PARTITIONS_TO_TXN.key})
"""APIs whose requests may not be held by a client as a Fetch may, and are kept as they came."""
_MAX_QUEUED_BYTES = 262_144


def too_many_strangers() -> SessionError:
    """Why a connection with this verdict ends."""
    return SessionError("memory", "too much is held for clients unknown to the broker")


class MayRead(NamedTuple):
    """Which side of a connection may be read, as far as memory goes."""

    of_client: bool
    of_broker: bool


_BOTH = MayRead(of_client=True, of_broker=True)


class Account:
    """What one connection holds."""

    def __init__(self, memory: ConnectionMemory, holder: Holder) -> None:
        self._memory = memory
        self._holder = holder
        self._is_stranger = True
        self._work_bytes = self._covered_bytes = self._kept_bytes = 0
        self._asked_bytes = 0
        self.frame_bytes = 0
        """Of the broker's answer from which the client's last one was made."""
        self._received_bytes = self._to_broker_bytes = self._answers_bytes = 0

    @property
    def held_bytes(self) -> int:
        """All that it held at the last report."""
        return self._received_bytes + self._work_bytes + self._answers_bytes

    @property
    def is_full(self) -> bool:
        """See `ConnectionMemory.is_full_for`."""
        return self._memory.is_full_for(self._holder)

    def report(
        self,
        *,
        received_bytes: int,
        to_broker_bytes: int,
        assembled_bytes: int,
        unsent_bytes: int,
    ) -> None:
        """What is held now besides the work: of requests, and of them what the broker's socket has
        not taken; of answers that are being received, and that wait for the client's socket.
        """
        if self._is_stranger and self._holder.is_admitted:
            self._is_stranger = False
            self._memory.admit(self._holder)
        self._received_bytes = received_bytes + self._kept_bytes + to_broker_bytes
        self._to_broker_bytes = to_broker_bytes
        answer_bytes = assembled_bytes + self._asked_bytes
        self._answers_bytes = max(0, answer_bytes - self._covered_bytes) + unsent_bytes
        self._memory.hold(
            self._holder,
            received_bytes=self._received_bytes,
            work_bytes=self._work_bytes,
            answers_bytes=self._answers_bytes,
        )

    def may_read(self, queued_bytes: int, *, has_request: bool) -> MayRead:
        """Which side may be read. `queued_bytes` of the client wait behind its request that is in
        work or waits for that, if it has one: a little more of it is read in any case, so that its
        end is seen, which frees memory. SessionError: neither, and nobody would be told when.
        """
        is_little = max(self._received_bytes, self._answers_bytes) <= SMALL_BYTES
        if is_little and not self._memory.is_waited_for:
            return _BOTH
        of_client = Verdict.GO_ON
        if not has_request:
            of_client = self._memory.may_receive(self._holder, self._received_bytes)
        of_broker = self._memory.may_answer(self._holder, self._answers_bytes)
        # Requests without an answer (acks=0) still go to the broker's socket from here.
        is_held_here = self.held_bytes - self._to_broker_bytes > SMALL_BYTES
        if is_held_here and Verdict.END in (of_client, of_broker):
            raise too_many_strangers()
        most_bytes = SMALL_BYTES if has_request and self.is_full else _MAX_QUEUED_BYTES
        return MayRead(
            of_client=of_client is Verdict.GO_ON and queued_bytes < most_bytes,
            of_broker=of_broker is Verdict.GO_ON,
        )

    def may_assemble(self, size_bytes: int) -> bool:
        """SessionError: there is no room for it, and nobody would be told when there is."""
        more_bytes = size_bytes - self._covered_bytes
        if more_bytes <= 0:
            return True
        verdict = self._memory.may_answer(self._holder, self._answers_bytes, more_bytes)
        if verdict is Verdict.END:
            raise too_many_strangers()
        return verdict is Verdict.GO_ON

    def may_work(self, api_key: int, frame_bytes: int) -> bool:
        """Whether the work on a request of this size may begin, which then counts until `settled`;
        otherwise the connection is notified, and the request counts as received.
        """
        self._kept_bytes = frame_bytes
        if api_key in ANSWERED_AT_ONCE:
            return True
        work_bytes = WORK_TIMES * frame_bytes
        if not self._memory.may_work(self._holder, work_bytes):
            return False
        self._work_bytes = work_bytes
        self._covered_bytes, self._kept_bytes = ANSWER_TIMES * frame_bytes, 0
        return True

    def asks(self) -> bool:
        """The broker is asked for the request in work; what it answered before is not kept. Whether
        there was anything.
        """
        has_answer, self._asked_bytes = self._asked_bytes > 0, 0
        return has_answer

    def answered(self, frame_bytes: int) -> None:
        """An answer of the broker has come whole for the request in work."""
        self._asked_bytes = frame_bytes

    def settled(self) -> None:
        """The request in work was answered. Who waits for its memory has it before the next request
        of this client, which may have come already.
        """
        self.frame_bytes = self._asked_bytes
        self._asked_bytes = self._work_bytes = self._covered_bytes = self._kept_bytes = 0
        if self._memory.is_work_waited_for:
            self._memory.hold(
                self._holder,
                received_bytes=self._received_bytes,
                work_bytes=0,
                answers_bytes=self._answers_bytes,
            )
