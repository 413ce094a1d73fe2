"""Targets: the two cutters of a connection, fed with the same bytes in many cuts.

What a cutter says must not depend on the cut. Where a stream cannot go on, a coarser cut may have
said less before the error, never anything else; and a finer one may wait for more of a long part.
"""

import contextlib
import random
from dataclasses import dataclass, field

from kafka_protocol.apis import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    FETCH,
    FIND_COORDINATOR,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    SASL_AUTHENTICATE,
)
from kafka_protocol.fetch import FetchedPartition, PatchedPartition, patch_partition
from kafka_protocol.frames import SHORT_PART_BYTES, with_length
from kafka_protocol.node_addresses import NodeAddresses, hide_node_endpoints
from kafka_protocol.primitives import WireError
from rlm.proxy.own_topics import OwnTopics, unknown_ids
from rlm.proxy.responses import Assembled, Output, ResponseCutter, Streamed, altered
from rlm.proxy.session import BAD_PRODUCE, Cut, Expected, Intercept, RequestCutter, SessionError
from tests.fuzz.case import READ, REFUSED, REQUEST, RESPONSE, Case
from tests.fuzz.mutations import mutated, next_size

_MAX_FRAME_BYTES = 60_000
_READ_REQUEST_BYTES = 30_000
_FIRST_FRAME_BYTES = 20_000
_CORRELATION_ID = 77
_CUTS = (1, 7, 100, 5_000, 1 << 20)
_TRUE_LENGTH = 0.93
_ANSWERED = 0.7


@dataclass
class Said:
    """What a cutter gave of a stream, in its order; `cause` of its refusal."""

    parts: list[object] = field(default_factory=list)
    flat: bytearray = field(default_factory=bytearray)
    cause: str | None = None
    held_bytes: int = 0

    @property
    def waits(self) -> bool:
        """Whether it may be that a long part is not read again before more of it has come."""
        return self.cause is None and self.held_bytes >= SHORT_PART_BYTES


def _agree(said: list[Said]) -> str:
    """All have said the same; before an error, the beginning of what the longest has said."""
    said = [one for one in said if one.cause != BAD_PRODUCE] or said
    longest = max(said, key=lambda one: len(one.flat))
    certain = [one for one in said if not one.waits]
    causes = {one.cause for one in certain}
    assert len(causes) <= 1
    for other in said:
        assert longest.flat[: len(other.flat)] == other.flat
        assert longest.parts[: len(other.parts)] == other.parts
    if causes == {None}:
        for one in certain:
            assert (one.parts, one.flat) == (certain[0].parts, certain[0].flat)
    return READ if causes <= {None} else REFUSED


def _cuts(case: Case, stream: bytes) -> list[int]:
    """Single bytes, where there are not too many of them, and two others, which are coarser."""
    finest = 1 if len(stream) < 3_000 else 40
    return [finest, *case.rng.sample([one for one in _CUTS if one > finest], 2)]


def _stream(case: Case, frames: list[bytes]) -> bytes:
    """Frames with their lengths; now and then with another length, or damaged as a whole."""
    rng, stream = case.rng, bytearray()
    for frame in frames:
        length = len(frame)
        if rng.random() > _TRUE_LENGTH:
            length = rng.choice((0, 1, 7, 11, length - 1, length + 1, 59_999, -1, 0x16030102))
        stream += (length & 0xFFFF_FFFF).to_bytes(4, "big") + frame
    return mutated(bytes(stream), rng) if rng.random() < 0.2 else bytes(stream)


def client_stream(case: Case) -> str:
    """Requests of a client: all its bytes come out again, in order, and nothing else."""
    rng = case.rng
    frames = []
    for _ in range(rng.randint(1, 4)):
        sample = case.corpus.any(rng, REQUEST)
        frames.append(case.damaged(sample) if rng.random() < 0.5 else sample.frame)
    stream = _stream(case, frames)
    seed, rewrites, admits = rng.random(), rng.random() < 0.5, rng.random() < 0.5
    said = []
    for number, most in enumerate(_cuts(case, stream)):
        cutter = RequestCutter(
            _MAX_FRAME_BYTES,
            _FIRST_FRAME_BYTES,
            read_request_bytes=_READ_REQUEST_BYTES,
            rewrites=rewrites,
        )
        if admits:
            cutter.admit()
        rng = random.Random(f"{seed} {number} {most}")
        said.append(_requests(cutter, stream, rng, most, is_prompt=number == 0))
    return _agree(said)


def _requests(
    cutter: RequestCutter, stream: bytes, rng: random.Random, most: int, *, is_prompt: bool
) -> Said:
    """Where the requests that are taken are not answered promptly, more comes meanwhile."""
    said, fed, checked = Said(), 0, 0
    blocked = False
    while fed < len(stream):
        passing_bytes = cutter.passing_bytes
        piece = bytearray(stream[fed : fed + next_size(rng, most, passing_bytes)])
        run = min(passing_bytes, len(piece)) if not blocked and rng.random() < 0.2 else 0
        if run:  # these went from socket to socket
            cutter.skip(run)
            said.flat += piece[:run]
        fed += len(piece)
        if len(piece) > run:
            try:
                blocked = _cut(cutter.feed(piece[run:]), said) or blocked
                while blocked and (is_prompt or rng.random() < _ANSWERED):
                    blocked = _cut(cutter.resume(), said)
            except SessionError as error:
                said.cause = error.cause
                return said
        assert said.flat[checked:] == stream[checked : len(said.flat)]
        checked = len(said.flat)
        assert cutter.held_bytes == fed - len(said.flat)
    while blocked:
        try:
            blocked = _cut(cutter.resume(), said)
        except SessionError as error:
            said.cause = error.cause
    said.held_bytes = cutter.held_bytes
    return said


def _cut(cut: Cut, said: Said) -> bool:
    """Whether a request waits to be answered now."""
    said.flat += cut.passed
    said.parts += cut.expected
    taken = cut.taken
    if taken is None:
        return False
    said.flat += with_length(taken.frame)
    said.parts.append((taken.api_key, taken.api_version, taken.correlation_id, len(said.flat)))
    return True


@dataclass
class _Entries:
    """Lets some partitions wait for a while, and changes all: by what they are, not when."""

    waited: set[int] = field(default_factory=set)
    number: int = 0

    def entry(self, head: memoryview, topic: str | bytes, answered: FetchedPartition) -> bool:
        if self.number % 3 == 1 and self.number not in self.waited:
            self.waited.add(self.number)
            return False
        self.number += 1
        patch_partition(head, answered, PatchedPartition(log_start_offset=5))
        return True

    def tags(self, tags: memoryview) -> None:
        hide_node_endpoints(tags)


_ALTERED = {
    PRODUCE.key: Intercept.PRODUCE,
    API_VERSIONS.key: Intercept.API_VERSIONS,
    METADATA.key: Intercept.METADATA,
    DESCRIBE_CLUSTER.key: Intercept.DESCRIBE_CLUSTER,
    FIND_COORDINATOR.key: Intercept.FIND_COORDINATOR,
}
_ASKED = (FETCH, FETCH, FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, SASL_AUTHENTICATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """An answer that is due, before its connection: each cut has entries of its own."""

    intercept: Intercept
    version: int
    correlation_id: int
    stream_above: int | None
    has_entries: bool

    def expected(self) -> Expected:
        return Expected(
            intercept=self.intercept,
            api_version=self.version,
            correlation_id=self.correlation_id,
            stream_above=self.stream_above,
            entries=_Entries() if self.has_entries else None,
        )


def broker_stream(case: Case) -> str:
    """Answers of a broker: passed on, assembled, or scanned on their way."""
    rng, frames, plans = case.rng, [], []
    for _ in range(rng.randint(1, 3)):
        frame, plan = _answer(case)
        frames.append(frame)
        plans.append(plan)
    stream = _stream(case, frames)
    seed = rng.random()
    return _agree(
        [
            _responses(plans, stream, random.Random(f"{seed} {most}"), most)
            for most in _cuts(case, stream)
        ]
    )


def _answer(case: Case) -> tuple[bytes, _Plan]:
    rng = case.rng
    is_asked = rng.random() < 0.6
    sample = case.corpus.any(rng, RESPONSE, *(_ASKED if is_asked else ()))
    frame = bytearray(case.damaged(sample) if rng.random() < 0.5 else sample.frame)
    if rng.random() < 0.95:
        frame[:4] = _CORRELATION_ID.to_bytes(4, "big")
    intercept = _ALTERED.get(sample.api.key, Intercept.NOTHING)
    has_entries = is_asked and sample.api is FETCH and rng.random() < 0.8
    return bytes(frame), _Plan(
        intercept=Intercept.ASKED if is_asked else intercept,
        version=sample.version,
        correlation_id=_CORRELATION_ID,
        stream_above=rng.choice((None, 0, 60, 400)) if is_asked else None,
        has_entries=has_entries,
    )


def _responses(plans: list[_Plan], stream: bytes, rng: random.Random, most: int) -> Said:
    said, refused = Said(), set[int]()

    def may_assemble(size_bytes: int) -> bool:
        """Each answer of an odd size waits once."""
        number = len(said.parts)
        if size_bytes % 2 and number not in refused:
            refused.add(number)
            return False
        return True

    cutter = ResponseCutter(_MAX_FRAME_BYTES, may_assemble)
    for plan in plans:
        cutter.expect(plan.expected())
    try:
        position = 0
        while position < len(stream):
            unread_bytes = cutter.passing_bytes or len(cutter.room(1) or b"")
            piece = bytearray(stream[position : position + next_size(rng, most, unread_bytes)])
            position += len(piece)
            _received(cutter, piece, said, rng)
    except SessionError as error:
        said.cause = error.cause
    except WireError:
        said.cause = "wire error"
    said.held_bytes = cutter.held_bytes
    return said


def _received(cutter: ResponseCutter, piece: bytearray, said: Said, rng: random.Random) -> None:
    run = min(cutter.passing_bytes, len(piece)) if rng.random() < 0.2 else 0
    room = cutter.room(1) if rng.random() < 0.3 else None
    if run:  # these went from socket to socket
        said.flat += piece[:run]
        _output(cutter.skip(run), said)
    elif room is not None:
        run = min(len(room), len(piece))
        room[:run] = piece[:run]
        whole = cutter.filled(run)
        _output([] if whole is None else [whole], said)
    _output(cutter.feed(piece[run:]), said)
    for _ in range(len(piece) + 10):
        if not cutter.is_waiting:
            return
        _output(cutter.resume(), said)
    raise AssertionError("waits for ever")


def _output(outputs: list[Output], said: Said) -> None:
    for output in outputs:
        if isinstance(output, memoryview):
            said.flat += output
        elif isinstance(output, Streamed):
            said.parts.append(("streamed", output.expected.intercept, len(said.flat)))
        else:
            said.flat += output.frame
            said.parts.append(("whole", output.expected.intercept, len(said.flat)))
            _altered(output)


def _altered(whole: Assembled) -> None:
    """What the connection does next. That it refuses says nothing of the cutter."""
    with contextlib.suppress(WireError):
        nodes = NodeAddresses(replaced={}, keeps_others=False)
        altered(whole, lambda *_: 7, nodes, OwnTopics(ids=unknown_ids))
