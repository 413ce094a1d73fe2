"""Planted bugs in the trim: the one module that deletes acknowledged records from a broker."""

from tests.mutants.edits import Edit, Target

PLAN = Target("rlm/plans/trim.py", ("tests/rlm/plans/test_trim.py", "tests/rlm/tasks/test_trim.py"))
TRIM = Target(
    "rlm/tasks/trim.py",
    (
        "tests/rlm/tasks/test_trim_guards.py",
        "tests/rlm/tasks/test_trim.py",
        "tests/rlm/tasks/test_h41_trim.py",
        "tests/rlm/tasks/test_h18_live_services.py",
        "tests/rlm/stores/test_tasks_over_stores.py",
    ),
)
GAP = Target("rlm/tasks/trim.py", ("tests/rlm/tasks/test_h15_gap_before_trim.py",))
COPIES = Target("rlm/remote_log/snapshots.py", TRIM.tests)
SERVICES = Target("rlm/plans/services.py", ("tests/rlm/plans/test_services.py",))
DELETIONS = Target(
    "rlm/broker/deletions.py",
    ("tests/rlm/broker/test_deletions.py", "tests/rlm/tasks/test_h41_trim.py"),
)

EDITS: tuple[Edit, ...] = (
    *GAP.edits(
        (
            "H15: a trim passes a gap that is no hole yet, and never can be one afterwards",
            "return self._gap(snapshot) or self._lineage.held(snapshot, plan) or plan",
            "return self._lineage.held(snapshot, plan) or plan",
        ),
    ),
    *COPIES.edits(
        (
            "H3: a trim stands on disputed copies",
            "            if not one.disputed and one.metadata.start_offset < end\n",
            "            if one.metadata.start_offset < end\n",
        ),
    ),
    *PLAN.edits(
        (
            "what forbids every deletion does not stop the trim",
            "    if deletion is not None:\n",
            "    if deletion is not None and not guards.trim_on:\n",
        ),
        (
            "H35: a compacted topic is trimmed",
            "    if refused is not None:\n",
            "    if refused is not None and not guards.trim_on:\n",
        ),
        (
            "H19: a topic in mode copy is trimmed",
            "    if not guards.mode_is_tier:\n",
            "    if not guards.mode_is_tier and not guards.trim_on:\n",
        ),
        (
            "`trim off` does not stop the trim",
            "    if not guards.trim_on:\n",
            "    if not guards.trim_on and not guards.mode_is_tier:\n",
        ),
        (
            "H14: a trim goes on while the broker's retention is bounded",
            "    if guards.retention_bounded is not None:\n",
            "    if guards.retention_bounded == '':\n",
        ),
        (
            "G1: a trim goes on while a broker does not answer for its retention",
            "    if guards.retention_unknown is not None:\n",
            "    if guards.retention_unknown == '':\n",
        ),
        (
            "G1: a trim goes on while a replica has no live service",
            "    if dead or not guards.replicas:\n",
            "    if not guards.replicas:\n",
        ),
        (
            "H27: a trim goes on while a replica lags",
            "if guards.replicas_short_ms is not None and not is_hold_overdue(guards):",
            "if guards.replicas_short_ms is None and is_hold_overdue(guards):",
        ),
        (
            "H27: the hold for a lagging replica ends too late",
            "guards.replicas_short_ms >= guards.hold_max_ms",
            "guards.replicas_short_ms > guards.hold_max_ms",
        ),
        (
            "H4: records of a log that was restarted are deleted as ended",
            "held = _forbidden(guards) or _restarted(offsets)",
            "held = _forbidden(guards)",
        ),
        (
            "H4: a later epoch that begins right at the remote start counts as below it",
            "    if later is None or later.start_offset >= start:\n",
            "    if later is None or later.start_offset > start:\n",
        ),
        (
            "H2: what has ended is deleted beyond the high watermark",
            "bound = min(offsets.remote_log_start_offset, offsets.high_watermark - 1)",
            "bound = offsets.remote_log_start_offset",
        ),
        (
            "H8: the last record goes with what has ended",
            "bound = min(offsets.remote_log_start_offset, offsets.high_watermark - 1)",
            "bound = min(offsets.remote_log_start_offset, offsets.high_watermark)",
        ),
        (
            "H2: what has ended is deleted again and again",
            "    if bound <= offsets.local_log_start_offset:\n",
            "    if bound < offsets.local_log_start_offset:\n",
        ),
        (
            "the deletion lag holds no trim",
            "    if not is_asked:\n        bound = min(",
            "    if is_asked:\n        bound = min(",
        ),
        (
            "local retention without limit is trimmed",
            "    if retention.is_unlimited:\n",
            "    if offsets.retention.is_unlimited and offsets.share_group_start:\n",
        ),
        (
            "G1: a trim passes what is copied",
            "        offsets.contiguous_end,\n",
            "",
        ),
        (
            "G2: a trim passes the last stable offset",
            "        offsets.last_stable_offset,\n",
            "",
        ),
        (
            "H8: a trim leaves no record",
            "        offsets.high_watermark - 1,\n",
            "        offsets.high_watermark,\n",
        ),
        (
            "H19: a trim passes a share group",
            "        limits.append(offsets.share_group_start)\n",
            "        pass\n",
        ),
        (
            "H27: a trim ends inside a segment",
            "ends = (segment.next_offset for segment in segments if segment.is_closed)\n"
            "    return max((end for end in ends if end is not None and end <= limit), default=-1)",
            "ends = [segment.next_offset for segment in segments if segment.is_closed]\n"
            "    return limit if ends else -1",
        ),
        (
            "a trim takes what local retention keeps",
            "    bound = min(\n        copied,\n",
            "    bound = max(\n        copied,\n",
        ),
        (
            "records exactly as old as local retention go",
            "now_ms - segment.max_timestamp_ms > age",
            "now_ms - segment.max_timestamp_ms >= age",
        ),
        (
            "local retention by size keeps less than it says",
            "excess is not None and excess >= segment.size_bytes",
            "excess is not None and excess > 0",
        ),
        (
            "local retention by size counts no segment that goes",
            "        excess = None if excess is None else excess - segment.size_bytes\n",
            "",
        ),
        (
            "local retention skips a segment that stays",
            "        if not (is_gone or too_old or too_much):\n            break\n",
            "        if not (is_gone or too_old or too_much):\n            continue\n",
        ),
        (
            "H5: a plan that is held by now is carried out",
            "    if isinstance(again, Held):\n        return f",
            "    if isinstance(again, Held) and not again.reason:\n        return f",
        ),
        (
            "H5: a plan of another kind confirms one",
            "    if type(again) is not type(plan):\n",
            "    if again is None:\n",
        ),
        (
            "H5: a plan under other leader epochs confirms one",
            "    if (again.leader_epoch, again.lineage) != (plan.leader_epoch, plan.lineage):\n",
            "    if again.leader_epoch != plan.leader_epoch and again.lineage != plan.lineage:\n",
        ),
        (
            "H5: a plan up to a lower bound confirms one",
            "    if again.bound < plan.bound:\n",
            "    if again.bound < 0:\n",
        ),
    ),
    *TRIM.edits(
        (
            "H41: a partition is looked at while a deletion may be executed yet",
            "        await self.settle(led)\n",
            "",
        ),
        (
            "H2: without a remote log start a trim goes on",
            "if record is None or snapshot.remote_log_start_offset is None:\n            return",
            "if record is None:\n            return",
        ),
        (
            "H11: objects are not looked at before a trim",
            "            await self._see_copies(snapshot, plan)\n",
            "",
        ),
        (
            "H8: the history is not published before a trim",
            "            await self._lineage.publish(snapshot, plan)\n",
            "",
        ),
        (
            "H2: the intent is not written before a trim",
            "            await self._write_intent(snapshot, plan)\n",
            "",
        ),
        (
            "G1: another operation's freeze stops the trim",
            "self._ledger, self._settings, STOPS_TRIM)",
            'self._ledger, self._settings, "sweep")',
        ),
        (
            "H18: heartbeats are as old as the wall clock says",
            "heartbeats(self._settings.view, self._clock.monotonic_ms()),",
            "heartbeats(self._settings.view, self._clock.now_ms()),",
        ),
        (
            "H4: the epoch of the remote start is not asked for",
            "remote_log_start_epoch=self._settings.view.remote_log_start_epoch(snapshot.key),",
            "remote_log_start_epoch=snapshot.led.leader_epoch,",
        ),
        (
            "H27: the hold for a lagging replica starts again with every round",
            "return now_ms - self._short_since_ms.setdefault(key, now_ms)",
            "return now_ms - now_ms",
        ),
        (
            "H27: the hold goes on from an earlier lag",
            "            self._short_since_ms.pop(key, None)\n            return None",
            "            return None",
        ),
        (
            "H11: a trim stands on copies that are gone",
            "if missing and self._contiguous_end(snapshot, start, without=missing) < plan.bound:",
            "if missing and not self._contiguous_end(snapshot, start, without=missing):",
        ),
        (
            "H13: bytes are not compared before the first trim of an epoch",
            "            await self._prove_bytes(snapshot, plan, seen)\n",
            "",
        ),
        (
            "H13: bytes proven under another epoch count",
            "if not copies or self._proven_epoch.get(snapshot.key) == plan.leader_epoch:",
            "if not copies or self._proven_epoch.get(snapshot.key) is not None:",
        ),
        (
            "H13: bytes count as proven before they were compared",
            "newest = copies[-1]",
            "newest = copies[-1]; self._proven_epoch[snapshot.key] = plan.leader_epoch",
        ),
        (
            "whoever leads next does not know the store of what is trimmed",
            "            self._check_readers(snapshot, copies)\n            missing",
            "            missing",
        ),
        (
            "H2: the intent of an older epoch stands for this one",
            "(known.bound, known.planned_epoch) != (plan.bound, epoch)",
            "known.bound != plan.bound",
        ),
        (
            "H5: nothing is asked again right before the deletion",
            "            await self._check_again(snapshot, plan)\n",
            "",
        ),
        (
            "H5: a deletion that was not applied is a success",
            "            if log_start < plan.bound:\n                raise\n",
            "",
        ),
        (
            "H5: a deletion that was applied without an answer is a failure",
            "            if log_start < plan.bound:\n                raise\n",
            "            raise\n",
        ),
        (
            "H19: share groups that began since are not asked for",
            "if is_trim else ClusterAnswers()",
            "if plan is None else ClusterAnswers()",
        ),
        (
            "H5: the second plan does not count",
            "why = why_not_confirmed(plan, again) or self._why_other_evidence(snapshot, "
            "fresh, plan)",
            "why = self._why_other_evidence(snapshot, fresh, plan)",
        ),
        (
            "H5: what was proven of another log or of other copies counts",
            "why = why_not_confirmed(plan, again) or self._why_other_evidence(snapshot, "
            "fresh, plan)",
            "why = why_not_confirmed(plan, again)",
        ),
        (
            "H5: a last check that took long counts",
            "        if age_ms > self._config.check_max_age_ms:\n",
            "        if age_ms > 1_000 * self._config.check_max_age_ms:\n",
        ),
        (
            "H5: the lineage may change between plan and deletion",
            "        if fresh.log.lineage != snapshot.log.lineage:\n",
            "        if fresh.log.lineage is None:\n",
        ),
        (
            "H11: other copies than those that were seen are trimmed on",
            "copies != snapshot.undisputed_copies(plan.local_log_start_offset, plan.bound):\n",
            "not copies and plan.bound < 0:\n",
        ),
        (
            "H8: another history that was published since does not stop the trim",
            "        if not self._lineage.is_settled(fresh, plan):\n",
            "        if not plan.bound:\n",
        ),
        (
            "H5: an old plan is carried out",
            "        if left_ms <= 0:\n",
            "        if left_ms <= -1_000_000_000:\n",
        ),
    ),
    *SERVICES.edits(
        (
            "H18: a service that was never heard is live",
            "        if beat.heard_ms_ago is not None and beat.heard_ms_ago <= max_age_ms\n",
            "        if beat.heard_ms_ago is None or beat.heard_ms_ago <= max_age_ms\n",
        ),
        (
            "H18: a service that was heard exactly as long ago as allowed is dead",
            "beat.heard_ms_ago <= max_age_ms",
            "beat.heard_ms_ago < max_age_ms",
        ),
        (
            "H13: the last heartbeat of a predecessor is a rival's",
            "if self._last.setdefault(beat.writer, beat.offset) < beat.offset:",
            "if self._last.setdefault(beat.writer, beat.offset) <= beat.offset:",
        ),
        (
            "H13: another node's service is a rival",
            "if beat.node_id != self._node_id or beat.writer == self._writer:",
            "if beat.writer == self._writer:",
        ),
    ),
    *DELETIONS.edits(
        (
            "H41: a deletion that was given up is forgotten",
            "                    self._given_up(topic_partition, prepared.sent)\n",
            "                    self.forget(topic_partition, prepared.sent)\n",
        ),
        (
            "H41: a deletion is remembered only once it was written",
            "            self._owner.forget(self._topic_partition, sent)\n            raise\n"
            "        self._owner.forget(self._topic_partition, sent)\n",
            "            raise\n        self._owner.forget(self._topic_partition, sent)\n",
        ),
        (
            "H41: no answer in time counts as an answer",
            "except TimeoutError as error:\n            raise OutcomeUnknown",
            "except TimeoutError as error:\n"
            "            self._owner.forget(self._topic_partition, sent)\n"
            "            raise OutcomeUnknown",
        ),
        (
            "H41: a lost connection counts as an answer",
            "except OSError as error:\n            raise OutcomeUnknown",
            "except OSError as error:\n"
            "            self._owner.forget(self._topic_partition, sent)\n"
            "            raise OutcomeUnknown",
        ),
        (
            "H41: an answer to a question from before the connection was closed counts",
            "if self.closed_at_ms is None or asked_at_ms < self.closed_at_ms:",
            "if self.closed_at_ms is None:",
        ),
        (
            "H41: the first answer after the connection was closed is enough",
            "            self.answered_at_ms = now_ms\n",
            "            self.answered_at_ms = now_ms\n            self.is_drained = True\n",
        ),
        (
            "H41: the broker's queue counts as drained too early",
            "elif asked_at_ms >= self.answered_at_ms + drain_ms:",
            "elif asked_at_ms >= self.answered_at_ms:",
        ),
        (
            "H41: what a predecessor sent is not waited for",
            "        while self._before is not None:\n",
            "        while self._before is not None and self._sent:\n",
        ),
        (
            "H41: what was given up is known by one question",
            "        if not sent.is_drained and start < sent.bound:\n",
            "        if not sent.is_drained and start < 0:\n",
        ),
        (
            "H41: what was given up and took effect stays unknown",
            "        if not sent.is_drained and start < sent.bound:\n",
            "        if not sent.is_drained:\n",
        ),
    ),
)
