"""Sees each partition of a Fetch answer that flows from the broker to the client (H17). Pure.

Only answers of the broker alone flow: nothing is spliced in. Log start offsets are corrected on the
way (H22). An OFFSET_OUT_OF_RANGE has no records, so the stream can stop there until it is settled,
and then its answer is replaced by one of the same size: the broker's error, another one, or nothing
yet with the real watermarks. What the remote tier has for the partition is then answered to the
next fetch, which is assembled whole. Node endpoints would change the size where addresses are
rewritten, so they are hidden. This module must not know sockets, tasks or waits.
"""

from collections.abc import Callable

from kafka_protocol.error_codes import NONE
from kafka_protocol.fetch import FetchedPartition, overwrite_partition, patch_partition
from kafka_protocol.node_addresses import FIRST_FETCH_WITH_ENDPOINTS, hide_node_endpoints
from kafka_protocol.primitives import WireError
from rlm.proxy.fetch_answer import FetchAnswer
from rlm.proxy.fetch_plan import Key, PartitionFetch, Source
from rlm.proxy.splice import News, check_partition, patch_clean


class PassedFetch:
    """One answer on its way. `settle` begins to settle a partition that is out of range; `settled`
    is called when that is done. The keys of `unanswered` have more than this answer could give.
    """

    def __init__(
        self,
        answer: FetchAnswer,
        high_watermarks: dict[Key, int],
        settle: Callable[["PassedFetch", PartitionFetch], None],
        unanswered: set[Key],
        *,
        rewrites: bool,
    ) -> None:
        """`rewrites`: the broker's node endpoints are not for clients."""
        self._rewrites = rewrites
        self._answer = answer
        self._plan = answer.plan
        self._high_watermarks = high_watermarks
        self._settle = settle
        self._unanswered = unanswered
        self._settling: Key | None = None
        self._settled: set[Key] = set()

    def entry(self, head: memoryview, topic: str | bytes, answered: FetchedPartition) -> bool:
        """See `rlm.proxy.session.FetchEntries`."""
        partition = self._plan.by_key.get((topic, answered.index))
        if partition is None:
            return True
        if partition.key == self._settling:
            return False
        if partition.key in self._settled:
            self._pass_settled(head, partition, answered)
            return True
        news = check_partition(self._plan, partition, answered, self._high_watermarks)
        if news is News.OUT_OF_RANGE:
            if answered.records_size > 0:
                raise WireError(f"{partition.key}: OFFSET_OUT_OF_RANGE with records")
            self._settling = partition.key
            self._settle(self, partition)
            return False
        if news is News.BECAME_REMOTE:
            self._replace(head, partition, answered)
            return True
        self._pass(head, partition, answered)
        return True

    def tags(self, tags: memoryview) -> None:
        """See `rlm.proxy.session.FetchEntries`."""
        if self._rewrites and self._plan.request.api_version >= FIRST_FETCH_WITH_ENDPOINTS:
            hide_node_endpoints(tags)

    def settled(self, partition: PartitionFetch) -> None:
        """The partition that is out of range was settled."""
        self._settling = None
        self._settled.add(partition.key)

    def _pass_settled(
        self, head: memoryview, partition: PartitionFetch, answered: FetchedPartition
    ) -> None:
        if partition.source is Source.BROKER:
            self._pass(head, partition, answered)
        else:
            self._replace(head, partition, answered)

    def _pass(
        self, head: memoryview, partition: PartitionFetch, answered: FetchedPartition
    ) -> None:
        self._answer.passes(partition, answered)
        if answered.error_code != NONE:
            return
        patch = patch_clean(partition, answered, answered.records_size)
        if patch is not None:
            patch_partition(head, answered, patch)

    def _replace(
        self, head: memoryview, partition: PartitionFetch, answered: FetchedPartition
    ) -> None:
        self._unanswered.add(partition.key)
        spliced = self._answer.without_records(partition)
        overwrite_partition(head, answered, spliced, self._plan.request.api_version)
