"""Planted bugs in `rlm partition discard`: whose log stays, what is asked before each step (H4)."""

from tests.mutants.edits import Edit, Target

_TASK = ("tests/rlm/tasks/test_h04_discard.py",)
_CLOCKS = Target("rlm/tasks/discard.py", ("tests/rlm/tasks/test_h16_clocks.py",))
PLAN = Target("rlm/plans/discard.py", ("tests/rlm/plans/test_h04_discard.py",))
TASK = Target("rlm/tasks/discard.py", _TASK)
DECISION = Target("rlm/topics/discards.py", _TASK)
SNAPSHOT = Target("rlm/remote_log/snapshots.py", _TASK)
REVOCATION = Target("rlm/topics/revocation.py", ("tests/rlm/topics/test_verb_guards.py",))
ADOPTION = Target("rlm/topics/partition_records.py", ("tests/rlm/topics/test_adoption.py",))
END = Target("rlm/tasks/partition_end.py", _TASK)
TOPIC_ENDS = Target("rlm/topics/leftovers.py", ("tests/rlm/topics/test_topic_end.py",))

EDITS: tuple[Edit, ...] = (
    *_CLOCKS.edits(
        (
            "H16: clocks that disagree discard",
            "return refusal(guards) or self._time.why_not()",
            "return refusal(guards)",
        ),
    ),
    *REVOCATION.edits(
        (
            "H7: what a discard deletes keeps a topic's deletion from being revoked",
            "        return [key for key in self._all_keys(record) if discard(key) is None]\n",
            "        return [key for key in self._all_keys(record) if discard]\n",
        ),
        (
            "H7: of a topic that is deleted with all it had, it is answered that it is kept",
            'if record.state == "deleting" and self._discarded(record) and not has_more:',
            "if not has_more and record is None:",
        ),
        (
            "H7: discarded partitions that are not deleted yet are named as gone",
            " and ledger.ledger(key).deletion_state in BEGUN\n",
            "\n",
        ),
    ),
    *PLAN.edits(
        (
            "H4: what has ended counts as of the leader's own history",
            "            start=max(one.metadata.start_offset, remote_log_start_offset),\n",
            "            start=one.metadata.start_offset,\n",
        ),
        (
            "H4: what the log has is in no tier afterwards",
            "    gone = missed(((one.start, one.next_offset) for one in ranges), local)\n",
            "    gone = [(one.start, one.next_offset) for one in ranges]\n",
        ),
        (
            "H4: a log that lost records since is the one that was seen",
            "    if log_end_offset < record.offset:\n        return False\n",
            "",
        ),
        (
            "H4: a later epoch below the end does not matter",
            "        return has_last and (later is None or later.start_offset >= record.offset)\n",
            "        return has_last\n",
        ),
        (
            "H4: any log of later epochs is the one that was seen",
            "        return has_last and (later is None",
            "        return (later is None",
        ),
        (
            "H4: a replica with more records of the epoch before has the same log",
            "later is not None and later.start_offset == record.offset\n",
            "later is not None and later.start_offset >= record.offset\n",
        ),
        (
            "H4: what an older epoch wrote belongs to the log that was empty",
            "    return begins_there and is_later and (",
            "    return begins_there and (",
        ),
        (
            "H4: a log without the epoch of the last record is the one that was seen",
            " and (has_last or record.last_epoch == NO_RECORD_YET)\n",
            "\n",
        ),
        (
            "a trim before the decision holds it for ever",
            "    if trim is None or trim.planned_epoch <= record.epoch:\n",
            "    if trim is None:\n",
        ),
        (
            "a trim of the log that stays holds its discard",
            "    return local.start_of(trim.planned_epoch) is None\n",
            "    return True\n",
        ),
        (
            "the delay is not waited for",
            "    if age_ms < record.delay_ms:\n        return DiscardStep.WAIT\n",
            "",
        ),
        (
            "H4: what another replica has is deleted",
            "    if not same_log:\n        return DiscardStep.REFUSE\n",
            "",
        ),
        (
            "H4: it is frozen no more when few segments are left",
            "    if is_same_log(record, local, log_end_offset):\n        return Frozen(",
            "    if False:\n        return Frozen(",
        ),
        (
            "H4: a deletion that stopped midway is no freeze",
            "    if deletion_state not in BEGUN:\n        return None\n",
            "    if True:\n        return None\n",
        ),
        (
            "H2: the start stays above a log that began again",
            "    if later is not None:\n        ended = min(ended, later.start_offset)\n",
            "",
        ),
        (
            "H2: what a user deleted in the log comes back",
            "    return max(log_start_offset, ended)\n",
            "    return log_start_offset\n",
        ),
    ),
    *TASK.edits(
        (
            "G1: a freeze of deletions does not stop it",
            "freeze_record=self._settings.view.stopped_by(key.topic_id, STOPS_DELETE),",
            "freeze_record=None,",
        ),
        (
            "H6: a doubtful ledger does not stop it",
            "ledger_problem=self._ledger.problem\n",
            "ledger_problem=None\n",
        ),
        (
            "H6: doubtful settings do not stop it",
            "            or self._settings.problem\n",
            "",
        ),
        (
            "H6: a record of a later version does not stop it",
            "            or self._ledger.ledger(key).later_problem,\n",
            ",\n",
        ),
        (
            "H4: readers may not know yet that it is frozen",
            "if not self._is_freeze_published(",
            "if False and not self._is_freeze_published(",
        ),
        (
            "H5: leadership is not asked again",
            "        await self._snapshots.check_leadership(snapshot.led)\n",
            "",
        ),
        (
            "a decision that was taken back counts",
            "        if self._settings.view.discard(snapshot.key) != record:\n",
            "        if False:\n",
        ),
        (
            "G4: the start is raised when all is deleted",
            "            await self._raise_start(snapshot, permit)\n",
            "",
        ),
        (
            "H2: the old start is removed before the decision has it",
            "                await self._settings.publish(former, epoch)",
            "                pass",
        ),
        (
            "H2: what the former start ended comes back after an interruption",
            "        return max(start, former)\n",
            "        return start\n",
        ),
        (
            "the delay begins again when all is deleted",
            "former_start_epoch=decided, delay_ms=0)\n",
            "former_start_epoch=decided)\n",
        ),
        (
            "H2: the old start stays",
            '            await self._remove(f"{StartRecord.KIND}/{key}", epoch)\n',
            "            return\n",
        ),
        (
            "H1: the old trim explains later moves of the log start",
            "(TrimRecord.KIND, HolesRecord.KIND)",
            "(HolesRecord.KIND,)",
        ),
        (
            "H15: the old holes are in the new log",
            "(TrimRecord.KIND, HolesRecord.KIND)",
            "(TrimRecord.KIND,)",
        ),
        (
            "H4: what turns up of the old history freezes the partition again",
            "        await self._settings.publish(divergence, epoch)\n",
            "",
        ),
        (
            "it leaves no line in the audit log",
            "        await self._audit.partition_discarded(\n"
            "            led.topic_id_partition, by=record.by, before=known, "
            "remote_log_start_offset=start\n        )\n",
            "",
        ),
        (
            "H4: what another leader has copied meanwhile goes too",
            "        if has_newer_copies(record, snapshot.ledger):\n",
            "        if False:\n",
        ),
        (
            "H4: what another leader has trimmed, as it was remote, goes too",
            "        elif has_foreign_trim(",
            "        elif False and has_foreign_trim(",
        ),
        (
            "the deletion begins while the decision is undone",
            "            async with self.lock:\n",
            "            if True:\n",
        ),
    ),
    *DECISION.edits(
        (
            "a partition that is in use is given up",
            "        if snapshot.frozen is None:\n",
            "        if False:\n",
        ),
        (
            "a second decision replaces the first one",
            "        if pending is not None:\n",
            "        if False:\n",
        ),
        (
            "a decision is made while an earlier deletion is not over",
            "        if snapshot.ledger.deletion_state is not None:\n",
            "        if False:\n",
        ),
        (
            "what is remote of a topic that is not enabled is given up",
            "        if not snapshot.topic.state.enabled:\n",
            "        if False:\n",
        ),
        (
            "an undo says yes while segments go",
            "            if has_begun and goes_on:\n",
            "            if False:\n",
        ),
        (
            "an undo is refused although another log leads",
            "            if has_begun and goes_on:\n",
            "            if has_begun:\n",
        ),
        (
            "an undo says yes when all is deleted",
            "(ledger.is_deleted or _goes_on(record, snapshot))",
            "_goes_on(record, snapshot)",
        ),
        (
            "an undo leaves the partition-delete record",
            "            if has_begun:\n                await",
            "            if False:\n                await",
        ),
        (
            "an undo does not wait while the deletion begins",
            "        async with self._lock:\n",
            "        if True:\n",
        ),
    ),
    *SNAPSHOT.edits(
        (
            "H4: a discard freezes nothing",
            "            frozen = both(frozen, discard_freeze(",
            "            both(frozen, discard_freeze(",
        ),
    ),
    *ADOPTION.edits(
        (
            "what was discarded is adopted",
            "        if discard is not None:\n",
            "        if False:\n",
        ),
    ),
    *END.edits(
        (
            "H5: a leader's deletion is written under any epoch",
            "        if permit is not None and permit.leader_epoch is not None:\n",
            "        if False:\n",
        ),
    ),
    *TOPIC_ENDS.edits(
        (
            "what a discard has marked is revoked",
            "in _REVOKED_IN and not is_discarded",
            "in _REVOKED_IN",
        ),
        (
            "a topic that is disabled while its partition is discarded is never enabled again",
            'is_discarded = record.state == "enabled" and self._settings',
            "is_discarded = self._settings",
        ),
        (
            "a discard that was finished as its topic was disabled is never forgotten",
            '_REVOKED_IN = ("enabled", "kept")',
            '_REVOKED_IN = ("enabled",)',
        ),
    ),
)
