"""User metadata of objects: what they are, for people and tools that see the bucket and not us.

Everything here is also in the object's name or in the manifest; nothing of ours reads it. Pure.
"""

import base64

from kip405.errors import Corrupt
from kip405.segments import SegmentLocator
from rsm_plugins.manifest import Manifest
from rsm_plugins.version import software_version

UserMetadata = dict[str, str]


def segment_metadata(locator: SegmentLocator, end_offset: int | None) -> UserMetadata:
    """Of an object of a segment; offsets are Kafka's: the end is inclusive, absent if not known."""
    partition = locator.segment_id.topic_id_partition
    found = {
        "rlm-cluster": locator.cluster_id,
        "rlm-topic-id": str(partition.topic_id),
        "rlm-partition": str(partition.partition),
        "rlm-start-offset": str(locator.start_offset),
        "rlm-version": software_version(),
    }
    if end_offset is not None:
        found["rlm-end-offset"] = str(end_offset)
    return found


def end_offset_of(manifest: bytes) -> int | None:
    """What a manifest says; None for one that cannot be read, which is its writer's business."""
    try:
        return Manifest.parse(manifest).end_offset
    except Corrupt:
        return None


def checksum_text(crc32c: int) -> str:
    """A CRC-32C as S3 writes it: base64 of four bytes, most significant first."""
    return base64.b64encode(crc32c.to_bytes(4)).decode("ascii")
