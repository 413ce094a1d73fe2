"""The mark of where an import ended before the end of what there is: what follows is not known.

It has the name of a manifest, and the offset at which the import stopped as start offset. So every
reader of manifests meets it: one that does not know it has a manifest that cannot be used, and
takes nothing from there on for certain. The id of its segment begins with eight fixed bytes, as a
reader has to know what it was that has vanished since it was listed. Pure.
"""

import hashlib
import json
from dataclasses import dataclass

from kip405.errors import Corrupt
from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.segments import SegmentLocator

STOP_VERSION = 1
KIND = "import-stop"
WHY_MAX = 1_000
ENDED_MEANWHILE = "an import that was under way has ended since its objects were listed"
_ID_BEGINNING = b"rlm-stop"
_ID_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportStop:
    """Where an import stopped, and why. What is at or above the offset was imported before, as
    where a segment below was removed.
    """

    partition: TopicIdPartition
    start_offset: int
    why: str

    def locator(self, cluster_id: str, import_id: Uuid) -> SegmentLocator:
        """Where the stop of one import is stored. Another import may say the same at the same time,
        and has a stop of its own: neither can remove what the other one has to say.
        """
        parts = (str(import_id), str(self.partition), str(self.start_offset), self.why)
        digest = hashlib.sha256("\0".join(parts).encode()).digest()
        own_id = Uuid((_ID_BEGINNING + digest)[:_ID_BYTES])
        return stop_locator(cluster_id, self.partition, own_id, self.start_offset)


def stop_locator(
    cluster_id: str, partition: TopicIdPartition, stop_id: Uuid, start_offset: int
) -> SegmentLocator:
    """Where a stop with this id is stored."""
    return SegmentLocator(
        cluster_id=cluster_id,
        segment_id=RemoteLogSegmentId(topic_id_partition=partition, id=stop_id),
        start_offset=start_offset,
        custom_metadata=None,
    )


def is_stop_id(segment_id: Uuid) -> bool:
    """Whether what has the name of a manifest of this segment is a stop."""
    return segment_id.raw.startswith(_ID_BEGINNING)


def encode_stop(stop: ImportStop) -> bytes:
    """One line of JSON."""
    fields = {
        "v": STOP_VERSION,
        "kind": KIND,
        "topic": stop.partition.topic,
        "topic_id": str(stop.partition.topic_id),
        "partition": stop.partition.partition,
        "start_offset": stop.start_offset,
        "why": stop.why[:WHY_MAX],
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def parse_stop(data: bytes, where: str) -> ImportStop | None:
    """None: it is something else. Corrupt: it is a stop that cannot be used."""
    try:
        fields = json.loads(data)
    except ValueError:
        return None
    if not isinstance(fields, dict) or fields.get("kind") != KIND:
        return None
    try:
        if fields["v"] != STOP_VERSION:
            raise ValueError(f"its version {fields['v']!r} is not known")
        if not isinstance(fields["why"], str) or type(fields["start_offset"]) is not int:
            raise ValueError("offset or reason has the wrong type")
        partition = TopicIdPartition(
            topic_id=Uuid.parse(fields["topic_id"]),
            topic=str(fields["topic"]),
            partition=int(fields["partition"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"{where} cannot be used: {error}") from error
    return ImportStop(partition=partition, start_offset=fields["start_offset"], why=fields["why"])
