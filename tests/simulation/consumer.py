"""A client that reads through the real decisions of the proxy, and compares what it gets.

A fetch asks the leader's broker first. Where that says OFFSET_OUT_OF_RANGE, the real tier of the
service beside it passes its barrier, and `settle_out_of_range` decides what the client gets, as in
rlm.proxy.fetch. What comes back must be the leader's own history at the position asked for.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafka_protocol.error_codes import NONE
from kafka_protocol.fetch import FetchPartition
from kip405.errors import Fenced, RemoteStorageError
from kip405.ids import Uuid
from rlm.proxy.fetch_plan import NO_EPOCH, PartitionFetch, Source
from rlm.proxy.splice import settle_out_of_range
from rlm.reading.values import RemoteRead
from rlm.remote_log.tier import TierPartition, TopicRef, upper_offset
from tests.builders.log_dir import TOPIC
from tests.simulation.ends import Ends
from tests.simulation.invariants import Broken
from tests.simulation.model_broker import BATCH_BYTES, RECORDS, Batch, content_of
from tests.simulation.model_cluster import Cluster
from tests.simulation.model_service import Service

_BARRIER_MS = 5_000
_MAX_BYTES = 16 * BATCH_BYTES


class Kind(enum.Enum):
    """What a fetch came to."""

    RECORDS = "records"
    NOTHING = "nothing yet, or an error to retry"
    OUT_OF_RANGE = "out of range: the client resets"
    HOLE = "go on behind a hole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`next_offset`: where the client goes on; `detail` says why there is nothing."""

    kind: Kind
    records: bytes = b""
    detail: str = ""
    next_offset: int = -1
    is_remote: bool = False


async def fetch(service: Service, topic_id: Uuid, offset: int) -> Answer:
    """One fetch through a service, to be run in its process."""
    try:
        return await _fetch(service, TopicRef(topic_id=topic_id), offset)
    except RemoteStorageError as error:
        return Answer(kind=Kind.NOTHING, detail=str(error))


async def _fetch(service: Service, ref: TopicRef, offset: int) -> Answer:
    try:
        local = await service.client.fetch(TOPIC, 0, offset, max_bytes=_MAX_BYTES)
        return Answer(kind=Kind.RECORDS, records=local.records)
    except Fenced as error:
        if "OFFSET_OUT_OF_RANGE" not in str(error):
            raise
    tier = service.tier
    if tier is None or not tier.ready():
        return Answer(kind=Kind.NOTHING, detail="the tier is not ready")
    view = await tier.barrier(ref, 0, _BARRIER_MS)
    one = _asked(ref, offset, view)
    watermarks = await tier.watermarks(ref, 0, _BARRIER_MS)
    settle_out_of_range(one, view, watermarks)
    if one.source is Source.BROKER:
        return Answer(kind=Kind.OUT_OF_RANGE, detail=str(view))
    if one.source is Source.HOLE:
        return Answer(
            kind=Kind.HOLE, next_offset=watermarks.log_start_offset, detail=f"{view} {watermarks}"
        )
    if one.source is not Source.REMOTE or view is None:
        return Answer(kind=Kind.NOTHING, detail=f"{one.source.value} {one.error_code}: {view}")
    upper = upper_offset(view, watermarks, read_committed=False)
    if offset >= upper:
        return Answer(kind=Kind.NOTHING, detail="watermarks are below the offset")
    read = await tier.read(
        RemoteRead(
            topic_id=view.topic_id,
            partition=0,
            offset=offset,
            upper_offset=upper,
            max_bytes=_MAX_BYTES,
            at_least_one=True,
            read_committed=False,
        )
    )
    records = b"".join(read.records)
    if not records and read.missing:
        return Answer(kind=Kind.HOLE, next_offset=read.missing[-1][1], detail=f"missing {view}")
    return Answer(kind=Kind.RECORDS, records=records, is_remote=True)


def _asked(ref: TopicRef, offset: int, view: TierPartition | None) -> PartitionFetch:
    asked = FetchPartition(0, NO_EPOCH, offset, -1, _MAX_BYTES, 0)
    return PartitionFetch(
        key=(TOPIC, 0),
        ref=ref,
        asked=asked,
        tiered=view,
        maybe_tiered=True,
        error_code=NONE,
    )


class Consumer:
    """Reads through whoever leads; `Broken` where it skips, repeats or gets other records."""

    def __init__(self, cluster: Cluster, services: dict[int, Service]) -> None:
        self._cluster = cluster
        self._services = services
        self.records = 0

    async def step(self, offset: int, ends: Ends) -> Answer:
        """One fetch at an offset that must be readable, or not yet; compared."""
        leader = self._cluster.leader
        service = self._services.get(leader.node_id) if leader else None
        topic_id = self._cluster.topic_id
        if leader is None or service is None or not service.is_up or topic_id is None:
            return Answer(kind=Kind.NOTHING, detail="no leader, or no service beside it")
        before = list(leader.replica.history)
        epoch, published = leader.known.leader_epoch, ends.published
        answer = await service.call(fetch(service, topic_id, offset))
        if answer is None:
            return Answer(kind=Kind.NOTHING, detail="no answer in time")
        is_same = leader.known.leader_epoch == epoch and leader.topic_id == topic_id
        if not is_same or not leader.leads or not leader.is_up:
            return Answer(kind=Kind.NOTHING, detail="leadership changed meanwhile")
        if answer.is_remote and offset < published:
            raise Broken(f"fetch at {offset}: records below {published} come back")
        next_offset = self._compare(
            answer, offset, before, leader.replica.history, ends.readable_from
        )
        return replace(answer, next_offset=next_offset)

    def _compare(
        self,
        answer: Answer,
        offset: int,
        before: Sequence[Batch],
        after: Sequence[Batch],
        readable_from: int,
    ) -> int:
        end = min(len(before), len(after)) * RECORDS
        if answer.kind in (Kind.OUT_OF_RANGE, Kind.HOLE) and readable_from <= offset < end:
            what = answer.kind.value
            raise Broken(f"fetch at {offset} of [{readable_from}, {end}): {what}: {answer.detail}")
        expected = offset // RECORDS * RECORDS
        for at in range(0, len(answer.records), BATCH_BYTES):
            base, epoch, content = content_of(answer.records[at:])
            known = after[base // RECORDS] if base < len(after) * RECORDS else None
            if expected < base <= readable_from:
                expected = base  # all between has ended
            if base != expected or known is None or known.content != content:
                raise Broken(
                    f"fetch at {offset}: batch {base} of epoch {epoch} with content {content}; "
                    f"{expected} with {known and known.content} was expected"
                )
            expected += RECORDS
            self.records += RECORDS
        return expected
