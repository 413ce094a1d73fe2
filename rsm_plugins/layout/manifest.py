"""The JSON objects of a store: the manifest of a segment, and the identity of the store.

The manifest is written last: it is enough to adopt a segment, rebuild the ledger, or serve it,
without ledger or service. It is specified in docs/reference/formats.md. `segment_metadata` is the
exact value that COPY_SEGMENT_FINISHED publishes and is opaque here (its framing is rlmm's).

The identity, `rlm-store.json`, has the store's id and its owning cluster (H11). It is created once
and only if absent, and never rewritten. Pure: bytes in, value out.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from kip405.contracts import StoreIdentity
from kip405.errors import Corrupt, Invalid
from kip405.ids import MAX_OFFSET, RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.segments import SegmentLocator

MANIFEST_VERSION = 1
MANIFEST_MAX_BYTES = 1024 * 1024
_CRC_MAX = 2**32 - 1
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestObject:
    """One object that the manifest guarantees; `name` is the key below the store's prefix."""

    name: str
    size_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A manifest as a value; offsets are Kafka's: end_offset is inclusive."""

    cluster_id: str
    store_id: Uuid
    topic: str
    topic_id: Uuid
    partition: int
    segment_id: Uuid
    start_offset: int
    end_offset: int
    remote_log_start_offset: int
    layout: str
    software: str
    objects: tuple[ManifestObject, ...]
    segment_metadata: bytes

    def __post_init__(self) -> None:
        if not 0 <= self.start_offset <= self.end_offset <= MAX_OFFSET:
            raise Invalid(f"offsets {self.start_offset}..{self.end_offset} are no range")

    @property
    def remote_segment_id(self) -> RemoteLogSegmentId:
        partition = TopicIdPartition(
            topic_id=self.topic_id, topic=self.topic, partition=self.partition
        )
        return RemoteLogSegmentId(topic_id_partition=partition, id=self.segment_id)

    def locator(self, custom_metadata: bytes | None) -> SegmentLocator:
        """Where the objects are; the custom metadata is inside `segment_metadata`, which the caller
        can read.
        """
        return SegmentLocator(
            cluster_id=self.cluster_id,
            segment_id=self.remote_segment_id,
            start_offset=self.start_offset,
            custom_metadata=custom_metadata,
        )

    @classmethod
    def parse(cls, data: bytes, where: str = "manifest") -> "Manifest":
        """The value; unknown fields are allowed; Corrupt names `where` and what is wrong, an
        unknown version too.
        """
        try:
            fields: Any = json.loads(data)
            if not isinstance(fields, dict) or fields.get("kind") != "segment":
                raise ValueError("it is not an object of kind 'segment'")
            if type(fields.get("v")) is not int or fields["v"] != MANIFEST_VERSION:
                raise ValueError(f"its version {fields.get('v')!r} is not known")
            return _from_fields(fields)
        except (ValueError, Invalid) as error:
            raise Corrupt(f"{where} cannot be used: {error}") from error


def build_manifest(manifest: Manifest) -> bytes:
    """JSON, UTF-8, one line, fields in the order of the format; Invalid if it is over 1 MiB."""
    fields = {
        "v": MANIFEST_VERSION,
        "kind": "segment",
        "cluster_id": manifest.cluster_id,
        "store_id": str(manifest.store_id),
        "topic": manifest.topic,
        "topic_id": str(manifest.topic_id),
        "partition": manifest.partition,
        "segment_id": str(manifest.segment_id),
        "start_offset": manifest.start_offset,
        "end_offset": manifest.end_offset,
        "remote_log_start_offset": manifest.remote_log_start_offset,
        "layout": manifest.layout,
        "software": manifest.software,
        "objects": [
            {"name": item.name, "size_bytes": item.size_bytes, "crc32c": item.crc32c}
            for item in manifest.objects
        ],
        "segment_metadata": base64.b64encode(manifest.segment_metadata).decode("ascii"),
    }
    data = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    check_manifest_size(data)
    return data


def check_manifest_size(data: bytes) -> None:
    """Invalid for an empty manifest and for one over 1 MiB."""
    if not 0 < len(data) <= MANIFEST_MAX_BYTES:
        raise Invalid(f"a manifest has 1 to {MANIFEST_MAX_BYTES} bytes, not {len(data)}")


def _from_fields(fields: Mapping[str, Any]) -> Manifest:
    return Manifest(
        cluster_id=_typed(fields, "cluster_id", str),
        store_id=Uuid.parse(_typed(fields, "store_id", str)),
        topic=_typed(fields, "topic", str),
        topic_id=Uuid.parse(_typed(fields, "topic_id", str)),
        partition=_number(fields, "partition", 2**31 - 1),
        segment_id=Uuid.parse(_typed(fields, "segment_id", str)),
        start_offset=_number(fields, "start_offset", MAX_OFFSET),
        end_offset=_number(fields, "end_offset", MAX_OFFSET),
        remote_log_start_offset=_number(fields, "remote_log_start_offset", MAX_OFFSET),
        layout=_typed(fields, "layout", str),
        software=_typed(fields, "software", str),
        objects=tuple(_object(item) for item in _typed(fields, "objects", list)),
        segment_metadata=base64.b64decode(_typed(fields, "segment_metadata", str), validate=True),
    )


def _object(item: object) -> ManifestObject:
    if not isinstance(item, dict):
        raise ValueError("an entry of 'objects' is not an object")
    return ManifestObject(
        name=_typed(item, "name", str),
        size_bytes=_number(item, "size_bytes", MAX_OFFSET),
        crc32c=_number(item, "crc32c", _CRC_MAX),
    )


def _typed(fields: Mapping[str, Any], name: str, kind: type[_T]) -> _T:
    value = fields.get(name)
    if type(value) is not kind:
        raise ValueError(f"field {name!r} is missing or not {kind.__name__}")
    return value


def _number(fields: Mapping[str, Any], name: str, maximum: int) -> int:
    value = _typed(fields, name, int)
    if not 0 <= value <= maximum:
        raise ValueError(f"field {name!r} has {value}, not 0..{maximum}")
    return value


IDENTITY_VERSION = 1
IDENTITY_MAX_BYTES = 64 * 1024


def encode_identity(identity: StoreIdentity) -> bytes:
    """JSON, UTF-8, one line."""
    fields = {
        "v": IDENTITY_VERSION,
        "kind": "store",
        "store_id": str(identity.store_id),
        "cluster_id": identity.cluster_id,
        "created_ms": identity.created_ms,
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def decode_identity(data: bytes, where: str) -> StoreIdentity:
    """The value; unknown fields are allowed, Corrupt names `where` and what is wrong with it."""
    try:
        fields: Any = json.loads(data)
        if not isinstance(fields, dict) or fields.get("kind") != "store":
            raise ValueError("it is not an object of kind 'store'")
        if fields.get("v") != IDENTITY_VERSION:
            raise ValueError(f"its version {fields.get('v')!r} is not known")
        store_id, cluster_id, created_ms = (
            fields[name] for name in ("store_id", "cluster_id", "created_ms")
        )
        if not isinstance(cluster_id, str) or not cluster_id or type(created_ms) is not int:
            raise ValueError("cluster_id or created_ms has the wrong type")
        return StoreIdentity(
            store_id=Uuid.parse(store_id), cluster_id=cluster_id, created_ms=created_ms
        )
    except KeyError as error:
        raise Corrupt(f"identity object {where} has no field {error}") from error
    except (ValueError, TypeError) as error:
        raise Corrupt(f"identity object {where} cannot be used: {error}") from error
