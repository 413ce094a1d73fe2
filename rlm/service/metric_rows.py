"""A row of the table of metrics, and the rows about copies, the broker's disk and what it loses.

The whole table is in `metrics`.
"""

import enum
from dataclasses import dataclass


class MetricKind(enum.Enum):
    """The Prometheus metric types that are in use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """One metric; `buckets` in the metric's own unit, for histograms.

    A counter with `is_read` is a total that another component keeps; it is read at each scrape.
    """

    name: str
    kind: MetricKind
    doc: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    is_read: bool = False

    @property
    def is_counted(self) -> bool:
        """Whether events update the metric, rather than a source that is read at each scrape."""
        return self.kind is not MetricKind.GAUGE and not self.is_read


PARTITION = ("topic", "partition")

COPY_ROWS: tuple[MetricRow, ...] = ()

DISK_ROWS: tuple[MetricRow, ...] = ()
