"""Planted bugs in `rlm verify`: what it must find, and what it must not call clean."""

from tests.mutants.edits import Edit, Target

PLAN = Target("rlm/plans/verification.py", ("tests/rlm/plans/test_verification.py",))
TASK = Target("rlm/tasks/verification.py", ("tests/rlm/tasks/test_verification.py",))
DEEP = Target("rlm/tasks/deep_check.py", ("tests/rlm/tasks/test_verification.py",))
WATCH = Target("rlm/tasks/verify_watch.py", ("tests/rlm/tasks/test_verify_watch.py",))
RULES = Target("rlm/plans/problem_rules.py", ("tests/rlm/tasks/test_verify_watch.py",))
UNLISTED = Target("rlm/tasks/unlisted_segments.py", ("tests/rlm/tasks/test_unlisted_segments.py",))
UNLISTED_PLAN = Target("rlm/plans/verification.py", ("tests/rlm/tasks/test_unlisted_segments.py",))
RUNS = Target("rlm/tasks/verify_runs.py", ("tests/rlm/tasks/test_verification.py",))
CLUSTER = Target("rlm/api/cluster_verify.py", ("tests/rlm/api/test_verify.py",))
COMMAND = Target("rlm/cli/verify.py", ("tests/rlm/cli/test_verify.py",))
OBJECTS = Target("rsm_plugins/files/segment_files.py", ("tests/rlm/tasks/test_verification.py",))
LOST = Target("rlm/tasks/lost_segments.py", ("tests/rlm/tasks/test_verification.py",))

EDITS: tuple[Edit, ...] = (
    *OBJECTS.edits(
        (
            "H25: a lent file that is gone is taken for a lost object",
            "kind = NotFound if found.keeper is None else Unavailable",
            "kind = NotFound",
        ),
    ),
    *PLAN.edits(
        (
            "H31: offsets in a wrong order are clean",
            "            if high[1] < low[1]\n",
            "            if high[1] < low[1] - 1\n",
        ),
        (
            "H31: the remote end is not compared with the last stable offset",
            "(stable, remote_end), ",
            "",
        ),
        (
            "H3: a disputed segment fills a gap",
            "for one in view.usable if not one.disputed\n",
            "for one in view.usable\n",
        ),
        (
            "H15: a file of 0 bytes counts as records of the log",
            "(offsets.local_log_start_offset, offsets.local_log_end_offset)], doubtful)",
            "(offsets.local_log_start_offset, offsets.local_log_end_offset)], ())",
        ),
        (
            "H15: a gap behind the remote data is not noticed",
            "until = offsets.local_log_end_offset if view.is_enabled else",
            "until = offsets.remote_log_end_offset if view.is_enabled else",
        ),
        (
            "H38: a gap is a note, and the partition clean",
            "IssueKind.HOLE, IssueKind.DISPUTED,",
            "IssueKind.HOLE, IssueKind.GAP, IssueKind.DISPUTED,",
        ),
        (
            "H15: a gap that only one view shows is a finding",
            "if not one.is_finding or _identity(one) in known",
            "if known or one",
        ),
    ),
    *TASK.edits(
        (
            "H38: a store that cannot be asked is clean",
            'run.unchecked.append(f"{left} segments in store {store_id}: {error}")',
            "run.segments += left",
        ),
        (
            "H6: a ledger with a problem is clean",
            "            if problem is not None:\n                yield problem\n",
            "            if problem == '':\n                yield problem\n",
        ),
        (
            "a segment that was deleted meanwhile is a finding",
            "            if one.next_offset > start\n",
            "            if one.next_offset > start or start\n",
        ),
        (
            "G9: a deep run reads nothing",
            "            if not run.deep:\n",
            "            if not run.deep or run.segments >= 0:\n",
        ),
        (
            "H11: what a verification finds lost is reported to nobody",
            "            self._report(run, segment_id, NotFound(text))\n",
            "            NotFound(text)\n",
        ),
        (
            "G9: damage that a verification finds is reported to nobody",
            "            self._report(run, metadata.segment_id.id, error)\n",
            "            del error\n",
        ),
        (
            "the last stable offset is older than the ledger that it is compared with",
            "        stable = await self._offset(run.led, read_committed=True)\n",
            "        stable = snapshot.watermarks.last_stable_offset\n",
        ),
    ),
    *LOST.edits(
        (
            "G9: a segment of the right size is no longer damaged",
            "if segment_id in lost and (is_read or segment_id not in damaged):",
            "if segment_id in lost:",
        ),
    ),
    *DEEP.edits(
        (
            "H6: a manifest of another segment passes",
            "elif _content(found.metadata) != _content(metadata):",
            "elif _content(found.metadata) == _content(metadata) and metadata is None:",
        ),
        (
            "H6: a manifest that cannot be read passes",
            "        if found.unreadable:\n",
            '        if found.unreadable == "":\n',
        ),
        (
            "G10: a deep run reads as fast as it can",
            "        if wait_ms:\n",
            "        if wait_ms < 0:\n",
        ),
    ),
    *WATCH.edits(
        (
            "H11: what a verification at intervals found is forgotten",
            "            issues=tuple(issues),\n",
            "            issues=tuple(issues[:0]),\n",
        ),
        (
            "H38: a partition that could not be asked for counts as verified",
            "before.whole_ms if unchecked else now_ms",
            "now_ms",
        ),
        (
            "a partition with a finding is verified again in a day",
            "wait_ms = min(wait_ms, _AGAIN_MS)",
            "wait_ms = max(wait_ms, _AGAIN_MS)",
        ),
        (
            "a lost segment is reported twice",
            "if one.segment_id not in lost)",
            "if one.segment_id not in lost or lost)",
        ),
        (
            "all partitions are verified in one moment",
            "% within_ms\n",
            "% within_ms * 0\n",
        ),
    ),
    *RULES.edits(
        (
            "H38: nobody learns that a partition is not verified any more",
            "if unknown_ms > 2 * max(interval_ms, _VERIFY_LEAST_MS):",
            "if unknown_ms < 0:",
        ),
        (
            "H15: a gap that the service found is no alarm",
            "    IssueKind.GAP: ProblemKind.OFFSETS_MISSING,\n",
            "",
        ),
    ),
    *UNLISTED.edits(
        (
            "H12: objects of a copy that began meanwhile are unlisted",
            "            for segment_id, segment in again.segments.items()\n",
            "            for segment_id, segment in before.segments.items()\n",
        ),
        (
            "H38: a store that could not be listed is clean",
            "found.errors.append(",
            "found.errors.index(",
        ),
        (
            "H11: another store's objects are compared with the ledger",
            "        if problem is not None:\n",
            "        if problem is None and not problem == problem:\n",
        ),
        (
            "objects of other partitions are compared with this one's ledger",
            "if name.segment_id in entries or (name.topic_id, name.partition) != partition.key:",
            "if name.segment_id in entries:",
        ),
    ),
    *UNLISTED_PLAN.edits(
        (
            "H6: a segment that the ledger lost is a note",
            "is_lost = segment.has_manifest and",
            "is_lost = not segment.has_manifest and",
        ),
        (
            "what a deletion left below the remote log start is an alarm",
            "segment.start_offset >= remote_log_start_offset\n",
            "segment.start_offset >= 0\n",
        ),
    ),
    *RUNS.edits(
        (
            "G10: any number of verifications run",
            "        if len(self._running) >= _RUNS_AT_ONCE:\n",
            "        if len(self._running) < 0:\n",
        ),
        (
            "G10: a verification that was abandoned counts for ever",
            "            del self._running[run]\n",
            "            pass\n",
        ),
    ),
    *CLUSTER.edits(
        (
            "H38: a partition that nobody reports is clean",
            "        for row in await self._missing(topic, gathered):\n",
            "        for row in (await self._missing(topic, gathered))[:0]:\n",
        ),
        (
            "H7: a topic that the broker does not describe is clean",
            'if topic_id not in seen and record.state == "enabled"',
            "if topic_id in seen and topic_id not in seen",
        ),
    ),
    *COMMAND.edits(
        (
            "H38: what could not be checked ends with 0",
            "return EXIT_UNCHECKED if result.unchecked else EXIT_CLEAN",
            "return EXIT_CLEAN",
        ),
        (
            "H38: a service that does not answer has findings",
            "EXIT_FINDINGS if result.findings else EXIT_UNCHECKED)",
            "EXIT_FINDINGS)",
        ),
    ),
)
