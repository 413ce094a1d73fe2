"""Decides where a stream's next micro-batch ends and which ranges it reads.

The rules are those of KafkaMicroBatchStream. This module has all state of a running stream: its
start, the time of the last trigger, the end that AvailableNow fixed. Only the checkpoint's offsets
survive a restart, and they are ends. Spark asks for the initial offsets several times, and again
after a restart in the first micro-batch (its own Kafka source keeps them in the checkpoint, which
Python sources do not see). Therefore a partition that begins at its end is empty in the first
micro-batch, however often that is repeated. This module must not know PySpark; clock and waiting
are arguments.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from rlm_spark.errors import LossRule
from rlm_spark.plan import offsets
from rlm_spark.plan.offset_specs import (
    LATEST,
    GlobalTimestamp,
    OffsetSpec,
    SpecificTimestamps,
    named,
)
from rlm_spark.plan.offsets import Positions
from rlm_spark.plan.options import StreamQuery
from rlm_spark.plan.planning import PlannedRange, divide, rate_limited
from tiered_reads.errors import ConnectorError
from tiered_reads.values import OffsetRange, TopicPartition

_log: Final = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, int]
_RETRY: Final = (
    "The error could be transient - restart your query, and report if you still see the same issue."
)


class AvailableNowError(ConnectorError):
    """The end that AvailableNow fixed cannot be reached any more: Spark's SparkException."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The clock and the wait, as arguments."""

    now_ms: Callable[[], int]
    sleep_ms: Callable[[float], None]


class MicroBatches:
    """One running stream on the driver."""

    def __init__(self, query: StreamQuery, positions: Positions, waiting: Waiting) -> None:
        self._query = query
        self._positions = positions
        self._waiting = waiting
        self._loss = LossRule(fail=query.connector.fail_on_data_loss)
        self._last_trigger_ms = 0
        self._is_available_now = False
        self._fixed_end: dict[TopicPartition, int] | None = None
        self._latest: dict[TopicPartition, int] = {}
        self._initial: dict[TopicPartition, int] | None = None
        self._from_end: frozenset[TopicPartition] = frozenset()
        self._has_read_latest = False

    @property
    def latest(self) -> Offsets:
        """The latest offsets as last read; empty before they are first read."""
        return self._latest

    def fix_end(self) -> None:
        """AvailableNow: the latest offsets that are read next are the end of the query."""
        self._is_available_now = True

    def initial(self) -> dict[TopicPartition, int]:
        """Where a stream without a checkpoint starts; always the same answer."""
        if self._initial is None:
            self._initial = self._begun()
            _log.info("event=stream_starts offsets=%s", _shown(self._initial))
        return self._initial

    def _begun(self) -> dict[TopicPartition, int]:
        spec, positions = self._query.starting, self._positions
        topic_partitions = offsets.assigned(self._query.subscription, positions, must_exist=True)
        # PySpark 4.0 and 4.1 ask for the first end before they ask for the start.
        ends = self._latest if self._has_read_latest else positions.latest(topic_partitions)
        bound = offsets.bound(spec, topic_partitions, positions, starting=True)
        found = offsets.resolved(bound, positions)
        self._from_end = frozenset(
            topic_partition
            for topic_partition, offset in bound.items()
            if offset == LATEST or (_is_dated(spec) and offset >= ends.get(topic_partition, offset))
        )
        return {
            **found,
            **{
                topic_partition: ends[topic_partition]
                for topic_partition in self._from_end & ends.keys()
            },
        }

    def end(
        self, start: Offsets | None, *, max_offsets: int | None, min_offsets: int | None
    ) -> Offsets:
        """The end of the next micro-batch after `start`; `start` itself if there is nothing to do.

        `start` is None with Spark 4.0 and 4.1, so limits cannot be kept there. AvailableNow keeps
        no lower limit: it would never reach its end.
        """
        is_first = not self._has_read_latest and start is not None and start == self._initial
        self._latest = self._read_latest(start)
        self._has_read_latest = True
        if start is None:
            return self._latest
        there = self._latest
        if is_first:
            there = {
                topic_partition: start[topic_partition]
                if topic_partition in self._from_end
                else there[topic_partition]
                for topic_partition in there
            }
        has_least = min_offsets is not None and not self._is_available_now
        if has_least and self._should_wait(start, min_offsets or 0):
            return start
        if max_offsets is None:
            return there
        return rate_limited(max_offsets, self._with_new(start), there)

    def plan(self, start: Offsets, end: Offsets) -> list[PlannedRange]:
        """The ranges of a micro-batch, also one that a restart repeats; applies the loss rule."""
        if self._fixed_end is not None:
            self._check_reachable(self._fixed_end, end)
        first = {**start, **self._added(start, end)}
        if self._initial is not None and not self._has_read_latest:
            first |= {
                topic_partition: end[topic_partition]
                for topic_partition in self._empty_again(start, end)
            }
        deleted = start.keys() - end.keys()
        if deleted:
            self._loss.planned(f"Partitions {named(deleted)} have been deleted")
        whole = [
            OffsetRange(
                topic_partition=topic_partition,
                start_offset=first[topic_partition],
                end_offset=end[topic_partition],
            )
            for topic_partition in sorted(first.keys() & end.keys())
        ]
        for each in whole:
            if each.size < 0:
                self._loss.planned(
                    f"Partition {each.topic_partition} offset was changed from "
                    f"{each.start_offset} to {each.end_offset}. This could either be a user error "
                    "that the start offset is set too high and this is the first batch, or the "
                    "kafka topic-partition is broken, and some data may have been missed"
                )
        return [
            PlannedRange(wanted=each)
            for each in divide(
                whole,
                min_partitions=self._query.min_partitions,
                max_records_per_partition=self._query.max_records_per_partition,
            )
        ]

    def _empty_again(self, start: Offsets, end: Offsets) -> set[TopicPartition]:
        """The partitions that are empty when a restart repeats the first micro-batch: those that
        began at their end."""
        is_dated = _is_dated(self._query.starting)
        return {
            topic_partition
            for topic_partition in start.keys() & end.keys()
            if start[topic_partition] > end[topic_partition]
            and (is_dated or topic_partition in self._from_end)
        }

    def behind(self, end: Offsets) -> str:
        """How far `end` is behind the latest offsets, for the log: min, max and mean offsets."""
        gaps = [
            self._latest[topic_partition] - end[topic_partition]
            for topic_partition in self._latest.keys() & end.keys()
        ]
        if not gaps:
            return "none"
        return f"{min(gaps)}/{max(gaps)}/{sum(gaps) / len(gaps):.1f}"

    def _read_latest(self, known: Offsets | None) -> dict[TopicPartition, int]:
        if not self._is_available_now:
            return self._ends(known)
        if self._fixed_end is None:
            self._fixed_end = self._ends(known)
        return self._fixed_end

    def _ends(self, known: Offsets | None) -> dict[TopicPartition, int]:
        """Latest offsets now; read again where one lies before a known offset (KAFKA-7703)."""
        connector = self._query.connector
        found = self._ends_once()
        for _ in range(1, connector.fetch_offset_retries):
            back = [
                topic_partition
                for topic_partition in found
                if known and known.get(topic_partition, 0) > found[topic_partition]
            ]
            if not back:
                break
            _log.warning("event=latest_before_known partitions=%s", named(back))
            self._waiting.sleep_ms(connector.fetch_offset_retry_interval_ms)
            found = self._ends_once()
        return found

    def _ends_once(self) -> dict[TopicPartition, int]:
        subscription = self._query.subscription
        return self._positions.latest(
            offsets.assigned(subscription, self._positions, must_exist=False)
        )

    def _should_wait(self, start: Offsets, min_offsets: int) -> bool:
        now_ms = self._waiting.now_ms()
        first = self._with_new(start)
        fresh = sum(
            end - first.get(topic_partition, end) for topic_partition, end in self._latest.items()
        )
        waited_ms = now_ms - self._last_trigger_ms
        if fresh < min_offsets and waited_ms < self._query.max_trigger_delay_ms:
            return True
        self._last_trigger_ms = now_ms
        return False

    def _with_new(self, start: Offsets) -> dict[TopicPartition, int]:
        """`start` with the earliest offsets of partitions that it does not have yet."""
        new = self._latest.keys() - start.keys()
        return {**start, **(self._positions.earliest(new) if new else {})}

    def _added(self, start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
        new = end.keys() - start.keys()
        if not new:
            return {}
        first = self._positions.earliest(new)
        if new - first.keys():
            self._loss.planned(
                f"Cannot find initial offsets for partitions {named(new - first.keys())}. They may "
                "have been deleted"
            )
        for topic_partition in sorted(first):
            if first[topic_partition] != 0:
                self._loss.planned(
                    f"Added partition {topic_partition} starts from {first[topic_partition]} "
                    "instead of 0"
                )
        return first

    def _check_reachable(self, fixed: Offsets, end: Offsets) -> None:
        if fixed.keys() != end.keys():
            raise AvailableNowError(
                "Kafka data source in Trigger.AvailableNow should provide the same topic "
                f"partitions in pre-fetched offset to end offset for each microbatch. {_RETRY} "
                f"topic-partitions for pre-fetched offset: {named(fixed)}, topic-partitions for "
                f"end offset: {named(end)}."
            )
        if any(end[topic_partition] > fixed[topic_partition] for topic_partition in end):
            raise AvailableNowError(
                "For Kafka data source with Trigger.AvailableNow, end offset should have lower or "
                f"equal offset per each topic partition than pre-fetched offset. {_RETRY} "
                f"pre-fetched offset: {_shown(fixed)}, end offset: {_shown(end)}."
            )
        now = self._ends(end)
        if end.keys() - now.keys():
            raise AvailableNowError(
                "Some of partitions in Kafka topic(s) have been lost during running query with "
                f"Trigger.AvailableNow. {_RETRY} topic-partitions for latest offset: "
                f"{named(now)}, topic-partitions for end offset: {named(end)}"
            )
        if any(end[topic_partition] > now[topic_partition] for topic_partition in end):
            raise AvailableNowError(
                "Some of partitions in Kafka topic(s) report available offset which is less than "
                f"end offset during running query with Trigger.AvailableNow. {_RETRY} latest "
                f"offset: {_shown(now)}, end offset: {_shown(end)}"
            )


def _is_dated(spec: OffsetSpec) -> bool:
    return isinstance(spec, SpecificTimestamps | GlobalTimestamp)


def _shown(found: Offsets) -> str:
    return ", ".join(
        f"{topic_partition}: {found[topic_partition]}" for topic_partition in sorted(found)
    )
