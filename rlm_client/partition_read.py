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
_MOST_BACKOFF_MS = 5_000


class Tier(enum.Enum):
    """Where records are read from."""

    KAFKA = "kafka"
    REMOTE = "remote"


@dataclass(slots=True)
class PartitionRead:
    """`is_denied`: Kafka has said that the position is out of its range. `beyond_since_ms`: since
    when every answer has been that the position is beyond the log's end. `lost_at`: the position
    that no tier had, until there is another.
    """

    mode: ReadMode
    tier: Tier = Tier.REMOTE
    is_denied: bool = False
    beyond_since_ms: int | None = None
    lost_at: int | None = None
    _check_at_ms: int = 0
    _wait_until_ms: int = 0
    _failures: int = 0

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

    def goes_to_kafka(self, now_ms: int, *, check_in_ms: int = CHECK_MS) -> None:
        """Kafka is read from here on."""
        self.tier = Tier.KAFKA
        self.is_denied = False
        self.beyond_since_ms = None
        self._check_at_ms = now_ms + check_in_ms

    def goes_to_remote(self) -> None:
        """The remote tier has the position."""
        self.tier = Tier.REMOTE

    def checked(self, now_ms: int) -> None:
        """The remote tier was asked, or could not be."""
        self._check_at_ms = now_ms + CHECK_MS

    def waits(self, now_ms: int, duration_ms: float = POLL_MS) -> None:
        """The remote tier has nothing now."""
        self._wait_until_ms = now_ms + int(duration_ms)

    def failed(self, now_ms: int) -> None:
        """The remote tier could not be read: it is tried again, or Kafka where it may have it."""
        if self.mode is ReadMode.REMOTE_PREFERRED and not self.is_denied:
            self.goes_to_kafka(now_ms)
            return
        self.waits(now_ms, clock.backoff_ms(self._failures, most_ms=_MOST_BACKOFF_MS))
        self._failures += 1

    def progressed(self) -> None:
        """A piece came."""
        self._failures = 0
        self.beyond_since_ms = None
