"""The stream reader with admission control and Trigger.AvailableNow: PySpark 4.2 and newer."""

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from rlm_spark.plan.offset_specs import checkpoint_document
from rlm_spark.source.pyspark_readers import Document, TieredStreamReader


class LimitedStreamReader(TieredStreamReader, SupportsTriggerAvailableNow):
    """A streaming read that keeps limits and can end at a fixed end."""

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of the options. PySpark has only one at a time: with a maximum, this reader
        applies the minimum itself."""
        if self._query.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._query.max_offsets_per_trigger)
        if self._query.min_offsets_per_trigger is not None:
            return ReadMinRows(self._query.min_offsets_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> Document | None:
        """The ends seen last, for the query's progress."""
        return checkpoint_document(self._batches().latest) or None

    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends at the latest offsets that are read next."""
        self._batches().fix_end()
