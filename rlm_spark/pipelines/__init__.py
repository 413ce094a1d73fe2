"""Pipelines over whole topics on a Spark cluster: export to Parquet, audit of the remote tier.

Records stay inside the Python workers; the driver gets one small result for each piece of work.
Importing this package imports nothing else, so workers and commands load only what they use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlm_spark.pipelines.auditing import AuditReport
    from rlm_spark.pipelines.exporting import ExportReport

__all__ = ["audit", "export"]


def export(*args: Any, **named: Any) -> "ExportReport":
    """Append new records of topics to Parquet files: see rlm_spark.pipelines.exporting.export."""
    from rlm_spark.pipelines.exporting import export as run

    return run(*args, **named)


def audit(*args: Any, **named: Any) -> "AuditReport":
    """Check every remote segment of topics: see rlm_spark.pipelines.auditing.audit."""
    from rlm_spark.pipelines.auditing import audit as run

    return run(*args, **named)
