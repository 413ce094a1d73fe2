"""Planted bugs in holding open what a bounded retention deletes before it is copied (H14)."""

from tests.mutants.edits import Edit, Target

_TESTS = (
    "tests/rlm/tasks/test_h14_segment_holds.py",
    "tests/rlm/tasks/test_h14_holds_end.py",
)
FILES = Target("rlm/log_dir/held_segments.py", _TESTS)
HOLDS = Target("rlm/tasks/segment_holds.py", _TESTS)
WATCH = Target("rlm/tasks/bounded_retention.py", _TESTS)
CHOICE = Target("rlm/plans/holds.py", ("tests/rlm/plans/test_holds.py",))
COPY = Target("rlm/tasks/copy.py", _TESTS)
PLAN = Target("rlm/plans/copy.py", ("tests/rlm/plans/test_copy.py",))
HOLES = Target("rlm/tasks/hole_watch.py", _TESTS)
MEASURED = Target("rlm/tasks/disk_watch.py", ("tests/rlm/tasks/test_disk_pressure.py",))
DISK = Target("rlm/tasks/disk_pressure.py", ("tests/rlm/tasks/test_disk_pressure.py",))

EDITS: tuple[Edit, ...] = (
    *FILES.edits(
        (
            "H13: another file of the name is held",
            "return status.st_ino == segment.inode and is_same_size",
            "return is_same_size",
        ),
        (
            "H13: a file that was cut is held",
            "return status.st_ino == segment.inode and is_same_size",
            "return status.st_ino == segment.inode",
        ),
        (
            "H14: files that are marked as deleted are not opened",
            'for path in (name, f"{name}.deleted"):',
            "for path in (name,):",
        ),
        (
            "H9: transaction indexes of later segments are not kept",
            "        if txn_index:\n",
            "        if txn_index and is_whole:\n",
        ),
        (
            "G10: the files of what is not held stay open",
            "    held.close()\n    return None",
            "    return None",
        ),
        (
            "links of a former process stay",
            "        shutil.rmtree(folder, ignore_errors=True)\n",
            "",
        ),
    ),
    *HOLDS.edits(
        (
            "H4: what was held under another leader epoch is copied",
            "        if any(one < epoch for one in epochs):\n",
            "        if any(one < 0 for one in epochs):\n",
        ),
        (
            "H14: a held segment is copied with the lineage of the cut log",
            "log=hold.snapshot.log, lineage=hold.snapshot.lineage)",
            "log=hold.snapshot.log)",
        ),
        (
            "H2: what is copied from open files claims the remote log start of before",
            "replace(snapshot, log=hold.snapshot.log, lineage=hold.snapshot.lineage)",
            "replace(hold.snapshot, led=snapshot.led)",
        ),
        (
            "H13: what lies in the log is copied from open files too",
            "if one.base_offset < first or _ends_below(one, start))",
            "if one.base_offset not in {s.base_offset for s in snapshot.log.segments})",
        ),
        (
            "what was let go stays open",
            "            await self._threads.run(self._dropped.popleft().close)\n",
            "            self._dropped.popleft()\n",
        ),
        (
            "H14: what lies below the log start counts as there while its file is seen",
            "if one.base_offset < first or _ends_below(one, start))",
            "if one.base_offset < first)",
        ),
        (
            "H9: the aborted transactions of a later segment go with its files",
            "                    kept.append(rest)\n",
            "                    self._dropped.append(rest)\n",
        ),
        (
            "H9: the files of later segments are closed first",
            "            await self._threads.run(self._dropped.popleft().close)\n",
            "            await self._threads.run(self._dropped.pop().close)\n",
        ),
        (
            "H4: a task of an earlier leader epoch ends what is held under a later one",
            "        if any(one < epoch for one in epochs):\n",
            "        if any(one != epoch for one in epochs):\n",
        ),
        (
            "H4: a task of an earlier leader epoch copies what is held under a later one",
            "        return all(one <= epoch for one in epochs)\n",
            "        return True\n",
        ),
    ),
    *WATCH.edits(
        (
            "G10: more is held than the limit",
            "chosen = oldest(wanted, self._holds.room)",
            "chosen = oldest(wanted, 1 << 30)",
        ),
        (
            "H18: what is given back on a disk that is nearly full is held open",
            "known is not None and self._has_space(known.log.directory)",
            "known is not None",
        ),
        (
            "H18: what is given back because of another disk is lost uncopied",
            "        return not one.given_back or (",
            "        return not one.given_back and (",
        ),
        (
            "H14: without a bound everything is let go",
            "            kept &= {one.base_offset for one in self._holds.missing(latest)}\n",
            "            kept = set()\n",
        ),
        (
            "H14: the last snapshot is not held: what is being deleted is missed",
            "        await self._hold(self._known(rows))\n        new = ",
            "        new = ",
        ),
        (
            "H14: an old snapshot says that the broker still has what is held",
            "latest = snapshot if is_bounded else await self._fresh(snapshot.led)",
            "latest = snapshot",
        ),
        (
            "H18: what is held fills the disk until its broker goes down",
            "if self._may_hold(one) and not any(map(self._gives_way, self._known([one.led])))",
            "if self._may_hold(one)",
        ),
        (
            "H38: a broker that does not answer has no bound",
            "            bounds = known.bounds if known is not None else None\n",
            "            bounds = None\n",
        ),
        (
            "H14: what is held is let go between two bounds",
            "now_ms - known.seen_at_ms <= CONTEST_MS:",
            "now_ms - known.seen_at_ms < 0:",
        ),
        (
            "what is of partitions that are led elsewhere stays open",
            "            self._holds.forget(key)\n",
            "            pass\n",
        ),
    ),
    *CHOICE.edits(
        (
            "H14: an old segment behind a younger one is held before it",
            "accumulate((one.max_timestamp_ms for one in segments), max)",
            "(one.max_timestamp_ms for one in segments)",
        ),
        (
            "H14: the newest are held",
            "        key=lambda row: row[0],\n",
            "        key=lambda row: -row[0],\n",
        ),
    ),
    *COPY.edits(
        (
            "G9: a damaged held segment stops all copies for good",
            "                self._holds.drop(snapshot.key, {segment.base_offset})\n",
            "                pass\n",
        ),
        (
            "H14: a store that finds damage ends a hold",
            "        except DamagedSegment:\n",
            "        except Exception:\n",
        ),
        (
            "H11: what was not found in its store counts as copied",
            "snapshot.remote_log_start_offset or 0, suspects),",
            "snapshot.remote_log_start_offset or 0),",
        ),
    ),
    *PLAN.edits(
        (
            "H14: what was copied from open files is copied again",
            "one.next_offset)\n    )\n    if not uncopied",
            "one.next_offset + (1 << 40))\n    )\n    if not uncopied",
        ),
        (
            "H4: a frozen partition is copied from open files",
            "    if refuse_topic(view.topic) is not None or view.frozen is not None:\n",
            "    if refuse_topic(view.topic) is not None:\n",
        ),
    ),
    *MEASURED.edits(
        (
            "H14: what is held is let go because its disk could not be measured",
            "return bool(self._samples) and not",
            "return self._space is not None and not",
        ),
    ),
    *DISK.edits(
        (
            "H18: what is held is let go although an operator chose the alarm",
            "if not (self._gives_back and is_here and",
            "if not (is_here and",
        ),
        (
            "H18: what is held is let go although nothing may be deleted",
            "refusal(deletion_guards(snapshot, ledger, self._settings, STOPS_TRIM)) is None",
            "True",
        ),
    ),
    *HOLES.edits(
        (
            "H15: a hole is recorded where a segment is still open",
            "return missed(gaps(view), tuple(ranges))",
            "return gaps(view)",
        ),
    ),
)
