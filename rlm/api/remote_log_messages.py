"""What there is to read of a partition's remote log, as rlm.v1 has it."""

from collections.abc import Iterable

from kip405.ids import PartitionKey, TopicIdPartition
from kip405.segments import EpochEntry
from rlm.remote_log.objects import RemoteLogDescription
from rlm.remote_log.remote_window import RemoteWindow
from rlm.v1 import fetch_pb2
from rlmm.ledger import UsableSegment
from rlmm.ledger_values import encode_value


def remote_log_message(
    topic: str, key: PartitionKey, found: RemoteLogDescription
) -> fetch_pb2.RemoteLog:
    """The whole remote log, as a leader knows it."""
    segments = [(one, None) for one in found.segments]
    return _message(found.cluster_id, topic, key, found, segments)


def remote_window_message(
    partition: TopicIdPartition, cluster_id: str, found: RemoteWindow
) -> fetch_pb2.RemoteLog:
    """A part of it, as any service knows it."""
    message = _message(cluster_id, partition.topic, partition.key, found, found.segments)
    message.tiers = fetch_pb2.REMOTE_ONLY
    return message


def _message(
    cluster_id: str,
    topic: str,
    key: PartitionKey,
    found: RemoteLogDescription | RemoteWindow,
    segments: Iterable[tuple[UsableSegment, int | None]],
) -> fetch_pb2.RemoteLog:
    return fetch_pb2.RemoteLog(
        cluster_id=cluster_id,
        topic=topic,
        topic_id=key.topic_id.raw,
        partition=key.partition,
        remote_log_start_offset=found.remote_log_start_offset,
        leader_epochs=_epoch_entries(found.lineage.entries),
        segments=[
            fetch_pb2.ReadableSegment(
                segment_metadata=encode_value(one.metadata),
                next_offset=one.next_offset,
                shared_end_offset=shared_end,
            )
            for one, shared_end in segments
        ],
    )


def _epoch_entries(entries: Iterable[EpochEntry]) -> list[fetch_pb2.EpochEntry]:
    return [fetch_pb2.EpochEntry(epoch=one.epoch, start_offset=one.start_offset) for one in entries]
