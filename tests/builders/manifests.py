"""Manifests of stored segments, as an attempt writes them or as no attempt of ours would."""

from dataclasses import replace
from typing import Any

from kip405.segments import RemoteLogSegmentMetadata
from rlmm.ledger_values import encode_value
from rsm_plugins.layout.keys import ObjectKind, object_name
from rsm_plugins.layout.manifest import Manifest, ManifestObject, build_manifest
from tests.builders.log_dir import CLUSTER_ID


def manifest_of(metadata: RemoteLogSegmentMetadata, **changes: Any) -> bytes:
    """The manifest of a FINISHED segment; `changes` replace its fields, as of another cluster,
    store, topic or range of offsets.
    """
    partition, custom = metadata.topic_id_partition, metadata.custom()
    locator = metadata.locator(CLUSTER_ID)
    sizes = {
        ObjectKind.LOG: (metadata.segment_size_bytes, custom.log_crc32c),
        ObjectKind.INDEXES: (custom.indexes_size_bytes, custom.indexes_crc32c),
    }
    manifest = Manifest(
        cluster_id=CLUSTER_ID,
        store_id=custom.store_id,
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        segment_id=metadata.segment_id.id,
        start_offset=metadata.start_offset,
        end_offset=metadata.end_offset,
        remote_log_start_offset=0,
        layout="kafka",
        software="tests",
        objects=tuple(
            ManifestObject(name=object_name(locator, kind), size_bytes=size, crc32c=crc)
            for kind, (size, crc) in sizes.items()
        ),
        segment_metadata=encode_value(metadata),
    )
    return build_manifest(replace(manifest, **changes))
