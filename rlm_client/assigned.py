"""The partitions of an assignment: what is open for each, and which are left to aiokafka's fetcher.

Everything of a partition ends with its assignment. This module must not know what is decided.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka.structs import TopicPartition

from rlm_client.partition_read import PartitionRead
from rlm_client.remote_stream import RemoteStream
from tiered_reads.values import DataLoss, Fetched, ReadMode


class OpenRead(PartitionRead):
    """A partition's read with what is open for it."""

    __slots__ = ("asking", "position", "stream", "task")

    def __init__(self, mode: ReadMode) -> None:
        super().__init__(mode)
        self.stream: RemoteStream[Fetched | DataLoss] | None = None
        self.position = -1
        self.task: asyncio.Task[bool] | None = None
        self.asking: asyncio.Task[bool] | None = None

    @property
    def is_busy(self) -> bool:
        return self.task is not None and not self.task.done()

    @property
    def is_asking(self) -> bool:
        return self.asking is not None and not self.asking.done()

    def close_stream(self) -> None:
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.close()


class PartOfAssignment:
    """The partitions of an assignment that aiokafka's fetcher is to care for."""

    def __init__(self, assignment: Any, topic_partitions: Iterable[TopicPartition]) -> None:
        self.tps = frozenset(topic_partitions)
        self.state_value = assignment.state_value
