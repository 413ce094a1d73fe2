"""A foreign log start is adopted by what every service has written, never by a view that is behind.

What lies below an adopted start has ended: a start that our own trim has put there would end the
remote log.
"""

import pytest

from kip405.errors import Invalid, NotFound
from kip405.ids import TopicIdPartition
from rlm.broker.leadership import LedPartition
from rlm.remote_log.log_starts import LogStarts
from rlm.tasks.unlisted_segments import Listing
from rlm.topics.partition_records import Adoption
from rlmm.settings_records import DiscardRecord, SettingsRecord, StartRecord, TrimRecord
from tests.builders.audit import MemoryAudit
from tests.builders.broker import MemoryBroker
from tests.builders.ledger import PARTITION, MemoryLedger, MemorySettings

LED = LedPartition(topic_id_partition=PARTITION, leader=1, leader_epoch=0, replicas=(1,), isr=(1,))


class Written(MemorySettings):
    """Settings from which nothing is removed."""

    async def publish(
        self, record: SettingsRecord, leader_epoch: int = -1, seen: int | None = None
    ) -> None:
        await super().publish(record, leader_epoch)

    async def tombstone(self, key: str, leader_epoch: int = -1, seen: int | None = None) -> None:
        raise AssertionError(f"{key} is removed")


class NothingStored:
    """UnlistedSegments of empty stores."""

    async def listing(self, partition: TopicIdPartition) -> Listing:
        return Listing()


def start(offset: int) -> StartRecord:
    return StartRecord(
        partition=PARTITION.key, remote_log_start_offset=offset, cause="enable", decided_epoch=0
    )


def adoption(
    settings: Written, log_start_offset: int, audit: MemoryAudit | None = None
) -> Adoption:
    broker = MemoryBroker()
    broker.log_start_offset = log_start_offset
    starts = LogStarts(settings=settings, audit=audit or MemoryAudit(), barrier_deadline_ms=1_000)
    return Adoption(
        broker=broker,
        settings=settings,
        ledger=MemoryLedger(),
        unlisted=NothingStored(),
        starts=starts,
        barrier_deadline_ms=1_000,
    )


@pytest.mark.parametrize(
    ("not_read_yet", "why"),
    [
        (start(60), "not above the remote log start 60"),
        (TrimRecord(partition=PARTITION.key, bound=50, planned_epoch=0), "our own trim"),
    ],
    ids=["H2: the start has moved", "H1: the log was trimmed"],
)
async def test_h01_a_log_start_is_not_adopted_on_a_stale_view(
    not_read_yet: SettingsRecord, why: str
) -> None:
    settings = Written()
    settings.write(start(0), epoch=0)
    settings.lags = True
    settings.write(not_read_yet, epoch=0)
    with pytest.raises(Invalid, match=why):
        await adoption(settings, 50).adopt_log_start(LED, frozen="", by="tests")
    assert settings.published == []


async def test_h02_a_start_never_goes_back_and_needs_one_to_begin_with() -> None:
    settings = Written()
    with pytest.raises(NotFound, match="no remote log start"):
        await adoption(settings, 50).adopt_log_start(LED, frozen="", by="tests")
    settings.write(start(50), epoch=0)
    for offset in (40, 50):
        with pytest.raises(Invalid, match="nothing to adopt"):
            await adoption(settings, offset).adopt_log_start(LED, frozen="", by="tests")
    await adoption(settings, 51).adopt_log_start(LED, frozen="", by="tests")
    assert settings.view.remote_log_start(PARTITION.key) == 51


async def test_h01_an_adopted_log_start_has_a_line_in_the_audit_log() -> None:
    settings, audit = Written(), MemoryAudit()
    settings.write(start(0), epoch=0)
    await adoption(settings, 50, audit).adopt_log_start(LED, frozen="", by="ops")
    assert settings.view.remote_log_start(PARTITION.key) == 50
    assert (audit.starts, audit.start_causes) == ([50], ["command: ops"])


async def test_h04_what_was_discarded_is_not_adopted_before_that_is_undone() -> None:
    settings = Written()
    discard = DiscardRecord(
        partition=PARTITION.key,
        by="ada",
        why="orphans",
        epoch=0,
        last_epoch=0,
        offset=50,
        delay_ms=1_000,
        decided_ms=0,
    )
    settings.write(discard, epoch=0)
    with pytest.raises(Invalid, match=r"ada gives up .*`rlm deletions undo` comes first"):
        await adoption(settings, 50).adopt_log(LED, frozen="orphans", by="bob")
    assert settings.published == []
