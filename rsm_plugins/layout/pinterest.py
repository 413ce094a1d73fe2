"""Names of objects in a bucket that Pinterest's segment uploader fills, and references to them.

    [prefix/][entropy digits/]cluster/topic-partition/FILE
    FILE = 20-digit base offset.{log,index,timeindex}, offset.wm, or _metadata

The entropy digits are those of our own keys. The cluster is what their uploader is told, which need
not be Kafka's id. A segment of ours whose log is such an object of theirs has a mark in its custom
metadata, and in place of its own log a *reference*, one line of JSON (docs/reference/formats.md).

A segment in the layout `pinterest` has such names too, written by us. None of them has the id of
the attempt, so several attempts share them; what is the truth is named by the attempt's own keys
(rsm_plugins/local/views.py, rsm_plugins/s3/pinterest.py). Pure.
Source: S3StorageServiceEndpoint, Utils and WatermarkFileHandler of pinterest/tiered-storage.
"""

import hashlib
import json
import re
from collections.abc import Collection
from dataclasses import dataclass

from kip405.errors import Corrupt, Invalid
from kip405.ids import MAX_OFFSET
from kip405.segments import SegmentLocator
from rsm_plugins.layout.keys import (
    ENTROPY_BITS_MAX,
    check_cluster_id,
    check_topic,
    entropy_digits,
    required_custom,
)

WATERMARK = "offset.wm"
LOG, OFFSET_INDEX, TIME_INDEX = "log", "index", "timeindex"
MANIFEST_LAYOUT = "pinterest"
"""The layout that the manifest of an imported segment names; what is ours of it is `kafka`."""
REFERENCE_VERSION = 1
PARTITION_MAX = 2**31 - 1
LOG_MAX_BYTES = 2**31 - 1
"""Kafka's log segments are not larger."""

VERSION_ID_MAX_BYTES = 38
"""Of a version of an object in S3: what is left of the plugin's bytes beside the contents."""

_MARK = b"pinterest\x01"
_DIGEST_BYTES = 16
_LISTED_BITS_MAX = 8
_FILE = re.compile(r"([0-9]{20})\.(log|index|timeindex)")
_FOLDER = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})")
_OFFSET = re.compile(r"[0-9]{1,20}")


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedFile:
    """One file of a segment, by its name."""

    base_offset: int
    suffix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PinterestLayout:
    """The part of their settings that names follow from; Invalid for values they cannot have."""

    cluster: str
    entropy_bits: int = 0

    def __post_init__(self) -> None:
        check_cluster_id(self.cluster)
        if not 0 <= self.entropy_bits <= ENTROPY_BITS_MAX:
            raise Invalid(f"entropy of {self.entropy_bits} bits is not in 0..{ENTROPY_BITS_MAX}")

    def folder(self, topic: str, partition: int) -> str:
        """Name of the folder of a partition below the prefix, without trailing slash."""
        digits = entropy_digits(self.cluster, check_topic(topic), partition, self.entropy_bits)
        folder = f"{self.cluster}/{topic}-{partition}"
        return f"{digits}/{folder}" if digits else folder

    def file(self, topic: str, partition: int, base_offset: int, suffix: str = LOG) -> str:
        """Name of one file of a segment below the prefix."""
        if not 0 <= base_offset <= MAX_OFFSET:
            raise Invalid(f"base offset {base_offset} is no offset")
        return f"{self.folder(topic, partition)}/{base_offset:020d}.{suffix}"

    def log_of(self, locator: SegmentLocator) -> str:
        """Name of the log of a segment."""
        partition = locator.segment_id.topic_id_partition
        return self.file(partition.topic, partition.partition, locator.start_offset)

    def folder_of(self, locator: SegmentLocator) -> str:
        """Name of the folder of a segment's partition."""
        partition = locator.segment_id.topic_id_partition
        return self.folder(partition.topic, partition.partition)

    def view_of(self, locator: SegmentLocator, suffix: str) -> str:
        """Name of one file of a segment."""
        partition = locator.segment_id.topic_id_partition
        return self.file(partition.topic, partition.partition, locator.start_offset, suffix)

    def listed_folders(self, topics: Collection[str], partition: int | None) -> tuple[str, ...]:
        """What to list, each with its slash, to see the partition of these topics, else all of
        them. With many entropy digits that is everything below the prefix, "".
        """
        if topics and partition is not None:
            return tuple(f"{self.folder(topic, partition)}/" for topic in sorted(topics))
        bits = self.entropy_bits
        if not bits:
            return (f"{self.cluster}/",)
        if bits > _LISTED_BITS_MAX:
            return ("",)
        return tuple(f"{number:0{bits}b}/{self.cluster}/" for number in range(2**bits))


def parse_file(file: str) -> UploadedFile | None:
    """A file of a segment; None for every other file, as their consumer passes it over."""
    match = _FILE.fullmatch(file)
    if match is None or int(match[1]) > MAX_OFFSET:
        return None
    return UploadedFile(base_offset=int(match[1]), suffix=match[2])


def parse_folder(folder: str) -> tuple[str, int] | None:
    """`topic-partition` as topic and partition; None for every other folder."""
    match = _FOLDER.fullmatch(folder)
    if match is None or int(match[2]) > PARTITION_MAX:
        return None
    try:
        return check_topic(match[1]), int(match[2])
    except Invalid:
        return None


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class UploadedName:
    """What the name of an object shows of their settings. `below`: what stands before it all."""

    cluster: str
    entropy_bits: int
    topic: str
    below: str = ""


def parse_name(name: str) -> UploadedName | None:
    """Where an object lies, whatever the settings say; None: it has no name of theirs."""
    *before, cluster, folder, file = ("", "", *name.split("/"))
    partition = parse_folder(folder)
    if partition is None or not cluster or (parse_file(file) is None and file != WATERMARK):
        return None
    below = [one for one in before if one]
    digits = below[-1] if below else ""
    if not 0 < len(digits) <= ENTROPY_BITS_MAX or digits != entropy_digits(
        cluster, *partition, len(digits)
    ):
        digits = ""
    return UploadedName(
        cluster=cluster,
        entropy_bits=len(digits),
        topic=partition[0],
        below="/".join(below[:-1] if digits else below),
    )


def parse_watermark(data: bytes, where: str) -> int:
    """The base offset of the last segment that was uploaded whole; Corrupt if it is no offset."""
    text = data.decode("ascii", errors="replace").strip()
    if not _OFFSET.fullmatch(text) or int(text) > MAX_OFFSET:
        raise Corrupt(f"{where} has {text[:40]!r}, not an offset")
    return int(text)


def encode_watermark(base_offset: int) -> bytes:
    """As their uploader writes it: the file name of the segment without its suffix."""
    return f"{base_offset:020d}".encode("ascii")


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadReference:
    """What an attempt in S3 stores under its own name before its log: which key, below the bucket,
    gets a version with the attempt's id, by which upload, and how many bytes the log has.
    """

    key: str
    upload: str
    size_bytes: int


def encode_upload_reference(reference: UploadReference) -> bytes:
    """One line of JSON."""
    fields = {
        "v": REFERENCE_VERSION,
        "kind": "upload",
        "layout": MANIFEST_LAYOUT,
        "key": reference.key,
        "upload": reference.upload,
        "size_bytes": reference.size_bytes,
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def parse_upload_reference(data: bytes, where: str) -> UploadReference:
    """Corrupt for anything else."""
    try:
        fields = json.loads(data)
        if (fields["v"], fields["kind"]) != (REFERENCE_VERSION, "upload"):
            raise ValueError(f"it is no upload of version {REFERENCE_VERSION}")
        key, upload, size_bytes = fields["key"], fields["upload"], fields["size_bytes"]
        if not (isinstance(key, str) and isinstance(upload, str)):
            raise ValueError("key or upload is no text")
        if type(size_bytes) is not int or not 0 <= size_bytes <= LOG_MAX_BYTES:
            raise ValueError(f"a log has no {size_bytes!r} bytes")
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"{where} cannot be used: {error}") from error
    return UploadReference(key=key, upload=upload, size_bytes=size_bytes)


def mark_of(name: str) -> bytes:
    """The plugin's bytes of a segment whose log is the object of this name."""
    return _MARK + hashlib.sha256(name.encode()).digest()[:_DIGEST_BYTES]


def is_marked(locator: SegmentLocator) -> bool:
    """Whether the log of a segment is an object of another uploader. Invalid: its custom metadata
    is of an unknown version.
    """
    if locator.custom_metadata is None:
        return False
    return required_custom(locator).plugin.startswith(_MARK)


def refuse_marked(locator: SegmentLocator) -> None:
    """Invalid for an imported segment: what lies in place of its log must not pass for damage."""
    if is_marked(locator):
        raise Invalid(
            f"segment {locator.segment_id} is imported: its log is in a bucket of Pinterest's "
            "uploader, which the store's settings do not name (rsm.config.pinterest.bucket or "
            "rsm.config.pinterest.root, and rsm.config.pinterest.cluster)"
        )


def check_mark(locator: SegmentLocator, name: str) -> None:
    """Invalid unless the segment was imported from the object of this name."""
    if required_custom(locator).plugin != mark_of(name):
        raise Invalid(
            f"segment {locator.segment_id} was not imported from {name}: cluster or entropy bits "
            "of the store's settings are not those of the import"
        )


def reference(name: str, size_bytes: int, crc32c: int) -> bytes:
    """What stands in place of the log: which object has it. For people and tools; the segment's
    metadata has the same.
    """
    fields = {
        "v": REFERENCE_VERSION,
        "kind": "reference",
        "layout": MANIFEST_LAYOUT,
        "name": name,
        "size_bytes": size_bytes,
        "crc32c": crc32c,
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
