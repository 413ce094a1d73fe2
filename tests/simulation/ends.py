"""Up to where the partition's records have ended, and who ended them (H1, H2, H16).

Users end records by DeleteRecords; total retention ends what is too old or too much. A remote log
start that moves for any other reason is a loss. The age of a record is that of the brokers' clock,
which is right here; services' clocks may be wrong by a year.
"""

from rlmm.settings_records import CAUSE_RETENTION, StartRecord, TotalRetention
from tests.simulation.invariants import Broken
from tests.simulation.model_broker import BATCH_BYTES, RECORDS, Replica

UNLIMITED = TotalRetention()


class Ends:
    """`asked`: what users want deleted may go from then on. `published`: the highest remote log
    start that ever was in the settings topic: nothing below it comes back. `trimmed`: up to where
    any broker has ever deleted records.
    """

    def __init__(self, retention: TotalRetention) -> None:
        self.retention = retention
        self.asked = 0
        self.published = 0
        self.published_epoch = -1
        self.expired = 0
        self.trimmed = 0
        self.is_new_log = False

    @property
    def readable_from(self) -> int:
        """Every record from here on can be read."""
        return max(self.asked, self.published)

    def ask(self, offset: int) -> None:
        """A user wants all below deleted."""
        self.asked = max(self.asked, offset)

    def trim(self, offset: int) -> None:
        """A broker deletes its records below."""
        self.trimmed = max(self.trimmed, offset)

    def forget(self) -> None:
        """Nothing remote is left: the next remote log start is where a log begins then."""
        self.ask(self.published)
        self.published, self.published_epoch, self.expired = 0, -1, 0

    def begin_again(self) -> None:
        """The remote log start is removed, and the next one is that of a log that began again."""
        self.published, self.published_epoch, self.expired = 0, -1, 0
        self.is_new_log = True

    def publish(self, record: StartRecord, decider: Replica | None, now_ms: int) -> None:
        """A remote log start is appended to the settings topic, at this time of the brokers.
        `decider`: the log beside whoever decided it.
        """
        start = record.remote_log_start_offset
        if self.is_new_log and start <= max(self.asked, self.trimmed):
            self.asked, self.is_new_log = start, False
        if start <= self.published:
            return
        if record.cause == CAUSE_RETENTION and decider is not None:
            self._check_ended(decider, start, now_ms)
            self.expired = max(self.expired, start)
        elif start > max(self.asked, self.expired):
            raise Broken(f"remote log start {start}: nobody asked for more than {self.asked}")
        self.published = start
        self.published_epoch = -1 if record.decided_epoch is None else record.decided_epoch

    def _check_ended(self, replica: Replica, start: int, now_ms: int) -> None:
        """Retention ends what is old, by the log of whoever decides; of the rest, what leaves
        enough bytes behind it.
        """
        first = self.readable_from // RECORDS * RECORDS
        age_ms, most_bytes = self.retention.retention_ms, self.retention.retention_bytes
        for one in replica.batches(first, start):
            is_old = age_ms >= 0 and now_ms - one.timestamp_ms > age_ms
            left_bytes = (replica.end - one.next_offset) // RECORDS * BATCH_BYTES
            is_too_much = most_bytes >= 0 and left_bytes >= most_bytes
            if not is_old and not is_too_much:
                raise Broken(
                    f"early expiry: remote log start {start} ends the batch at {one.base_offset} "
                    f"of {now_ms - one.timestamp_ms} ms, {left_bytes} bytes behind it, by "
                    f"{self.retention}"
                )
