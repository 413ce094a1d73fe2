"""Work over whole topics on a Spark cluster: export to Parquet, audit of the remote tier.

Records stay inside the Python workers; the driver sees one small row a finished piece of work.
Importing this package imports nothing else: workers and commands take what they use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlm_spark.pipelines.auditing import AuditReport
    from rlm_spark.pipelines.exporting import ExportReport

__all__ = ["audit", "export"]


def export(*args: Any, **named: Any) -> "ExportReport":
    """Append what is new of topics to Parquet files: see rlm_spark.pipelines.exporting.export."""
    from rlm_spark.pipelines.exporting import export as run

    return run(*args, **named)


def audit(*args: Any, **named: Any) -> "AuditReport":
    """Check every remote segment of topics: see rlm_spark.pipelines.auditing.audit."""
    from rlm_spark.pipelines.auditing import audit as run

    return run(*args, **named)
