"""Decodes stored record batches into Arrow record batches: `record_batches`.

The folder imports neither pyspark nor gRPC nor a Kafka client. `scan` decides which records count;
one of two equal decoders (`engine`) reads them.
"""

from rlm_spark.decode.engine import COLUMNS, arrow_schema, is_compiled
from rlm_spark.decode.stream import TARGET_BYTES, record_batches

__all__ = ["COLUMNS", "TARGET_BYTES", "arrow_schema", "is_compiled", "record_batches"]
