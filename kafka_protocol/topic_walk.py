"""The order of the parts of a frame that has topics with partitions, for scanners of frames that
flow. Pure.

After a head come topics; each has partitions, and since the flexible versions tagged fields stand
behind each partition, each topic and at the end. A scanner reads the parts and says what it has
read; which one is next follows from that. This module must not know what is in a part.
"""

import enum

from kafka_protocol.frames import PartialRead


class Part(enum.Enum):
    """What comes next in the frame."""

    HEAD = enum.auto()
    TOPIC = enum.auto()
    PARTITION = enum.auto()
    RECORDS = enum.auto()
    PARTITION_TAGS = enum.auto()
    TOPIC_TAGS = enum.auto()
    TAGS = enum.auto()
    END = enum.auto()


class TopicWalk:
    """The base of a scanner of one frame."""

    def __init__(self, *, is_flexible: bool) -> None:
        self._is_flexible = is_flexible
        self._part = Part.HEAD
        self._partial = PartialRead()
        self._topics = self._partitions = 0

    def _begin_topics(self, count: int) -> None:
        """The head was read, and so many topics follow."""
        self._topics = count
        self._next_topic()

    def _begin_partitions(self, count: int) -> None:
        """The beginning of a topic was read, and so many partitions follow."""
        self._partitions = count
        self._next_partition()

    def _end_partition(self) -> None:
        """A partition was read but for its tagged fields."""
        if self._is_flexible:
            self._part = Part.PARTITION_TAGS
        else:
            self._next_partition()

    def _end_tags(self) -> None:
        """The tagged fields that came next were read."""
        if self._part is Part.PARTITION_TAGS:
            self._next_partition()
        elif self._part is Part.TOPIC_TAGS:
            self._next_topic()
        else:
            self._part = Part.END

    def _next_partition(self) -> None:
        if self._partitions:
            self._partitions -= 1
            self._part = Part.PARTITION
        elif self._is_flexible:
            self._part = Part.TOPIC_TAGS
        else:
            self._next_topic()

    def _next_topic(self) -> None:
        if self._topics:
            self._topics -= 1
            self._part = Part.TOPIC
        else:
            self._part = Part.TAGS if self._is_flexible else Part.END
