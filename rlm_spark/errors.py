"""The errors of the connector, and the rule that makes a data loss an error or a warning.

Each error names the topic, partition and offset that it concerns. Errors cross from executors to
the driver, so each pickles: the arguments of `Exception` are exactly those of the constructor, and
the message is made from them.

A data loss is a range of offsets that a query requests and that no tier of its read mode has any
more; compaction, transaction markers and aborted records are no loss. The rule is that of Spark's
Kafka source: with failOnDataLoss=true a loss is an error; with false it is a warning, and the query
continues with the records that exist. The wording is Spark's, so that runbooks match.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from typing import Final

from tiered_reads.errors import ConnectorError
from tiered_reads.values import DataLoss

_log: Final = logging.getLogger(__name__)

_LOST: Final = (
    "Some data may have been lost because they are not available in Kafka any more; either the "
    "data was aged out by Kafka or the topic may have been deleted before all the data in the "
    "topic was processed."
)
_TO_GO_ON: Final = (
    "If you don't want your streaming query to fail on such cases, set the source option "
    '"failOnDataLoss" to "false".'
)
_TO_FAIL: Final = (
    "If you want your streaming query to fail on such cases, set the source option "
    '"failOnDataLoss" to "true".'
)


class SparkTooOldError(ConnectorError):
    """This Spark has no Python data sources; `rlm_spark.read` works on it."""

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self.version = version

    def __str__(self) -> str:
        return (
            f'format("kafka_tiered") needs PySpark 4.0 or newer, and this is {self.version}: '
            "rlm_spark.read(spark, ...) gives the same rows as a batch"
        )


class LibraryMissingError(ConnectorError):
    """A library of the extra `spark` is not installed."""

    def __init__(self, library: str) -> None:
        super().__init__(library)
        self.library = library

    def __str__(self) -> str:
        try:
            distribution("kafka-rlm")
        except PackageNotFoundError:  # kafka-rlm-spark, which has no extras
            return f"this needs {self.library}: pip install {self.library}"
        return f"this needs {self.library}: pip install 'kafka-rlm[spark]'"


@contextmanager
def needing_spark() -> Iterator[None]:
    """LibraryMissingError where the block imports what is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise LibraryMissingError((error.name or "pyspark").partition(".")[0]) from error


class DataLossError(ConnectorError):
    """Offsets [start_offset, end_offset) that no tier of the read mode has, in Spark's words."""

    def __init__(
        self, topic: str, partition: int, start_offset: int, end_offset: int, reason: str
    ) -> None:
        super().__init__(topic, partition, start_offset, end_offset, reason)
        self.topic = topic
        self.partition = partition
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"Cannot fetch records in [{self.start_offset}, {self.end_offset}) of "
            f"{self.topic}-{self.partition}: {self.reason}. {_LOST} {_TO_GO_ON}"
        )


class PlannedLossError(ConnectorError):
    """failOnDataLoss=true and the driver sees that partitions or offsets are gone."""


class LossRule:
    """failOnDataLoss, applied: raise, or warn once for each loss."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        self._warned: set[str] = set()

    def planned(self, what: str) -> None:
        """The driver found a loss: `what` is a sentence without its full stop."""
        if self._fail:
            raise PlannedLossError(f"{what}. {_LOST} {_TO_GO_ON}")
        self._warn(f"{what}. {_LOST} {_TO_FAIL}")

    def met(self, loss: DataLoss) -> None:
        """A task found that offsets are gone; this is the callback of `read_range`."""
        if self._fail:
            raise DataLossError(
                loss.topic_partition.topic,
                loss.topic_partition.partition,
                loss.start_offset,
                loss.end_offset,
                loss.reason,
            )
        self._warn(
            f"Cannot fetch records in [{loss.start_offset}, {loss.end_offset}) of "
            f"{loss.topic_partition}: {loss.reason}. {_LOST} {_TO_FAIL}"
        )

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("event=data_loss message=%s", text)
