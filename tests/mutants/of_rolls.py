"""Planted bugs of the watch for new segments: rolls that are missed, and what cannot be read."""

from tests.mutants.edits import Edit, Target

ROLLS = Target("rlm/log_dir/rolls.py", ("tests/rlm/log_dir/test_rolls.py",))
ROLL_WATCH = Target("rlm/tasks/roll_watch.py", ("tests/rlm/tasks/test_roll_watch.py",))

EDITS: tuple[Edit, ...] = (
    *ROLLS.edits(
        (
            "a roll within the tick of the one before is never seen",
            "old.is_settled and _stamp(",
            "_stamp(",
        ),
        (
            "every directory is listed at every poll",
            "and _stamp(old.directory) == old.stamp",
            "and old.newest == old.directory",
        ),
        (
            "a directory that nobody may list is found by the schedule only",
            "return found.st_mtime_ns, found.st_mode, found.st_uid, found.st_gid",
            "return found.st_mtime_ns, 0, 0, 0",
        ),
        (
            "a directory that cannot be read is taken for one that is gone",
            "            elif old is not None and _is_unreadable(old.directory):\n"
            "                found.append(partition)\n",
            "",
        ),
        (
            "a directory that is gone is taken for one that cannot be read",
            "    except (FileNotFoundError, NotADirectoryError):\n        return False\n",
            "",
        ),
        (
            "any file is a roll",
            "if name.endswith(_SUFFIX))",
            "if name)",
        ),
    ),
    *ROLL_WATCH.edits(
        (
            "partitions that are led since the first poll are not watched",
            "if led is not self._watched:",
            "if not self._rows:",
        ),
        (
            "a segment that is not eligible yet waits for the schedule",
            "                if self._is_open(key):\n",
            "                if not key:\n",
        ),
        (
            "requests never end while the broker is not ready",
            "if key not in led or repeat.wait_ms > self._most_wait_ms():",
            "if key not in led:",
        ),
        (
            "a partition that is led elsewhere is asked for",
            "if key not in led or repeat.wait_ms > self._most_wait_ms():",
            "if repeat.wait_ms > self._most_wait_ms():",
        ),
        (
            "a disk that cannot be asked ends the watch",
            "            self._note(str(error))\n            return\n",
            "            raise\n",
        ),
    ),
)
