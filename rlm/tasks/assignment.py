"""Which of the partitions that its broker leads a process has tasks for.

Who leads a partition is the broker's word alone, and every check of leadership, epoch and rival is
made as without an assignment (H5, H13). So an assignment only narrows, and can give no partition a
second owner: a partition that is not led here has no tasks, whatever is added, and nobody else
works on one that was left out while this broker leads it. Nothing of that is copied, trimmed,
expired or cleaned up, and it is a problem on record.

It says nothing about reads, the heartbeat and the proxy, which are of the whole broker: services
that trim rely on them (H18).
"""

from collections.abc import Iterable, Iterator

from kip405.errors import Invalid
from kip405.ids import TopicPartition
from rlm.broker.leadership import LedPartition
from rlm.plans.problems import Finding, ProblemKind


class Assignment:
    """Partitions by the names of their topics; None = whatever the broker leads."""

    def __init__(self, partitions: Iterable[TopicPartition] | None) -> None:
        self._partitions = None if partitions is None else frozenset(partitions)

    def holds(self, led: LedPartition) -> bool:
        """Whether there are tasks for the partition."""
        return self._partitions is None or led.topic_partition in self._partitions

    def held(self, led: tuple[LedPartition, ...]) -> tuple[LedPartition, ...]:
        """Those that have tasks; the same object where all have."""
        return led if self._partitions is None else tuple(filter(self.holds, led))

    def left_out(self, led: Iterable[LedPartition]) -> tuple[LedPartition, ...]:
        """Those that have none."""
        return tuple(row for row in led if not self.holds(row))

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Tasks may begin from now on."""
        if self._partitions is not None:
            self._partitions |= frozenset(partitions)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """No task begins from now on. Invalid: nothing can be taken from everything."""
        if self._partitions is None:
            raise Invalid("every partition that the broker leads is worked on: name them to choose")
        self._partitions -= frozenset(partitions)


def left_out_findings(rows: Iterable[LedPartition]) -> Iterator[Finding]:
    """A finding for each partition that was left out."""
    for row in rows:
        yield Finding(
            kind=ProblemKind.PARTITION_LEFT_OUT,
            subject=str(row.topic_partition),
            topic=row.topic_id_partition.topic,
            text="it is led here, and the program that embeds the RemoteLogManager has not added "
            "it: nothing of it is copied, trimmed or expired",
        )
