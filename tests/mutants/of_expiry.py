"""Planted bugs in what total retention ends, in how it is deleted, and in the audit log."""

from tests.mutants.edits import Edit, Target

PLAN = Target(
    "rlm/plans/expiry.py",
    (
        "tests/rlm/plans/test_expiry.py",
        "tests/rlm/plans/test_expiry_guards.py",
        "tests/rlm/tasks/test_expiry.py",
    ),
)
TASK = Target("rlm/tasks/expiry.py", ("tests/rlm/tasks/test_expiry.py",))
TIME = Target(
    "rlm/tasks/certain_time.py",
    ("tests/rlm/tasks/test_expiry.py", "tests/rlm/tasks/test_cleanup.py"),
)
CLOCKS = Target("rlmm/settings_view.py", ("tests/rlm/tasks/test_expiry.py",))
AUDIT = Target("rlm/tasks/audit_log.py", ("tests/rlm/tasks/test_audit_log.py",))

ENDED = Target(
    "rlm/plans/coverage.py",
    ("tests/rlm/plans/test_expiry.py", "tests/rlm/plans/test_h04_freeze.py"),
)
FREEZE = Target("rlm/remote_log/snapshots.py", ("tests/rlm/tasks/test_snapshot_reader.py",))

EDITS: tuple[Edit, ...] = (
    *ENDED.edits(
        (
            "H4: records of a later epoch than the decision are deleted",
            "next_offset <= remote_log_start_offset and newest <= remote_log_start_epoch",
            "next_offset <= remote_log_start_offset",
        ),
        (
            "H4: a segment of a dead lineage goes with its neighbours",
            "segment.next_offset <= remote_log_start_offset and newest",
            "newest",
        ),
    ),
    *FREEZE.edits(
        (
            "H4: what has ended freezes a partition",
            "            remote_log_start_offset=view.remote_log_start(led.key) or 0,\n",
            "",
        ),
        (
            "H4: what another epoch has ended freezes a partition",
            "            remote_log_start_epoch=view.remote_log_start_epoch(led.key),\n",
            "",
        ),
    ),
    *CLOCKS.edits(
        (
            "H16: a dead service with a wrong clock stops expiry",
            "            if age_ms <= max_age_ms\n",
            "",
        ),
        (
            "H16: a broker's clock that has jumped is noticed at the next heartbeats",
            "skew_ms=found.stamp.time_ms + age_ms - log_ms,",
            "skew_ms=found.stamp.time_ms - (found.times.appended_ms if found.times else 0),",
        ),
    ),
    *PLAN.edits(
        (
            "H15: a recorded hole ends what the local log has",
            "for hole in view.holes), _local_ranges(view))",
            "for hole in view.holes), ())",
        ),
        (
            "H1: expiry by the broker's log start",
            "    new_start = start\n    for segment",
            "    new_start = max(start, view.local_log_start_offset)\n    for segment",
        ),
        (
            "H16: the clock that is ahead counts",
            "return min(clocks.own_ms, clocks.log_ms)",
            "return max(clocks.own_ms, clocks.log_ms)",
        ),
        (
            "H16: clocks that disagree delete",
            "    if abs(skew_ms) > MOST_SKEW_MS:\n",
            "    if skew_ms < -MOST_SKEW_MS:\n",
        ),
        (
            "H16: a clock that is behind does not count as a disagreement",
            "    if abs(skew_ms) > MOST_SKEW_MS:\n",
            "    if skew_ms > MOST_SKEW_MS:\n",
        ),
        (
            "H16: nobody else is asked for the time",
            "        if abs(other.skew_ms) > MOST_SKEW_MS:\n",
            "        if False:\n",
        ),
        (
            "H16: without a time of the brokers our own is enough",
            "    if clocks.log_ms is None:\n        return Held(",
            "    if clocks.log_ms is None:\n        return clocks.own_ms or Held(",
        ),
        (
            "what forbids every deletion does not stop expiry",
            "    if deletion is not None:\n",
            "    if deletion == ():\n",
        ),
        (
            "H35: a topic that became compacted expires",
            "    if refused is not None:\n        return Held(",
            "    if refused == ():\n        return Held(",
        ),
        (
            "segments that retention keeps are passed over",
            "        if held is not None:\n            return expired, new_start, held\n",
            "        if held is not None:\n            continue\n",
        ),
        (
            "the limit of a pass counts nothing",
            "        budget = None if budget is None else budget - size_bytes\n",
            "",
        ),
        (
            "the limit of a pass lets nothing go where one segment is larger",
            "if held is None and expired and budget is not None and size_bytes > budget:",
            "if held is None and budget is not None and size_bytes > budget:",
        ),
        (
            "H4: the start moves over records of a dead lineage",
            "        new_start = max(new_start, segment.next_offset)\n",
            "        new_start = max(new_start, segment.end_offset)\n",
        ),
        (
            "retention time is compared loosely",
            "0 <= newest_ms < self._oldest_ms",
            "0 <= newest_ms <= self._oldest_ms",
        ),
        (
            "a segment without timestamps is too old",
            "0 <= newest_ms < self._oldest_ms",
            "newest_ms < self._oldest_ms",
        ),
        (
            "a part of a segment that is too much takes all of it",
            "excess > 0 and size_bytes <= excess",
            "excess > 0",
        ),
        (
            "what went by age is counted as still there",
            "            self._excess_bytes -= size_bytes\n",
            "            self._excess_bytes -= 0\n",
        ),
        (
            "overlaps are counted twice",
            "max(one.start_offset, reach)",
            "one.start_offset",
        ),
        (
            "KAFKA-20732: bytes that are remote are counted as local too",
            "if one.base_offset >= end)",
            "if one.base_offset >= 0)",
        ),
        (
            "local segments beyond the remote end are not counted",
            "total = sum(counted.values()) + _only_local_bytes(view, usable)",
            "total = sum(counted.values())",
        ),
        (
            "H3: a disputed segment expires",
            "    if segment.disputed:\n        return Held(",
            "    if segment.disputed is None:\n        return Held(",
        ),
        (
            "a segment that is being copied stops nothing",
            "        if entry is not None and entry.metadata.start_offset < end:\n",
            "        if entry is not None and entry.metadata.start_offset < 0:\n",
        ),
        (
            "records that only the broker has are passed over",
            "        if view.local_log_start_offset < gap_end:\n",
            "        if view.local_log_start_offset < 0:\n",
        ),
        (
            "H15: offsets of an attempt that may be adopted are passed over",
            "        if unsettled != SETTLED:\n",
            "        if unsettled == view.log_end_offset:\n",
        ),
        (
            "H2: a segment that reaches beyond the new start is deleted",
            "in_state(*_ENDED_STATES, up_to=new_start)",
            "in_state(*_ENDED_STATES)",
        ),
        (
            "H3: a disputed segment below the start is deleted",
            "        if not entry.disputed\n        and",
            "        if True\n        and",
        ),
        (
            "H2: a remote log start that is not known counts as 0",
            "    if start is None:\n        held",
            "    if start is None:\n        start = 0\n    if start < 0:\n        held",
        ),
        (
            "an uncertain time ends records",
            "    if isinstance(view.now_ms, Held):\n        return expired, start, view.now_ms\n",
            "    if isinstance(view.now_ms, Held):\n"
            "        return expired, start, Held(reason=NoExpiry.WITHIN_RETENTION)\n",
        ),
        (
            "H3: a disputed segment that has ended stops expiry for good",
            "view.ledger.extents(view.lineage, view.log_end_offset, start)",
            "view.ledger.extents(view.lineage, view.log_end_offset)",
        ),
        (
            "the share of a pass is no share",
            "* most_percent // 100\n",
            "* most_percent\n",
        ),
        (
            "offsets that no segment holds are passed over",
            "    gap = [(cursor, first)] if cursor < first else []\n",
            "    gap: list[tuple[int, int]] = []\n",
        ),
        (
            "H15: a hole stops expiry for good",
            "missed(gap, _without_records(view) if gap else ())",
            "missed(gap, ())",
        ),
        (
            "H3: a disputed segment counts for retention by size",
            "counted[one.segment] = 0 if one.disputed else share // of_all",
            "counted[one.segment] = share // of_all",
        ),
        (
            "H3: what lies under a disputed segment counts nothing",
            "reach = reach if one.disputed else max(reach, one.next_offset)",
            "reach = max(reach, one.next_offset)",
        ),
        (
            "H4: records of a dead lineage count for retention by size",
            "offsets = max(0, one.next_offset - max(",
            "offsets = max(0, one.end_offset - max(",
        ),
        (
            "H4: what nobody has ended goes with its neighbours",
            "(entry.metadata.segment_id.id.raw in expired or _has_ended(view, entry.metadata, "
            "start))",
            "start >= 0",
        ),
        (
            "what an interruption left is never deleted",
            "    RemoteLogSegmentState.DELETE_SEGMENT_STARTED,\n)",
            ")",
        ),
        (
            "a segment that is being copied below the start is deleted",
            "    if metadata.segment_id.id in view.copying:\n        return False\n",
            "",
        ),
    ),
    *TASK.edits(
        (
            "H2: objects go before the remote log start is raised",
            "        if plan.raises:\n            await self._raise_start(fresh, plan)\n"
            "        await self._delete(fresh, plan)\n",
            "        await self._delete(fresh, plan)\n        if plan.raises:\n"
            "            await self._raise_start(fresh, plan)\n",
        ),
        (
            "H2: segments above the durable start are deleted",
            "        if start is None or metadata.next_offset > start:\n",
            "        if start is None:\n",
        ),
        (
            "H5: leadership is not asked for before the start is raised",
            "        await self._snapshots.check_leadership(snapshot.led)\n        held",
            "        held",
        ),
        (
            "G1: nothing is checked right before the start is raised",
            "            check=partial(self._check_decision, snapshot, retention),\n",
            "            check=partial(self._snapshots.take, snapshot.led),\n",
        ),
        (
            "H16: the clocks are not compared again before the start is raised",
            "        if held is None and isinstance(now_ms := self._time.now_ms(), Held):\n",
            "        if held is None and isinstance(now_ms := 0, Held):\n",
        ),
        (
            "a longer retention is not noticed before the start is raised",
            "if record is None or retention_in_force(record) != retention:",
            "if record is None:",
        ),
        (
            "H5: the first snapshot's plan is carried out",
            "        plan = self.plan(fresh)\n",
            "        plan = first\n",
        ),
        (
            "a second plan that does not confirm the first is carried out",
            "        if plan.new_start < first.new_start:\n",
            "        if plan.new_start < 0:\n",
        ),
        (
            "a freeze of sweeps alone stops expiry, and one of deletions does not",
            "self._ledger, self._settings, STOPS_DELETE)",
            'self._ledger, self._settings, "sweep")',
        ),
        (
            "the limit of a run never holds",
            "return self._config.most_percent if before == retention else None",
            "return None",
        ),
        (
            "a store that refuses is not reported",
            "        for error in result.store_errors:\n            raise error\n",
            "",
        ),
        (
            "a batch that was stopped is not reported",
            "        if result.stopped is not None:\n            raise result.stopped\n",
            "",
        ),
        (
            "the audit log does not say which retention ended records",
            "            check=partial(self._check_decision, snapshot, retention),\n"
            "            retention=retention,\n",
            "            check=partial(self._check_decision, snapshot, retention),\n",
        ),
    ),
    *TIME.edits(
        (
            "H16: a service that has just started believes its host",
            "        if view.followed_ms(monotonic_ms) < max_age_ms:\n",
            "        if view.followed_ms(monotonic_ms) < 0:\n",
        ),
        (
            "a service that has just started does not sweep what its node left",
            "        if not isinstance(now_ms, Held) or now_ms.reason is not NoExpiry.CLOCK:\n",
            "        if not isinstance(now_ms, Held):\n",
        ),
    ),
    *AUDIT.edits(
        (
            "a line follows on one that was cut off",
            'data = b"\\n" + data',
            "data = data + b''",
        ),
        (
            "the audit log keeps the last batch only",
            "os.O_RDWR | os.O_APPEND | os.O_CREAT",
            "os.O_RDWR | os.O_TRUNC | os.O_CREAT",
        ),
        (
            "a line that cannot be written is no error",
            "        except OSError as error:\n            raise Unavailable(",
            "        except KeyError as error:\n            raise Unavailable(",
        ),
    ),
)
