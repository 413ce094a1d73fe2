"""Names of objects: the de-facto layout of KIP-405 stores, with optional prefix and entropy.

    [prefix/][entropy digits/]cluster id/topic-topicId/partition/FILE
    FILE = 20-digit start offset-segment id.SUFFIX
    SUFFIX = {log,indexes,rsm-manifest} in the layout `kafka`,
             {blocks,blocks-index,rsm-manifest} in the layout `blocks`,
             {pinterest-log,pinterest-indexes,rsm-manifest} in the layout `pinterest`

The layout of a segment is in its custom metadata. `objects_of` is the one place that knows which
objects a segment has; whoever copies, checks, lists or deletes segments goes through it.

A *name* is the part below the prefix; a *key* includes the prefix. Names are a durable format
(docs/reference/formats.md). No topic name, cluster id or prefix can lead out of its folder: the
allowed characters exclude the slash, and "." and ".." are refused. This module must not know what
kind of store keeps the objects.
"""

import enum
import hashlib
import re
from dataclasses import dataclass

from kip405.errors import Invalid
from kip405.ids import MAX_OFFSET, RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.segments import (
    CustomMetadata,
    Layout,
    RemoteLogSegmentMetadata,
    SegmentLocator,
)

IDENTITY_NAME = "rlm-store.json"
TOPIC_NAME_MAX = 249
TOPIC_CUT = 200
ENTROPY_BITS_MAX = 32
PREFIX_MAX_BYTES = 512
CLUSTER_ID_MAX = 128

_UUID_TEXT = 22
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_CLUSTER = re.compile(r"[A-Za-z0-9._-]+")
_PREFIX_PART = re.compile(r"[A-Za-z0-9!_.*'()=@+:, -]+")
_ENTROPY = re.compile(r"[01]{1,32}")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")


class ObjectKind(enum.Enum):
    """The objects of segments in all layouts; the value is the suffix of the name."""

    LOG = "log"
    INDEXES = "indexes"
    BLOCKS = "blocks"
    BLOCKS_INDEX = "blocks-index"
    PINTEREST_LOG = "pinterest-log"
    PINTEREST_INDEXES = "pinterest-indexes"
    MANIFEST = "rsm-manifest"


DATA_OBJECTS: dict[Layout, tuple[ObjectKind, ...]] = {
    Layout.KAFKA: (ObjectKind.LOG, ObjectKind.INDEXES),
    Layout.BLOCKS: (ObjectKind.BLOCKS, ObjectKind.BLOCKS_INDEX),
    Layout.PINTEREST: (ObjectKind.PINTEREST_LOG, ObjectKind.PINTEREST_INDEXES),
}
"""What one copy stores, in the order of the manifest's `objects`; the manifest itself follows. The
first has the records, and only that one may be written in parts.
"""

_LAYOUT_BY_KIND = {kind: layout for layout, kinds in DATA_OBJECTS.items() for kind in kinds}
_SUFFIXES = "|".join(kind.value for kind in ObjectKind)
_FILE = re.compile(rf"([0-9]{{20}})-([A-Za-z0-9_-]{{22}})\.({_SUFFIXES})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedName:
    """The parts of a name; `topic_cut` is the first 200 characters of the topic's name."""

    entropy_digits: str
    cluster_id: str
    topic_cut: str
    topic_id: Uuid
    partition: int
    start_offset: int
    segment_id: Uuid
    kind: ObjectKind

    @property
    def layout(self) -> Layout:
        """By the suffix; the manifest has one name in all layouts, and counts as `kafka`."""
        return _LAYOUT_BY_KIND.get(self.kind, Layout.KAFKA)


def check_prefix(prefix: str) -> str:
    """The prefix itself; Invalid for leading, trailing or doubled slashes, "." and "..", or odd
    characters.
    """
    if not prefix:
        return prefix
    if len(prefix.encode("utf-8")) > PREFIX_MAX_BYTES:
        raise Invalid(f"prefix {prefix!r} is longer than {PREFIX_MAX_BYTES} bytes")
    if prefix.startswith("/") or prefix.endswith("/"):
        raise Invalid(f"prefix {prefix!r} must neither begin nor end with a slash")
    for part in prefix.split("/"):
        if part in ("", ".", ".."):
            raise Invalid(f"prefix {prefix!r} has the part {part!r}, which is not allowed")
        if not _PREFIX_PART.fullmatch(part):
            raise Invalid(f"prefix {prefix!r} has characters that are not allowed: {part!r}")
    return prefix


def check_cluster_id(cluster_id: str) -> str:
    """The cluster id itself; Invalid if it cannot be one path component of a name."""
    if (
        cluster_id in (".", "..")
        or len(cluster_id) > CLUSTER_ID_MAX
        or not _CLUSTER.fullmatch(cluster_id)
    ):
        raise Invalid(
            f"cluster id {cluster_id!r} is not 1 to {CLUSTER_ID_MAX} characters "
            "of A-Z a-z 0-9 . _ -"
        )
    return cluster_id


def check_topic(topic: str) -> str:
    """The topic name itself; Invalid where Kafka would refuse it
    (org.apache.kafka.common.internals.Topic).
    """
    if topic in (".", "..") or len(topic) > TOPIC_NAME_MAX or not _TOPIC.fullmatch(topic):
        raise Invalid(
            f"topic name {topic!r} is not 1 to {TOPIC_NAME_MAX} characters of A-Z a-z 0-9 . _ -"
        )
    return topic


def entropy_digits(cluster_id: str, topic: str, partition: int, bits: int) -> str:
    """The leftmost `bits` bits of MD5 over `<cluster>-<topic>-<partition>` as digits; "" for 0
    bits.
    """
    if not 0 <= bits <= ENTROPY_BITS_MAX:
        raise Invalid(f"prefix entropy of {bits} bits is not in 0..{ENTROPY_BITS_MAX}")
    text = f"{cluster_id}-{topic}-{partition}".encode()
    digest = hashlib.md5(text, usedforsecurity=False).digest()
    return f"{int.from_bytes(digest[:4]):032b}"[:bits]


def partition_folder(cluster_id: str, partition: TopicIdPartition, entropy_bits: int = 0) -> str:
    """Name of the folder that holds a partition's objects, without trailing slash."""
    check_cluster_id(cluster_id)
    topic = check_topic(partition.topic)
    digits = entropy_digits(cluster_id, topic, partition.partition, entropy_bits)
    parts = (cluster_id, f"{topic[:TOPIC_CUT]}-{partition.topic_id}", str(partition.partition))
    return "/".join((digits, *parts) if digits else parts)


def layout_of(locator: SegmentLocator) -> Layout:
    """The layout of a segment's objects: `kafka` without custom metadata; Invalid where it is of an
    unknown version or layout.
    """
    custom = _custom(locator)
    return Layout.KAFKA if custom is None else custom.layout


def data_objects_of(locator: SegmentLocator) -> tuple[ObjectKind, ...]:
    """The objects that one copy stores, without the manifest; Invalid as `layout_of`."""
    layout = layout_of(locator)
    kinds = DATA_OBJECTS.get(layout)
    if kinds is None:
        raise Invalid(f"segment {locator.segment_id}: layout {layout} has no objects here")
    return kinds


def suffix_in(layout: Layout, suffix: str) -> str:
    """The suffix of the object that has, in this layout, what the log or the indexes object has in
    the layout `kafka`; every other suffix is the same in all layouts.
    """
    kafka = DATA_OBJECTS[Layout.KAFKA]
    others = DATA_OBJECTS.get(layout, kafka)
    return {one.value: other.value for one, other in zip(kafka, others, strict=False)}.get(
        suffix, suffix
    )


def objects_of(locator: SegmentLocator) -> tuple[ObjectKind, ...]:
    """All objects of a complete segment in the order of their deletion: the manifest first, as it
    is what makes a segment complete.
    """
    return (ObjectKind.MANIFEST, *data_objects_of(locator))


def object_name(locator: SegmentLocator, kind: ObjectKind) -> str:
    """Name of one object; entropy digits by the locator's custom metadata, none without it.

    Invalid for an object that the segment's layout does not have: a store that only knows another
    layout must not answer that such a segment is missing.
    """
    if kind not in objects_of(locator):
        raise Invalid(
            f"segment {locator.segment_id} has layout {layout_of(locator)} and no {kind.value}"
        )
    return names_prefix(locator) + kind.value


def object_names(locator: SegmentLocator) -> dict[ObjectKind, str]:
    """Names of all objects of the segment, in the order of `objects_of`."""
    prefix = names_prefix(locator)
    return {kind: prefix + kind.value for kind in objects_of(locator)}


def segment_stem(locator: SegmentLocator) -> str:
    """The common part of the names of a segment's objects: everything before the suffix."""
    if not 0 <= locator.start_offset <= MAX_OFFSET:
        raise Invalid(f"start offset {locator.start_offset} is no offset")
    custom = _custom(locator)
    partition = locator.segment_id.topic_id_partition
    bits = 0 if custom is None else custom.entropy_bits
    folder = partition_folder(locator.cluster_id, partition, bits)
    return f"{folder}/{locator.start_offset:020d}-{locator.segment_id.id}"


def names_prefix(locator: SegmentLocator) -> str:
    """What the names of all objects of the segment begin with, and no other name does."""
    return f"{segment_stem(locator)}."


def objects_stem(metadata: RemoteLogSegmentMetadata, cluster_id: str) -> str:
    """The same of a segment's metadata; empty where its custom metadata is of an unknown
    version.
    """
    try:
        return segment_stem(metadata.locator(cluster_id))
    except Invalid:
        return ""


def with_prefix(prefix: str, name: str) -> str:
    """The key of a name under a checked prefix."""
    return f"{prefix}/{name}" if prefix else name


def parse_name(name: str) -> ParsedName:
    """The fields of a name; Invalid if it is not the name of a segment's object."""
    parts = name.split("/")
    if len(parts) not in (4, 5):
        raise Invalid(f"{name!r} is not the name of a segment's object")
    digits = parts[0] if len(parts) == 5 else ""
    cluster_id, topic_folder, partition, file = parts[-4:]
    match = _FILE.fullmatch(file)
    if (
        match is None
        or not _PARTITION.fullmatch(partition)
        or (digits and not _ENTROPY.fullmatch(digits))
    ):
        raise Invalid(f"{name!r} is not the name of a segment's object")
    topic_cut, topic_id = parse_topic_folder(topic_folder)
    try:
        segment_id = Uuid.parse(match[2])
    except ValueError as error:
        raise Invalid(f"{name!r} has no segment id: {error}") from error
    return ParsedName(
        entropy_digits=digits,
        cluster_id=check_cluster_id(cluster_id),
        topic_cut=topic_cut,
        topic_id=topic_id,
        partition=int(partition),
        start_offset=int(match[1]),
        segment_id=segment_id,
        kind=ObjectKind(match[3]),
    )


def parse_topic_folder(folder: str) -> tuple[str, Uuid]:
    """`topic-topicId` -> the topic name's first 200 characters and the id; Invalid for anything
    else.
    """
    topic_cut, dash, topic_id = (
        folder[: -_UUID_TEXT - 1],
        folder[-_UUID_TEXT - 1 : -_UUID_TEXT],
        folder[-_UUID_TEXT:],
    )
    if dash != "-" or len(topic_cut) > TOPIC_CUT:
        raise Invalid(f"{folder!r} is not topic-topicId")
    try:
        return check_topic(topic_cut), Uuid.parse(topic_id)
    except ValueError as error:
        raise Invalid(f"{folder!r} is not topic-topicId: {error}") from error


def is_segment_object(name: str) -> bool:
    """Whether a name below the store's prefix is that of an object of a segment."""
    try:
        parse_name(name)
    except Invalid:
        return False
    return True


def is_topic_folder(name: str) -> bool:
    """Whether a folder's name is that of a topic with its id."""
    try:
        parse_topic_folder(name)
    except Invalid:
        return False
    return True


def is_entropy_folder(name: str) -> bool:
    """Whether a folder directly below the prefix may hold the objects of one entropy value."""
    return _ENTROPY.fullmatch(name) is not None


def locator_of(parsed: ParsedName, topic: str) -> SegmentLocator:
    """The locator of a parsed name, for a cleaner that knows the store but no ledger entry."""
    partition = TopicIdPartition(topic_id=parsed.topic_id, topic=topic, partition=parsed.partition)
    return SegmentLocator(
        cluster_id=parsed.cluster_id,
        segment_id=RemoteLogSegmentId(topic_id_partition=partition, id=parsed.segment_id),
        start_offset=parsed.start_offset,
        custom_metadata=_envelope(len(parsed.entropy_digits), parsed.layout),
    )


def _envelope(bits: int, layout: Layout) -> bytes | None:
    if bits == 0 and layout is Layout.KAFKA:
        return None
    return CustomMetadata(store_id=Uuid(bytes(16)), entropy_bits=bits, layout=layout).encode()


def required_custom(locator: SegmentLocator) -> CustomMetadata:
    """The custom metadata of a segment; Invalid where there is none, or of an unknown version."""
    custom = _custom(locator)
    if custom is None:
        raise Invalid(f"segment {locator.segment_id} has no custom metadata")
    return custom


def _custom(locator: SegmentLocator) -> CustomMetadata | None:
    if locator.custom_metadata is None:
        return None
    try:
        return CustomMetadata.decode(locator.custom_metadata)
    except ValueError as error:
        raise Invalid(f"segment {locator.segment_id}: {error}") from error
