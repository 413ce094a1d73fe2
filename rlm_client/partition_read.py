"""Which tier one partition of an assignment is read from now, and when that is asked again.

    mode              begins with   goes to the other tier
    kafka_preferred   Kafka         where Kafka says "out of range"; back where Kafka's log begins
    remote_preferred  remote        where the remote tier ends, or fails; back when it has the
                                    position again, which is asked every CHECK_MS; and as above
    remote_only       remote        never

This module must not know Kafka or gRPC.
"""

import enum
from dataclasses import dataclass

from tiered_reads import clock
from tiered_reads.values import ReadMode

CHECK_MS = 30_000
"""How often remote_preferred asks whether the remote tier has come to have the position."""
POLL_MS = 1_000
"""How often remote_only asks whether the remote tier has grown."""
MOST_PAUSE_MS = 10_000
"""Longest time between two answers of one proof that a position is beyond the end."""
_MOST_BACKOFF_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Beyond:
    """Every answer from `since_ms` to `last_ms` was that the position is beyond the log's end."""

    position: int
    since_ms: int
    last_ms: int


class Tier(enum.Enum):
    """Where records are read from."""

    KAFKA = "kafka"
    REMOTE = "remote"


@dataclass(slots=True)
class PartitionRead:
    """`is_denied`: Kafka has said that the position is out of its range. `lost_at`: the position
    that no tier had, until there is another.
    """

    mode: ReadMode
    tier: Tier = Tier.REMOTE
    is_denied: bool = False
    lost_at: int | None = None
    _beyond: Beyond | None = None
    _check_at_ms: int = 0
    _wait_until_ms: int = 0
    _failures: int = 0
    _failing_since_ms: int | None = None

    def __post_init__(self) -> None:
        if self.mode is ReadMode.KAFKA_PREFERRED:
            self.tier = Tier.KAFKA

    def must_wait(self, now_ms: int) -> bool:
        """Whether the remote tier is to be left alone for now."""
        return now_ms < self._wait_until_ms

    def is_check_due(self, now_ms: int) -> bool:
        """Whether it is time to ask if the remote tier has the position."""
        is_asked = self.mode is ReadMode.REMOTE_PREFERRED and self.tier is Tier.KAFKA
        return is_asked and now_ms >= self._check_at_ms

    def denied_by_kafka(self) -> None:
        """Kafka does not have the position."""
        self.is_denied = True
        self.tier = Tier.REMOTE

    def beyond_for_ms(self, position: int, now_ms: int) -> int:
        """The position is beyond the log's end: for how long every answer has said so of it. One
        about another position, or after a pause in which nothing was asked, is the first.
        """
        before = self._beyond
        since_ms = now_ms
        if (
            before is not None
            and before.position == position
            and now_ms - before.last_ms <= MOST_PAUSE_MS
        ):
            since_ms = before.since_ms
        self._beyond = Beyond(position=position, since_ms=since_ms, last_ms=now_ms)
        return now_ms - since_ms

    def ends_proof(self) -> None:
        """What was answered about a position beyond the end counts no more."""
        self._beyond = None

    def goes_to_kafka(self, now_ms: int, *, check_in_ms: int = CHECK_MS) -> None:
        """Kafka is read from here on."""
        self.tier = Tier.KAFKA
        self.is_denied = False
        self.ends_proof()
        self.answered()
        self._check_at_ms = now_ms + check_in_ms

    def goes_to_remote(self) -> None:
        """The remote tier has the position."""
        self.tier = Tier.REMOTE

    def checked(self, now_ms: int) -> None:
        """The remote tier was asked, or could not be."""
        self._check_at_ms = now_ms + CHECK_MS

    def waits(self, now_ms: int, duration_ms: float = POLL_MS) -> None:
        """The remote tier has nothing now."""
        self.answered()
        self._wait_until_ms = now_ms + int(duration_ms)

    def failed(self, now_ms: int) -> None:
        """The remote tier could not be read: it is tried again, or Kafka where it may have it."""
        if self.mode is ReadMode.REMOTE_PREFERRED and not self.is_denied:
            self.goes_to_kafka(now_ms)
            return
        self.fails(now_ms)
        backoff_ms = clock.backoff_ms(self._failures, most_ms=_MOST_BACKOFF_MS)
        self._wait_until_ms = now_ms + int(backoff_ms)
        self._failures += 1

    def fails(self, now_ms: int) -> None:
        """What the remote tier was asked has failed."""
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms

    def was_raised(self, now_ms: int) -> None:
        """What has failed until now was raised."""
        self._failing_since_ms = now_ms

    def failing_for_ms(self, now_ms: int) -> int:
        """How long nothing has been answered but failures; 0 = the last was an answer."""
        since_ms = self._failing_since_ms
        return 0 if since_ms is None else now_ms - since_ms

    def answered(self) -> None:
        """The partition is not failing: a tier has said what it has."""
        self._failing_since_ms = None

    def progressed(self) -> None:
        """A piece came."""
        self._failures = 0
        self.ends_proof()
        self.answered()
