"""Planted bugs in the division of memory: a part takes more than the settings give it."""

from tests.mutants.edits import Edit, Target

_MEMORY = Target("rlm/config/memory.py", ("tests/rlm/config/test_memory.py",))
_MACHINE = Target("rlm/config/machine.py", ("tests/rlm/config/test_memory.py",))
_SERVICE = Target("rlm/config/service.py", ("tests/rlm/config/test_memory.py",))
_READS = Target("rlm/service/read_path.py", ("tests/rlm/service/test_h36_held_memory.py",))

EDITS: tuple[Edit, ...] = (
    *_MEMORY.edits(
        (
            "G10: parts beyond memory.max.bytes are taken",
            "raise Invalid(self._refusal(given))",
            "pass",
        ),
        (
            "G10: what proxy workers have of remote records is not counted",
            "return part.for_workers if self.workers else 0",
            "return 0",
        ),
        (
            "a larger pool of copy tasks copies no more segments at a time",
            "replace(COPIES, usual_bytes=copy_tasks * COPY_BYTES)",
            "replace(COPIES, usual_bytes=10 * COPY_BYTES)",
        ),
        (
            "G10: an upgrade refuses parts that were set before there was a whole",
            "return max(self.limit_bytes // 2, self._needed_bytes(given), most_beside)",
            "return self.limit_bytes // 2",
        ),
        (
            "G10: a large part that was set before leaves the others next to nothing",
            "self._needed_bytes(given), most_beside)",
            "self._needed_bytes(given))",
        ),
    ),
    *_MACHINE.edits(
        (
            "G10: the limit of a group above the own one is not seen",
            "for folder in (below, *below.parents):",
            "for folder in (below,):",
        ),
    ),
    *_SERVICE.edits(
        (
            "G10: as many segments are copied at a time as there are tasks, whatever they take",
            "return min(self.remote_log_manager_copier_thread_pool_size, fitting)",
            "return self.remote_log_manager_copier_thread_pool_size",
        ),
    ),
    *_READS.edits(
        (
            "G10: reads take more than their part of the memory",
            "memory_bytes=config.fetch_chunk_cache_bytes",
            "memory_bytes=config.memory_max_bytes",
        ),
    ),
)
