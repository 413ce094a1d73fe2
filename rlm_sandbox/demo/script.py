"""Who produces which records in which order: rounds of chunks, by codec and transaction. Pure.

A transaction of one producer is open while another producer writes, so that records of committed,
aborted and no transactions lie between each other; every codec is used in all three ways.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CHUNK_RECORDS = 400
TRANSACTION_RECORDS = 200
_TRANSACTION_EVERY = 3
_ABORT_EVERY = 3


class Outcome(enum.Enum):
    """How the records of a chunk end."""

    PLAIN = "plain"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Consecutive serial numbers that one producer sends."""

    codec: str
    outcome: Outcome
    serials: range


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Half of the transaction is sent, then the plain chunk, then the other half and its end."""

    plain: Chunk
    transaction: Chunk | None


def rounds() -> Iterator[Round]:
    """Rounds without end; the producer stops after one when enough bytes are there."""
    serial = number = transactions = 0
    while True:
        transaction = None
        if number % _TRANSACTION_EVERY == 0:
            aborted = transactions % _ABORT_EVERY == 1
            transaction = Chunk(
                codec=CODECS[transactions % len(CODECS)],
                outcome=Outcome.ABORTED if aborted else Outcome.COMMITTED,
                serials=range(serial, serial + TRANSACTION_RECORDS),
            )
            serial += TRANSACTION_RECORDS
            transactions += 1
        plain = Chunk(
            codec=CODECS[number % len(CODECS)],
            outcome=Outcome.PLAIN,
            serials=range(serial, serial + CHUNK_RECORDS),
        )
        serial += CHUNK_RECORDS
        number += 1
        yield Round(plain=plain, transaction=transaction)
