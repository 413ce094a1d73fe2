"""Stored record batches into Arrow record batches: `record_batches`.

Free of pyspark, gRPC and Kafka clients. The work inside a batch is done by one of two equal
decoders (engine.py); which batches count is decided in scan.py.
"""

from rlm_spark.decode.engine import COLUMNS, arrow_schema, is_compiled
from rlm_spark.decode.stream import TARGET_BYTES, record_batches

__all__ = ["COLUMNS", "TARGET_BYTES", "arrow_schema", "is_compiled", "record_batches"]
