"""Records of every kind a client can send, in an order that both tiers must keep.

Five codecs; keys, headers, nulls and empty fields; transactions committed and aborted, one of them
open over several segments.
"""

import itertools
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, Producer

from rlm_sandbox.demo.content import DemoRecord, Headers
from rlm_sandbox.demo.read_java import printed_content
from tests.scenarios.cluster import Cluster, Row, row_of, text_value

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
STEP_MS = 10
# The broker stamps markers of transactions with its own time: records that ascend from a minute
# ahead are never mistaken for one (brokers refuse what is more than an hour ahead).
_AHEAD_MS = 60_000
_PLAIN_A_PASS = 300
_LIMIT_S = 120
_OPEN_MS = 600_000
"""So long a transaction stays open, whatever stalls."""
_TRANSACTION = 40
_HEADERS: tuple[Headers, ...] = (
    (),
    (("source", b"test"),),
    (("source", b"a"), ("source", b"b"), ("nothing", None), ("empty", b"")),
    (("größe", b"\x00\xff"),),
)


@dataclass(slots=True)
class Mixed:
    """The acknowledged records: `rows` of all, and the offsets whose transaction was aborted."""

    rows: list[Row] = field(default_factory=list)
    aborted: set[tuple[int, int]] = field(default_factory=set)

    @property
    def all_rows(self) -> list[Row]:
        return sorted(self.rows, key=lambda row: (row.partition, row.offset))

    @property
    def committed(self) -> list[Row]:
        return [row for row in self.all_rows if (row.partition, row.offset) not in self.aborted]


def printed(rows: list[Row]) -> list[tuple[int, int, bytes]]:
    """Rows as Java's console consumer prints them: partition, offset, content."""
    return [
        (
            row.partition,
            row.offset,
            printed_content(
                DemoRecord(row.partition, row.timestamp_ms, row.key, row.value, row.headers)
            ),
        )
        for row in rows
    ]


class Load:
    """Producers of all kinds for one topic; timestamps ascend by STEP_MS with every record."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        self.mixed = Mixed()
        self._topic = topic
        self._partitions = partitions
        self._first_ms = int(time.time() * 1000) + _AHEAD_MS
        self._serials = itertools.count()
        self._plain = {codec: _producer(cluster, codec) for codec in CODECS}
        self._transactional = {
            codec: _producer(cluster, codec, **_transactional(f"{topic}-{codec}"))
            for codec in CODECS
        }

    def run(self, mib: int) -> Mixed:
        """Sends until so many MiB of values are acknowledged; the last record is a plain one.

        Markers of transactions may still be written behind it: a broker answers before it does so.
        """
        for producer in self._transactional.values():
            producer.init_transactions(_LIMIT_S)
        size = 0
        for number, codec in enumerate(itertools.cycle(CODECS)):
            self._send_once(codec, abort=number % 2 == 0, long=number in (2, 3))
            size = sum(len(row.value or b"") for row in self.mixed.rows)
            if size >= mib << 20:
                break
        self._send(self._plain["none"], self._partitions, aborted=False)
        return self.mixed

    def _send_once(self, codec: str, *, abort: bool, long: bool) -> None:
        transactional, plain = self._transactional[codec], self._plain[codec]
        transactional.begin_transaction()
        self._send(transactional, _TRANSACTION, aborted=abort)
        self._send(plain, _PLAIN_A_PASS * (8 if long else 1), aborted=False)
        self._send(transactional, _TRANSACTION, aborted=abort)
        if abort:
            transactional.abort_transaction(_LIMIT_S)
        else:
            transactional.commit_transaction(_LIMIT_S)

    def _send(self, producer: Producer, count: int, *, aborted: bool) -> None:
        """In order: every record of this is acknowledged before another producer goes on."""

        def delivered(headers: Headers, error: KafkaError | None, message: Any) -> None:
            assert error is None, error
            row = replace(row_of(message), headers=headers)  # a report comes without them
            self.mixed.rows.append(row)
            if aborted:
                self.mixed.aborted.add((row.partition, row.offset))

        for serial in itertools.islice(self._serials, count):
            headers = _HEADERS[serial % len(_HEADERS)]
            producer.produce(
                self._topic,
                partition=serial % self._partitions,
                timestamp=self._first_ms + serial * STEP_MS,
                key=_key(serial),
                value=_value(serial),
                headers=list(headers),
                on_delivery=partial(delivered, headers),
            )
            producer.poll(0)
        assert producer.flush(_LIMIT_S) == 0


def _transactional(name: str) -> dict[str, Any]:
    return {"transactional.id": name, "transaction.timeout.ms": _OPEN_MS}


def _producer(cluster: Cluster, codec: str, **extra: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 5,
            **cluster.client,
            **extra,
        }
    )


def _key(serial: int) -> bytes | None:
    if serial % 17 in (3, 4):
        return None if serial % 17 == 3 else b""
    return b"key-%d" % serial


def _value(serial: int) -> bytes | None:
    """No line feed in it, for the console consumer's sake."""
    if serial % 23 in (5, 6):
        return None if serial % 23 == 5 else b""
    return b"%d:" % serial + text_value(800 + serial * 37 % 1_600)
