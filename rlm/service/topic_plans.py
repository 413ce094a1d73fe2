"""Measures the partitions of a topic that our broker leads, for `rlm plan`; nothing is changed.

The topic need not be enabled, so no snapshot is taken of it: snapshots publish lineages. What is on
disk is compared with the ledger as it is known here. rlm.plans.measuring decides what counts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kip405.errors import RemoteStorageError, Unavailable
from kip405.ids import MAX_OFFSET, PartitionKey
from rlm.broker.answers import TopicDescription
from rlm.clock import Clock
from rlm.log_dir.identity import check_topic_id
from rlm.plans.coverage import covered
from rlm.plans.enabling import PartitionMeasure
from rlm.plans.history import leaders_lineage
from rlm.plans.measuring import measured
from rlm.plans.retention import LocalRetention
from rlm.remote_log.ports import Ledger, Settings
from rlm.topics.local_logs import Scan
from rsm_plugins.threads import Threads

PartBytes = Callable[[str], int | None]
"""The part size of the store to which a topic's segments go, None = it has none. Invalid: no store
would take them.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMeasures:
    """Implements rlm.api.ports.TopicMeasures; `scan` blocks."""

    node_id: int
    scan: Scan
    threads: Threads
    ledger: Ledger
    settings: Settings
    part_bytes: PartBytes
    clock: Clock

    async def own(
        self, topic: TopicDescription, retention: LocalRetention
    ) -> Mapping[int, PartitionMeasure | RemoteStorageError]:
        """See rlm.api.ports.TopicMeasures."""
        return {
            number: await self._measured(topic, number, retention)
            for number, described in sorted(topic.partitions.items())
            if described.leader == self.node_id
        }

    async def _measured(
        self, topic: TopicDescription, partition: int, retention: LocalRetention
    ) -> PartitionMeasure | RemoteStorageError:
        key = PartitionKey(topic.topic_id, partition)
        try:
            log = await self.threads.run(self.scan, topic.name, partition)
            if log.topic_id is None:
                raise Unavailable("partition.metadata is not written yet")
            check_topic_id(topic.name, partition, log.topic_id, topic.topic_id)
            ledger, view = self.ledger.ledger(key), self.settings.view
            lineage = leaders_lineage(ledger, view.history(key), log.whole_lineage)
            return measured(
                log,
                covered=covered(ledger, lineage, MAX_OFFSET),
                remote_log_start_offset=view.remote_log_start(key) or 0,
                retention=retention,
                part_bytes=self._part_bytes(topic.name),
                now_ms=self.clock.now_ms(),
            )
        except RemoteStorageError as error:
            return error

    def _part_bytes(self, topic: str) -> int | None:
        """None also where no store would take the topic: that is what refuses it."""
        try:
            return self.part_bytes(topic)
        except RemoteStorageError:
            return None
