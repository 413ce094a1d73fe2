"""What lies in a sandbox's store, by the manifests: the word that needs no service."""

from collections.abc import Iterator
from pathlib import Path

from kip405.segments import RemoteLogSegmentMetadata
from rlmm.framing import decode_value
from rsm_plugins.manifest import Manifest
from tests.scenarios.cluster import Cluster


def finished_segments(cluster: Cluster, topic: str) -> list[RemoteLogSegmentMetadata]:
    """What the manifests in the store say of the topic's segments, by start offset."""
    found = [manifest for manifest in _manifests(cluster) if manifest.topic == topic]
    return sorted(
        (decode_value(one.segment_metadata) for one in found), key=lambda one: one.start_offset
    )


def _manifests(cluster: Cluster) -> Iterator[Manifest]:
    root = Path(cluster.sandbox.json["store"]["uri"].removeprefix("file://"))
    for path in root.rglob("*.rsm-manifest"):
        yield Manifest.parse(path.read_bytes())
