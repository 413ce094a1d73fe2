"""Planted bugs in what is reported of the broker's disk."""

from tests.mutants.edits import Edit, Target

PLAN = Target("rlm/plans/disk.py", ("tests/rlm/plans/test_disk.py",))
WATCH = Target("rlm/tasks/disk_watch.py", ("tests/rlm/test_h18_log_dirs.py",))
REPORTS = Target("rlm/service/log_dirs.py", ("tests/rlm/test_h18_log_dirs.py",))
SPACE = Target("rlm/log_dir/space.py", ("tests/rlm/log_dir/test_space.py",))

EDITS: tuple[Edit, ...] = (
    *PLAN.edits(
        (
            "H18: pressure ends at the floor itself",
            "    return free_bytes < (relief_bytes(floor_bytes) if before else floor_bytes)",
            "    return free_bytes < floor_bytes",
        ),
        (
            "H18: a free space that is not known ends pressure",
            "        return before\n",
            "        return False\n",
        ),
        (
            "H18: what a forbidden trim leaves is not counted",
            "        return size_bytes\n",
            "        return lag_bytes\n",
        ),
        (
            "H18: the active segment counts as trimmable",
            "    return lag_bytes + active_bytes",
            "    return lag_bytes",
        ),
    ),
    *WATCH.edits(
        (
            "H38: a disk that cannot be read keeps its last free space",
            "        self._space, self._error, self.is_measured = None, error, True",
            "        self._error, self.is_measured = error, True",
        ),
    ),
    *REPORTS.edits(
        (
            "H38: a partition without a snapshot counts as 0 bytes",
            "_NOT_SEEN = _LocalBytes(log_dir=None, untrimmable_bytes=None)",
            "_NOT_SEEN = _LocalBytes(log_dir=None, untrimmable_bytes=0)",
        ),
        (
            "H38: what the last trim found does not change what no trim may delete",
            "(self._snapshots.snapshots, self._lags(), self._trims)",
            "(self._snapshots.snapshots, self._lags(), {})",
        ),
        (
            "H38: a lag that is not known any more counts as 0 bytes",
            "return _LocalBytes(log_dir=log_dir, untrimmable_bytes=None)",
            "return _LocalBytes(log_dir=log_dir, untrimmable_bytes=0)",
        ),
    ),
    *SPACE.edits(
        (
            "declared bytes of sparse files count as used",
            "entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES",
            "entry.stat(follow_symlinks=False).st_size",
        ),
    ),
)
