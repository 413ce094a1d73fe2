"""What the user learns of reads of the remote tier that fail and are tried again.

A consumer of aiokafka goes on for as long as a broker is away, and logs that; so does this one for
services and stores. `retry_timeout_ms` makes it an error in the user's call. This module must not
know what is read.
"""

import logging
from typing import Final

from aiokafka.structs import TopicPartition

from rlm_client.errors import RemoteTierTimeout
from rlm_client.partition_read import PartitionRead

LOG_EVERY_MS: Final = 10_000
"""Of all partitions of a consumer: one line in that time."""
_log: Final = logging.getLogger(__name__)


class Failures:
    """Of one consumer. `retry_timeout_ms` None: failures are logged, and never raised."""

    def __init__(self, retry_timeout_ms: int | None) -> None:
        self._retry_timeout_ms = retry_timeout_ms
        self._logged_at_ms: int | None = None
        self._unlogged = 0

    def log(
        self, event: str, topic_partition: TopicPartition, error: Exception, now_ms: int
    ) -> None:
        """A line for the first failure after a while; it counts those before that have none."""
        at_ms = self._logged_at_ms
        if at_ms is not None and now_ms - at_ms < LOG_EVERY_MS:
            self._unlogged += 1
            return
        _log.warning(
            "event=%s partition=%s-%d error=%s failures_not_logged=%d",
            *(event, topic_partition.topic, topic_partition.partition, error, self._unlogged),
        )
        self._logged_at_ms, self._unlogged = now_ms, 0

    def overdue(
        self, topic_partition: TopicPartition, read: PartitionRead, error: Exception, now_ms: int
    ) -> RemoteTierTimeout | None:
        """The error to raise where reads of the partition have failed for the whole time. The next
        one needs as long again.
        """
        failing_ms = read.failing_for_ms(now_ms)
        limit_ms = self._retry_timeout_ms
        if limit_ms is None or failing_ms < limit_ms:
            return None
        read.was_raised(now_ms)
        raised = RemoteTierTimeout(
            f"{topic_partition.topic}-{topic_partition.partition}: its remote tier could not be "
            f"read for {failing_ms} ms: {error}"
        )
        raised.__cause__ = error
        return raised
