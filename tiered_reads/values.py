"""The values of a read from both tiers; all pickle, because Spark sends them to executors.

This module must not know Spark, gRPC or Kafka clients.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kip405.crc import ByteBuffer


class TopicPartition(NamedTuple):
    """One partition of one topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets [start_offset, end_offset) of one partition: what one task reads."""

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int

    @property
    def size(self) -> int:
        """How many offsets it spans; records may be fewer."""
        return self.end_offset - self.start_offset


class ReadMode(enum.Enum):
    """Which tiers are read, in which order: the modes of Pinterest's Tiered Storage Consumer."""

    KAFKA_PREFERRED = "kafka_preferred"
    REMOTE_PREFERRED = "remote_preferred"
    REMOTE_ONLY = "remote_only"
    KAFKA_ONLY = "kafka_only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Whole stored record batches as one answer brought them, and which of their records count.

    The records of this piece are those with start_offset <= offset < next_offset: the first batch
    may begin below (another tier had those records, or they were deleted), the last may reach
    beyond the range. No two pieces of a read overlap. `aborted`: (producer id, first offset) of
    every aborted transaction that overlaps the batches. `next_offset`: where reading goes on.
    `is_from_store`: its reader has read the store itself. `is_checked`: the checksum of each batch
    is known to be right.
    """

    batches: ByteBuffer
    next_offset: int
    aborted: tuple[tuple[int, int], ...] = ()
    start_offset: int = 0
    is_from_store: bool = False
    is_checked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLoss:
    """Offsets of a range that no tier of the read mode has.

    `resumes_at`: where some tier has data again, at `end_offset` or beyond: the log begins later by
    now, or has a hole. None: no tier has any, because the topic is gone or its log was cut.
    """

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int
    reason: str
    resumes_at: int | None = None


def token_of(text: str) -> str | None:
    """The token that calls send, by the text of a token file: its first line. None: it has none
    that a call can carry. Services accept the tokens of the other lines too, while tokens are being
    replaced.
    """
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return lines[0] if lines and is_fit(lines[0]) else None


def is_fit(text: str) -> bool:
    """Whether gRPC's metadata takes it."""
    return text.isascii() and text.isprintable()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConnection:
    """How the fetch API is reached. Files are PEM; TLS is on where any of them is given.

    `token_file`: where `token` came from. A process that has the file takes the token from there,
    as it is when a call begins; others send what the driver has read.
    """

    endpoints: tuple[str, ...]
    principal: str
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_server_name: str | None = None
    call_timeout_ms: int = 30_000

    @property
    def has_tls(self) -> bool:
        return bool(
            self.tls_ca_file or self.tls_cert_file or self.tls_key_file or self.tls_server_name
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorOptions:
    """What executors need of a query's options.

    `kafka`: properties of the connector's own consumer by Kafka's names, without the prefix
    `kafka.`; they may hold secrets. `service` None: only `kafka_only` is possible.
    """

    read_mode: ReadMode
    kafka: Mapping[str, str] = field(repr=False)
    service: ServiceConnection | None
    read_committed: bool = False
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = 120_000
    fetch_offset_retries: int = 3
    fetch_offset_retry_interval_ms: int = 10

    @property
    def has_kafka(self) -> bool:
        return "bootstrap.servers" in self.kafka
