"""What a task does once to the process that runs it, because Spark uses that process again."""

import ctypes
import gc
import os

_IS_REUSED = "SPARK_REUSE_WORKER"
# malloc.h of glibc. Other C libraries have no mallopt, or ignore what they do not know.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 64 << 20
_MAPPED_ALONE_BYTES = 32 << 20
_is_done = False


def prepare() -> None:
    """Once in a process that many tasks run in; nothing elsewhere: a driver's is the user's.

    A reused worker collects garbage after each task before it takes the next one
    (pyspark/daemon.py), which with pandas, pyarrow and gRPC loaded took a sixth of its time: what
    is loaded by now is passed over from here on. And memory of messages and batches, which the C
    library gave back to the system and got again with every few of them, which took as much, is
    kept: 64 MiB in each of its arenas at most.
    """
    global _is_done
    if _is_done or not os.environ.get(_IS_REUSED):
        return
    _is_done = True
    gc.freeze()
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_ALONE_BYTES)
