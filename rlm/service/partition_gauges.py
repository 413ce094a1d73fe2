"""Gauges of the partitions that a node leads: one sample for each partition, or one for each topic.

Ten thousand partitions have more than a hundred thousand lines, so a line is written again only
where the status that it follows from is another one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from kip405.ids import TopicPartition
from rlm.api.per_partition import FOREVER_MS, PerPartition
from rlm.api.ports import PartitionStatus
from rlm.clock import Clock
from rlm.service.metrics import labels_text, sample_line
from rlm.service.partition_rows import MOST_PARTITIONS, PARTITION, PARTITION_ROWS

AUTO, ON, OFF = "auto", "on", "off"
"""Values of metrics.per.partition."""

_KEPT: Mapping[str, Callable[[PartitionStatus], float | None]] = {
    "rlm_remote_copy_lag_bytes": lambda one: one.lag_bytes,
    "rlm_remote_copy_lag_segments": lambda one: one.lag_segments,
    "rlm_remote_log_size_bytes": lambda one: one.remote_size_bytes,
    "rlm_remote_log_metadata_count": lambda one: one.ledger_segments,
    "rlm_remote_delete_lag_segments": lambda one: one.deleting_segments,
    "rlm_remote_log_start_offset": lambda one: one.remote_log_start_offset,
    "rlm_remote_next_offset": lambda one: one.remote_next_offset,
    "rlm_local_log_start_offset": lambda one: one.local_log_start_offset,
    "rlm_partition_frozen": lambda one: one.is_frozen,
    "rlm_partition_alarms": lambda one: len(one.alarms),
    "rlm_partition_holes": lambda one: one.holes,
    "rlm_partition_lost_offsets": lambda one: one.hole_offsets,
}
"""They change with the status."""

_PINNED = "rlm_last_stable_offset_pinned_seconds"
_TIMED = (
    "rlm_partition_loss_seconds",
    "rlm_remote_copy_lag_seconds",
    "rlm_remote_copy_behind_seconds",
    _PINNED,
)
"""They change by time alone."""

_OF_TOPIC: Mapping[str, Callable[[Iterable[float]], float]] = {"sum": sum, "max": max, "min": min}
_AGGREGATES = {row.name: _OF_TOPIC[row.of_topic] for row in PARTITION_ROWS if row.of_topic}
_LABELS_KEPT = 1 << 15
"""Partitions whose labels are not written again at each scrape."""
Samples = Sequence[tuple[TopicPartition, float]]


class PartitionGauges:
    """`detail` is metrics.per.partition; `pinned_ms`: how long partitions have waited for a last
    stable offset that does not move.
    """

    def __init__(
        self,
        clock: Clock,
        detail: str = AUTO,
        pinned_ms: Callable[[], Mapping[TopicPartition, int]] = dict,
    ) -> None:
        self._clock = clock
        self._detail = detail
        self._pinned_ms = pinned_ms
        self._lines = PerPartition(_partition_lines)
        self._topics: dict[str, tuple[list[PartitionStatus], dict[str, str]]] = {}

    def read(self, statuses: Sequence[PartitionStatus]) -> dict[str, str]:
        """The lines of each gauge. A status that is unchanged is the same object."""
        timed = self._timed(statuses)
        if self._shows_each(len(statuses)):
            rows = self._lines.read([one.key for one in statuses], statuses)
            columns = zip(_KEPT, zip(*rows, strict=True), strict=False)
            return {
                **{name: "".join(lines) for name, lines in columns},
                **{name: _each(name, samples) for name, samples in timed.items()},
            }
        of_topics = self._of_topics(statuses)
        return {
            **{name: "".join(lines.get(name, "") for lines in of_topics) for name in _KEPT},
            **{name: _by_topic(name, samples) for name, samples in timed.items()},
        }

    def _shows_each(self, count: int) -> bool:
        return self._detail == ON or (self._detail == AUTO and count <= MOST_PARTITIONS)

    def _timed(self, statuses: Iterable[PartitionStatus]) -> dict[str, Samples]:
        now_ms, monotonic_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        found: dict[str, list[tuple[TopicPartition, float]]] = {name: [] for name in _TIMED}
        loss, lag, behind, pinned = found.values()
        for one in statuses:
            left_ms = one.loss_in_ms(now_ms)
            if left_ms is not None:
                loss.append((_partition(one), left_ms / 1000))
            if one.lag_oldest_ms is not None:
                lag.append((_partition(one), max(0, now_ms - one.lag_oldest_ms) / 1000))
            if one.behind_since_ms is not None:
                behind.append((_partition(one), (monotonic_ms - one.behind_since_ms) / 1000))
        pinned += ((partition, value / 1000) for partition, value in self._pinned_ms().items())
        return dict(found)

    def _of_topics(self, statuses: Iterable[PartitionStatus]) -> list[dict[str, str]]:
        """The lines of each topic, written again where one of its statuses is another one."""
        topics: dict[str, list[PartitionStatus]] = {}
        for one in statuses:
            topics.setdefault(one.topic, []).append(one)
        before, self._topics = self._topics, {}
        for topic, ones in topics.items():
            known = before.get(topic)
            if known is None or known[0] != ones:
                known = ones, _topic_lines(topic, ones)
            self._topics[topic] = known
        return [lines for _, lines in self._topics.values()]


def _partition(status: PartitionStatus) -> TopicPartition:
    return TopicPartition(status.topic, status.partition)


def _partition_lines(status: PartitionStatus) -> tuple[tuple[str, ...], int]:
    """One for each gauge, empty where the value is not known."""
    labels = _labels(_partition(status))
    values = ((name, value(status)) for name, value in _KEPT.items())
    return tuple(
        "" if value is None else sample_line(name, labels, value) for name, value in values
    ), FOREVER_MS


@lru_cache(maxsize=_LABELS_KEPT)
def _labels(partition: TopicPartition) -> str:
    return labels_text(PARTITION, (partition.topic, str(partition.partition)))


def _topic_lines(topic: str, statuses: Sequence[PartitionStatus]) -> dict[str, str]:
    """One for each gauge that a topic has, of the partitions whose value is known."""
    labels, found = labels_text(("topic",), (topic,)), {}
    for name, value in _KEPT.items():
        known = [number for one in statuses if (number := value(one)) is not None]
        if known and name in _AGGREGATES:
            found[name] = sample_line(name, labels, _AGGREGATES[name](known))
    return found


def _each(name: str, samples: Samples) -> str:
    return "".join(sample_line(name, _labels(partition), value) for partition, value in samples)


def _by_topic(name: str, samples: Samples) -> str:
    return "".join(_topic_samples(name, samples))


def _topic_samples(name: str, samples: Samples) -> Iterator[str]:
    topics: dict[str, list[float]] = {}
    for partition, value in samples:
        topics.setdefault(partition.topic, []).append(value)
    for topic, values in topics.items():
        yield sample_line(name, labels_text(("topic",), (topic,)), _AGGREGATES[name](values))
