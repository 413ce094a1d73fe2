"""Data loss: offsets that a query requests and that no tier of its read mode has any more.

The rule is that of Spark's Kafka source: with failOnDataLoss=true a loss is an error; with false it
is a warning, and the query continues with the records that exist. The wording is Spark's, so that
runbooks match. Compaction, transaction markers and aborted records are no loss. This module must
not know which tier answered.
"""

import logging
from typing import Final

from rlm_spark.errors import ConnectorError, DataLossError
from rlm_spark.values import DataLoss

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
        """A task found that offsets are gone: the callback of `read_range`."""
        if self._fail:
            raise DataLossError(
                loss.place.topic,
                loss.place.partition,
                loss.start_offset,
                loss.end_offset,
                loss.reason,
            )
        self._warn(
            f"Cannot fetch records in [{loss.start_offset}, {loss.end_offset}) of {loss.place}: "
            f"{loss.reason}. {_LOST} {_TO_FAIL}"
        )

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("event=data_loss message=%s", text)
