"""Topics with a total retention, and the delay before a shorter one is enforced."""

from kip405.ids import Uuid
from rlm.plans.retention import retention_in_force
from rlm.topics.rules import RetentionOptions
from rlm.topics.verbs import EnableOptions
from rlmm.settings_records import DeletionRecord, FreezeRecord, TotalRetention
from tests.builders.ledger import metadata
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.world import DELAY_MS, ServiceUnderTest

WEEK_MS = 604_800_000
DAY_MS = 86_400_000
UNLIMITED = TotalRetention()
ANOTHER_ID = Uuid(b"\x09" * 16)


STORED = metadata(1, 0, 100, {0: 0})


def keeping(retention_ms: int, retention_bytes: int | None = None) -> EnableOptions:
    asked = RetentionOptions(retention_ms=retention_ms, retention_bytes=retention_bytes)
    return EnableOptions(by="ada", trim=True, retention=asked)


def total(retention_ms: int, retention_bytes: int = -1) -> TotalRetention:
    return TotalRetention(retention_ms=retention_ms, retention_bytes=retention_bytes)


def in_force(cluster: Cluster) -> TotalRetention:
    record = cluster.record()
    assert record is not None
    return retention_in_force(record)


async def enabled(cluster: Cluster, retention_ms: int = WEEK_MS) -> ServiceUnderTest:
    """Enabled like that, and nothing pending any more."""
    service = ServiceUnderTest(cluster)
    await service.verbs.enable(TOPIC, keeping(retention_ms))
    await pass_delay(service)
    assert in_force(cluster) == total(retention_ms)
    assert cluster.view().deletion(TOPIC_ID) is None
    return service


async def pass_delay(service: ServiceUnderTest) -> None:
    """The append time of another record shows a restarted service how much time has passed."""
    service.clock.advance(DELAY_MS)
    await service.settings.publish(other_record())
    await service.deletions.check()
    await service.deletions.check()


def other_record(topic_id: Uuid = ANOTHER_ID) -> DeletionRecord:
    return DeletionRecord(topic_id=topic_id, what="other", by="", delay_ms=0, decided_ms=0)


async def freeze(service: ServiceUnderTest) -> None:
    record = FreezeRecord(topic_id=TOPIC_ID, stopped=("delete",), by="ada", why="hold")
    await service.settings.publish(record)
