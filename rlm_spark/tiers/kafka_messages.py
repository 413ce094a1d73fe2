"""The three requests of the connector's own consumer, in Kafka's bytes, as aiokafka sends them.

aiokafka's own classes stop at Fetch 11 and Metadata 5, which know no topic ids; these speak Fetch
13 and Metadata 12 (Kafka 3.1 and later), so that a topic made anew under an old name is seen (H6),
and the older ones else. Answers are read straight from the frame: record batches are copied once.
Sources: FetchRequest.json, FetchResponse.json, MetadataRequest.json, MetadataResponse.json.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any, ClassVar

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.types import CompactString, Schema, UnsignedVarInt32

NO_TOPIC_ID = bytes(16)
_NO_TAGS = b"\0"


class Cursor:
    """Reads Kafka's types from a frame. ValueError (struct.error) where it is cut short."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def number(self, kind: str) -> int:
        """`kind`: a struct letter; big-endian."""
        (value,) = struct.unpack_from(">" + kind, self._view, self._at)
        self._at += struct.calcsize(">" + kind)
        return int(value)

    def varint(self) -> int:
        """Unsigned, at most 5 bytes."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self._view[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a varint of more than 5 bytes")

    def take(self, size: int) -> bytes:
        """A copy of the next bytes."""
        if not 0 <= size <= len(self._view) - self._at:
            raise ValueError(f"{size} bytes wanted, {len(self._view) - self._at} left")
        self._at += size
        return bytes(self._view[self._at - size : self._at])

    def compact(self) -> bytes | None:
        """Bytes or string with a compact size."""
        size = self.varint() - 1
        return None if size < 0 else self.take(size)

    def plain(self, kind: str) -> bytes | None:
        """Bytes (kind "i") or string ("h") with a plain size."""
        size = self.number(kind)
        return None if size < 0 else self.take(size)

    def text(self) -> str:
        """A compact string; empty where null."""
        return (self.compact() or b"").decode()

    def skip_tags(self) -> None:
        """Tagged fields, whatever they are."""
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())

    def rows(self, read: Callable[["Cursor"], Any], *, is_compact: bool = True) -> list[Any]:
        """An array, each row by `read`; empty where null."""
        count = self.varint() - 1 if is_compact else self.number("i")
        return [read(self) for _ in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAsk:
    """A fetch of one partition, once. `topic_id` None: the broker goes by the name."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    read_committed: bool
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_partition_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """What the broker answered for the one partition."""

    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: tuple[tuple[int, int], ...] = ()
    records: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """A topic as a broker knows it; leaders by partition, -1 = none now."""

    error_code: int
    name: str
    topic_id: bytes
    is_internal: bool
    leaders: dict[int, int]


class _Answer(Response):  # type: ignore[misc]  # aiokafka has no types
    """A response read by hand: `value` is what it says."""

    API_KEY = -1
    API_VERSION = -1
    SCHEMA: ClassVar[Any] = Schema()
    READ: ClassVar[Any]

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    @classmethod
    def decode(cls, data: BytesIO) -> "_Answer":
        view = data.getbuffer()[data.tell() :]
        return cls(cls.READ(Cursor(view)))


def _read_fetch(cursor: Cursor, *, is_flexible: bool) -> FetchedPartition:
    """A Fetch answer of v11, or of the flexible v13, which names topics by id."""
    _, error_code, _ = cursor.number("i"), cursor.number("h"), cursor.number("i")

    def end(row: Cursor) -> None:
        if is_flexible:
            row.skip_tags()

    def aborted(row: Cursor) -> tuple[int, int]:
        found = row.number("q"), row.number("q")
        end(row)
        return found

    def partition(row: Cursor) -> FetchedPartition:
        _, error, high, stable, start = (row.number(kind) for kind in "ihqqq")
        transactions = tuple(row.rows(aborted, is_compact=is_flexible))
        row.number("i")
        records = row.compact() if is_flexible else row.plain("i")
        end(row)
        return FetchedPartition(
            error_code=error,
            high_watermark=high,
            last_stable_offset=stable,
            log_start_offset=start,
            aborted=transactions,
            records=records or b"",
        )

    def topic(row: Cursor) -> list[FetchedPartition]:
        if is_flexible:
            row.take(16)
        else:
            row.plain("h")
        partitions = row.rows(partition, is_compact=is_flexible)
        end(row)
        return partitions

    return _only(error_code, cursor.rows(topic, is_compact=is_flexible))


def _only(error_code: int, topics: Sequence[list[FetchedPartition]]) -> FetchedPartition:
    if error_code:
        return FetchedPartition(error_code=error_code)
    found = [partition for topic in topics for partition in topic]
    if len(found) != 1:
        raise ValueError(f"a fetch of one partition was answered with {len(found)}")
    return found[0]


def _read_metadata_v12(cursor: Cursor) -> "BrokersAndTopics":
    def broker(row: Cursor) -> tuple[int, str, int]:
        found = row.number("i"), row.text(), row.number("i")
        row.compact()
        row.skip_tags()
        return found

    def node(row: Cursor) -> int:
        return row.number("i")

    def partition(row: Cursor) -> tuple[int, int]:
        _, index, leader, _ = (row.number(kind) for kind in "hiii")
        for _ in range(3):
            row.rows(node)
        row.skip_tags()
        return index, leader

    def topic(row: Cursor) -> TopicMetadata:
        error, name, topic_id = row.number("h"), row.text(), row.take(16)
        is_internal = bool(row.number("b"))
        leaders = dict(row.rows(partition))
        row.number("i")
        row.skip_tags()
        return TopicMetadata(
            error_code=error,
            name=name,
            topic_id=topic_id,
            is_internal=is_internal,
            leaders=leaders,
        )

    cursor.number("i")
    brokers = cursor.rows(broker)
    cluster_id = cursor.text()
    cursor.number("i")
    return BrokersAndTopics(
        cluster_id=cluster_id, brokers=tuple(brokers), topics=tuple(cursor.rows(topic))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokersAndTopics:
    """Brokers as (node id, host, port)."""

    cluster_id: str
    brokers: tuple[tuple[int, str, int], ...]
    topics: tuple[TopicMetadata, ...]


class FetchResponse_v11(_Answer):
    API_KEY = 1
    API_VERSION = 11
    READ = staticmethod(partial(_read_fetch, is_flexible=False))


class FetchResponse_v13(_Answer):
    API_KEY = 1
    API_VERSION = 13
    READ = staticmethod(partial(_read_fetch, is_flexible=True))


class MetadataResponse_v12(_Answer):
    API_KEY = 3
    API_VERSION = 12
    READ = staticmethod(_read_metadata_v12)


class _Ask(RequestStruct):  # type: ignore[misc]  # aiokafka has no types
    """A request written by hand."""

    API_KEY = -1
    API_VERSION = -1
    RESPONSE_TYPE: ClassVar[Any] = _Answer
    SCHEMA: ClassVar[Any] = Schema()

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self._body = body

    def encode(self) -> bytes:
        return self._body


class FetchRequest_v11(_Ask):
    API_KEY = 1
    API_VERSION = 11
    RESPONSE_TYPE = FetchResponse_v11


class FetchRequest_v13(_Ask):
    API_KEY = 1
    API_VERSION = 13
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = FetchResponse_v13


class MetadataRequest_v12(_Ask):
    API_KEY = 3
    API_VERSION = 12
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = MetadataResponse_v12


class FetchOnce(Request[FetchRequest_v11 | FetchRequest_v13]):  # type: ignore[misc]
    """Fetch without a session: by topic id where the broker knows them and we know it."""

    API_KEY = 1

    def __init__(self, ask: FetchAsk) -> None:
        self._ask = ask

    def prepare(self, versions: dict[int, tuple[int, int]]) -> Any:
        if self._ask.topic_id == NO_TOPIC_ID:
            least, most = versions[self.API_KEY]
            versions = {self.API_KEY: (least, min(most, 12))}
        return super().prepare(versions)

    def build(self, struct_class: Any) -> Any:
        write = _fetch_v13 if struct_class is FetchRequest_v13 else _fetch_v11
        return struct_class(write(self._ask))


class DescribeTopics(Request[MetadataRequest_v5 | MetadataRequest_v12]):  # type: ignore[misc]
    """Metadata that never creates a topic. `topics` None: all."""

    API_KEY = 3

    def __init__(self, topics: Sequence[str] | None) -> None:
        self._topics = topics

    def build(self, struct_class: Any) -> Any:
        if struct_class is MetadataRequest_v12:
            return struct_class(_metadata_v12(self._topics))
        return struct_class(None if self._topics is None else list(self._topics), False)


def described(answer: Any) -> BrokersAndTopics:
    """Either version's answer to DescribeTopics."""
    if isinstance(answer, MetadataResponse_v12):
        value: BrokersAndTopics = answer.value
        return value
    return BrokersAndTopics(
        cluster_id=answer.cluster_id or "",
        brokers=tuple((row[0], row[1], row[2]) for row in answer.brokers),
        topics=tuple(
            TopicMetadata(
                error_code=error,
                name=name,
                topic_id=NO_TOPIC_ID,
                is_internal=is_internal,
                leaders={row[1]: row[2] for row in partitions},
            )
            for error, name, is_internal, partitions in answer.topics
        ),
    )


def _fetch_head(ask: FetchAsk) -> bytes:
    isolation = 1 if ask.read_committed else 0
    # No replica; no session: id 0, epoch -1 (KIP-227).
    return struct.pack(
        ">iiiibii", -1, ask.max_wait_ms, ask.min_bytes, ask.max_bytes, isolation, 0, -1
    )


def _fetch_v11(ask: FetchAsk) -> bytes:
    name = ask.topic.encode()
    # Unknown epoch and log start; one topic, one partition; nothing forgotten; no rack.
    partition = struct.pack(
        ">iiiqqi", 1, ask.partition, -1, ask.offset, -1, ask.max_partition_bytes
    )
    topic = struct.pack(">ih", 1, len(name)) + name + partition
    return _fetch_head(ask) + topic + struct.pack(">ih", 0, 0)


def _fetch_v13(ask: FetchAsk) -> bytes:
    partition = struct.pack(
        ">iiqiqi", ask.partition, -1, ask.offset, -1, -1, ask.max_partition_bytes
    )
    topic = ask.topic_id + b"\2" + partition + _NO_TAGS + _NO_TAGS
    return _fetch_head(ask) + b"\2" + topic + b"\1" + b"\1" + _NO_TAGS


def _metadata_v12(topics: Sequence[str] | None) -> bytes:
    if topics is None:
        rows = b"\0"
    else:
        rows = UnsignedVarInt32.encode(len(topics) + 1) + b"".join(
            NO_TOPIC_ID + CompactString().encode(topic) + _NO_TAGS for topic in topics
        )
    # No auto-creation, no authorized operations.
    return rows + b"\0\0" + _NO_TAGS
