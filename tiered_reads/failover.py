"""Fails over between tiers while it reads a range, so that each offset is returned exactly once.

Every read mode is one loop over tiers in the mode's order of preference. A tier is read until the
range is covered or the tier does not have the next offset. Then the next tier is read from that
offset, up to where a preferred tier has data again. An offset is lost only if every tier denies it
and that is certain. Where it is not certain, the authoritative reader decides: it reads through the
partition's leader, which confirms its answers by barriers. Without an answer from it the read fails
and reports no loss. This module must not know Kafka or gRPC.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tiered_reads import clock
from tiered_reads.errors import ConnectorError
from tiered_reads.stopping import Stop
from tiered_reads.values import DataLoss, Fetched, OffsetRange

SETTLE_MS = 10_000


class Absent(Exception):
    """A tier does not have the next offset. `next_offset`: where it has data again, None = nowhere.

    `is_certain` False: the tier may have the offset without knowing it yet. `is_final`: no other
    tier can have the offset either.
    """

    def __init__(
        self,
        reason: str,
        *,
        next_offset: int | None = None,
        is_certain: bool = True,
        is_final: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.next_offset = next_offset
        self.is_certain = is_certain
        self.is_final = is_final


class TierReader(Protocol):
    """Reads one tier of a partition."""

    name: str

    def read(self, start_offset: int, end_offset: int, stop: Stop) -> Iterator[Fetched]:
        """Pieces from start_offset on, in order, until end_offset is covered. A piece begins where
        the one before ended. Raises Absent where the tier cannot continue.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Tiers in order of preference; from `remote_end` on (None = never) the order is reversed.

    `authoritative` reads all tiers through the leader. It is asked where the tier readers do not
    settle which tier has an offset. `settle_ms`: how long such a question is repeated before it is
    an error. A service's view of the ledger is behind by less than that while Kafka is available.
    """

    readers: Sequence[TierReader]
    authoritative: TierReader | None = None
    remote_end: int | None = None
    settle_ms: int = SETTLE_MS

    def at(self, offset: int) -> Sequence[TierReader]:
        """The tier readers in order of preference at an offset."""
        if self.remote_end is not None and offset >= self.remote_end:
            return tuple(reversed(self.readers))
        return self.readers

    def bound(self, reader: TierReader, offset: int, end_offset: int) -> int:
        """The offset up to which a reader that is read at `offset` stays preferred."""
        if self.remote_end is None or offset >= self.remote_end or reader is not self.readers[0]:
            return end_offset
        return min(end_offset, self.remote_end)


class PieceIterator:
    """Iterates over the pieces and losses of one range."""

    def __init__(self, wanted: OffsetRange, order: Order, stop: Stop) -> None:
        self._wanted = wanted
        self._order = order
        self._stop = stop
        self._position = wanted.start_offset
        self._denials: dict[str, Absent] = {}
        self._denied_since_ms: int | None = None
        self._waits = 0

    def __iter__(self) -> Generator[Fetched | DataLoss, None, None]:
        """Pieces and losses in offset order, from the range's start to its end."""
        end = self._wanted.end_offset
        while self._position < end:
            self._stop.check()
            reader = self._next_reader()
            if reader is None:
                if loss := self._decided_loss():
                    yield loss
                continue
            try:
                for piece in reader.read(self._position, self._bound(reader), self._stop):
                    self._moved_to(piece.next_offset)
                    yield piece
            except Absent as absent:
                self._denials[reader.name] = absent
                self._denied_since_ms = self._denied_since_ms or clock.monotonic_ms()

    def _next_reader(self) -> TierReader | None:
        """The most preferred reader that has not denied this offset, then the authoritative one.

        None: it is certain that no tier has the offset, or no reader is left.
        """
        if any(denial.is_final for denial in self._denials.values()):
            return None
        readers = self._order.at(self._position)
        reader = next((reader for reader in readers if reader.name not in self._denials), None)
        if reader is None and not self._is_decided():
            last = self._order.authoritative
            return last if last is not None and last.name not in self._denials else None
        return reader

    def _is_decided(self) -> bool:
        """Whether the denials together are certain; that of the authoritative reader decides."""
        authoritative = self._order.authoritative
        if authoritative is not None and authoritative.name in self._denials:
            return self._denials[authoritative.name].is_certain
        return all(denial.is_certain for denial in self._denials.values())

    def _bound(self, reader: TierReader) -> int:
        """The end of the range, or where a more preferred tier has data again."""
        end = self._order.bound(reader, self._position, self._wanted.end_offset)
        return min([end, *self._resumptions()])

    def _resumptions(self) -> list[int]:
        found = (denial.next_offset for denial in self._denials.values())
        return [offset for offset in found if offset is not None and offset > self._position]

    def _decided_loss(self) -> DataLoss | None:
        """The loss, if it is certain that no tier has the offset; None after a wait otherwise.

        ConnectorError if it stays uncertain.
        """
        start, end = self._position, self._wanted.end_offset
        reason = "; ".join(f"{name}: {denial.reason}" for name, denial in self._denials.items())
        if not (self._is_decided() or any(one.is_final for one in self._denials.values())):
            open_ms = clock.monotonic_ms() - (self._denied_since_ms or 0)
            if open_ms >= self._order.settle_ms:
                raise ConnectorError(
                    f"{self._wanted.topic_partition}: for {open_ms} ms no service could confirm "
                    f"which tier has offset {start}, or that it is lost: {reason}"
                )
            self._stop.wait(clock.backoff_ms(self._waits, most_ms=1_000))
            self._waits += 1
            self._denials.clear()
            return None
        resumes_at = min(self._resumptions(), default=None)
        after = end if resumes_at is None else min(end, resumes_at)
        self._moved_to(after)
        return DataLoss(
            topic_partition=self._wanted.topic_partition,
            start_offset=start,
            end_offset=after,
            reason=reason,
            resumes_at=resumes_at,
        )

    def _moved_to(self, offset: int) -> None:
        self._position = offset
        self._denials.clear()
        self._denied_since_ms = None
        self._waits = 0
