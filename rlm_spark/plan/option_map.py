"""The options of a query: the table of their rows, and a map of what Spark passes, read by it.

Spark passes texts under keys of any case. A wrong value raises OptionError with the option's name
as documented; the wording is Spark's where Spark checks the option too. docs/spark.md has the rows.
"""

import enum
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kip405.errors import Invalid
from kip405.settings import Kind, RefusedAs, Setting, Table
from rlm_spark.plan.offset_specs import NoMatch, OptionError
from tiered_reads.values import ConnectorOptions, ReadMode

_MAX_LONG: Final = (1 << 63) - 1
_MAX_INT: Final = (1 << 31) - 1
# JavaUtils.timeStringAs of Spark; a bare number is milliseconds.
_UNIT_MS: Final = {
    "": 1,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_DEFAULTS: Final = ConnectorOptions(read_mode=ReadMode.KAFKA_ONLY, kafka={}, service=None)


def _boolean(value: str) -> bool:
    text = value.strip().lower()
    if text not in ("true", "false"):
        raise ValueError
    return text == "true"


def _whole(least: int, most: int = _MAX_LONG) -> Kind:
    """A whole number from 0 or 1 to `most`, refused in Spark's words."""

    def read(value: str) -> int:
        text = value.strip()
        if least and re.fullmatch(r"-[0-9]+", text):
            raise RefusedAs("must be positive")
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or int(text) > most:
            raise RefusedAs(f'must be a whole number. For input string: "{value}"')
        if int(text) < 0:
            raise RefusedAs(f"must not be negative, got {text}")
        if int(text) < least:
            raise RefusedAs("must be positive")
        return int(text)

    return Kind(allowed=f"a whole number from {least} to {most}", read=read)


def _duration_ms(value: str) -> int:
    found = re.fullmatch(r"([0-9]{1,15})\s*([a-z]{0,3})", value.strip().lower())
    if found is None or found[2] not in _UNIT_MS:
        raise ValueError
    return int(found[1]) * _UNIT_MS[found[2]]


def _member_of(members: type[enum.Enum]) -> Kind:
    """A member of an enumeration by its value, in any case."""
    names = " or ".join(member.value for member in members)
    return Kind(allowed=names, read=lambda value: members(value.strip().lower()))


class Isolation(enum.Enum):
    """Kafka's isolation levels."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


_STRING: Final = Kind(allowed="a text", read=lambda value: value.strip() or None)
_BOOLEAN: Final = Kind(allowed="true or false", read=_boolean)
_DURATION: Final = Kind(allowed="a time such as 15m, 30s or 500ms", read=_duration_ms)

OPTIONS: Final = Table(
    Setting(key="assign", kind=_STRING, doc='JSON of partitions, `{"orders":[0,1]}`.'),
    Setting(key="subscribe", kind=_STRING, doc="Topics, separated by commas."),
    Setting(
        key="subscribePattern",
        kind=_STRING,
        doc="A regular expression; topics in whose names it is found are read.",
    ),
    Setting(
        key="kafka.bootstrap.servers",
        kind=_STRING,
        doc="Kafka itself, past every proxy; other `kafka.*` options go to the connector's "
        "own consumer.",
    ),
    Setting(
        key="rlm.endpoints", kind=_STRING, doc="gRPC addresses of services, separated by commas."
    ),
    Setting(
        key="readMode",
        kind=_member_of(ReadMode),
        doc="Which tier is read: see below.",
        default=ReadMode.KAFKA_PREFERRED,
    ),
    Setting(
        key="startingTimestamp",
        kind=_STRING,
        doc="Milliseconds, for all partitions; it wins over the next two.",
    ),
    Setting(
        key="startingOffsetsByTimestamp",
        kind=_STRING,
        doc="JSON of milliseconds by partition; it wins over the next one.",
    ),
    Setting(
        key="startingOffsets",
        kind=_STRING,
        doc="`earliest`, `latest` (streams), or JSON of offsets by partition, -2 earliest, "
        "-1 latest.",
        default_doc="`earliest`, streams `latest`",
    ),
    Setting(
        key="startingOffsetsByTimestampStrategy",
        kind=_member_of(NoMatch),
        doc="`error` or `latest`: what to do when the starting time is later than every record.",
        default=NoMatch.ERROR,
    ),
    Setting(key="endingTimestamp", kind=_STRING, doc="Batch only, likewise."),
    Setting(key="endingOffsetsByTimestamp", kind=_STRING, doc="Batch only, likewise."),
    Setting(
        key="endingOffsets",
        kind=_STRING,
        doc="Batch only, likewise; exclusive.",
        default_doc="`latest`",
    ),
    Setting(
        key="failOnDataLoss",
        kind=_BOOLEAN,
        doc="Whether requested offsets that no tier has are an error, or are skipped with a "
        "warning.",
        default=True,
    ),
    Setting(key="includeHeaders", kind=_BOOLEAN, doc="Add the column `headers`.", default=False),
    Setting(
        key="kafka.isolation.level",
        kind=_member_of(Isolation),
        doc="`read_committed` leaves out records of aborted and open transactions.",
        default=Isolation.READ_UNCOMMITTED,
    ),
    Setting(
        key="minPartitions",
        kind=_whole(1, _MAX_INT),
        doc="The least number of tasks; large ranges are split.",
    ),
    Setting(
        key="maxRecordsPerPartition",
        kind=_whole(1),
        doc="The largest number of offsets of one task.",
    ),
    Setting(
        key="maxOffsetsPerTrigger",
        kind=_whole(0),
        doc="Streams: the largest number of offsets of one trigger, in proportion over partitions.",
    ),
    Setting(
        key="minOffsetsPerTrigger",
        kind=_whole(0),
        doc="Streams: wait until that many offsets are available.",
    ),
    Setting(
        key="maxTriggerDelay",
        kind=_DURATION,
        doc="Streams: the longest time to wait for `minOffsetsPerTrigger`.",
        default=900_000,
        default_doc="`15m`",
    ),
    Setting(
        key="pushdown",
        kind=_BOOLEAN,
        doc="Batch: use filters to read less, see below.",
        default=False,
    ),
    Setting(
        key="kafkaConsumer.pollTimeoutMs",
        kind=_whole(1),
        doc="How long a task goes on without any progress.",
        default=_DEFAULTS.poll_timeout_ms,
    ),
    Setting(
        key="fetchOffset.numRetries",
        kind=_whole(0),
        doc="How often offsets are asked for again.",
        default=_DEFAULTS.fetch_offset_retries,
    ),
    Setting(
        key="fetchOffset.retryIntervalMs",
        kind=_whole(0),
        doc="How long is waited in between.",
        default=_DEFAULTS.fetch_offset_retry_interval_ms,
    ),
    Setting(
        key="groupIdPrefix", kind=_STRING, doc="Accepted and ignored: the connector joins no group."
    ),
    Setting(
        key="rlm.principal",
        kind=_STRING,
        doc="The principal that services see; quotas count by it.",
        default_doc="`spark-USER`",
    ),
    Setting(
        key="rlm.token",
        kind=_STRING,
        doc="The API token; a secret that is never shown.",
        secret=True,
    ),
    Setting(
        key="rlm.token.file",
        kind=_STRING,
        doc="Instead of `rlm.token`: a file with the token. The driver reads it when a query "
        "starts. Driver and executors that have the file read it again when it changes, so that "
        "long queries go on with a new token.",
    ),
    Setting(
        key="rlm.tls.ca.file",
        kind=_STRING,
        doc="PEM file with the services' authorities.",
        default_doc="the system's",
    ),
    Setting(key="rlm.tls.cert.file", kind=_STRING, doc="PEM file with the certificate to show."),
    Setting(key="rlm.tls.key.file", kind=_STRING, doc="PEM file with its key."),
    Setting(
        key="rlm.tls.server.name",
        kind=_STRING,
        doc="Name in the services' certificates.",
        default_doc="the host",
    ),
    Setting(
        key="rlm.call.timeout.ms",
        kind=_whole(1),
        doc="Time without an answer after which a service counts as dead and another one is "
        "called.",
        default=30_000,
    ),
)


class OptionMap(Mapping[str, str]):
    """A copy of a query's options; lookups by any case, iteration gives lower-case keys."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {key.lower(): value for key, value in options.items()}

    def __getitem__(self, key: str) -> str:
        return self._values[key.lower()]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"OptionMap({', '.join(sorted(self._values))})"

    def value(self, key: str) -> Any:
        """The value of an option by its row, or the row's default; OptionError."""
        row = OPTIONS[key]
        if key not in self:
            return row.default
        try:
            return row.read(self[key])
        except Invalid as error:
            raise OptionError(str(error)) from None
