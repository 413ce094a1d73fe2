"""What a task does once to the process that runs it, because Spark uses that process again."""

import gc
import os

_IS_REUSED = "SPARK_REUSE_WORKER"
_is_done = False


def spare_collections() -> None:
    """Let garbage collections pass over all that is loaded by now: libraries, for the most part.

    A reused worker collects after each task before it takes the next one (pyspark/daemon.py), which
    with pandas, pyarrow and gRPC loaded took a sixth of the worker's time. Elsewhere nothing is
    done: a driver's process is the user's.
    """
    global _is_done
    if os.environ.get(_IS_REUSED) and not _is_done:
        gc.freeze()
        _is_done = True
