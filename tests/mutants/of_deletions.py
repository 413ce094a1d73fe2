"""Planted bugs in pending deletions: a shorter retention is in force too early, or stays."""

from tests.mutants.edits import Edit, Target

PENDING = Target(
    "rlm/plans/deletions.py",
    ("tests/rlm/plans/test_deletions.py", "tests/rlm/topics/test_deletions.py"),
)
DELETIONS = Target(
    "rlm/topics/deletions.py",
    ("tests/rlm/topics/test_deletions.py", "tests/rlm/topics/test_undo_of_deletions.py"),
)
IN_FORCE = Target(
    "rlm/plans/retention.py",
    ("tests/rlm/plans/test_deletions.py", "tests/rlm/plans/test_retention.py"),
)
AGES = Target("rlmm/log_time.py", ("tests/rlmm/test_settings_view.py",))
FENCED = Target("rlmm/settings_records.py", ("tests/rlmm/test_settings_view.py",))
VERBS = Target(
    "rlm/topics/verbs.py",
    ("tests/rlm/topics/test_deletions.py", "tests/rlm/topics/test_shortening.py"),
)
REVOCATION = Target("rlm/topics/revocation.py", ("tests/rlm/topics/test_deletions.py",))
SHORTENING = Target(
    "rlm/topics/shortening.py",
    ("tests/rlm/topics/test_shortening.py", "tests/rlm/topics/test_deletions.py"),
)
DELETABLE = Target("rlm/plans/deletable.py", ("tests/rlm/plans/test_deletable.py",))
DELETION = Target(
    "rlm/tasks/segment_deletion.py",
    (
        "tests/rlm/tasks/test_segment_deletion.py",
        "tests/rlm/tasks/test_cleanup.py",
        "tests/rlm/tasks/test_g1_freeze_of_slow_deletions.py",
        "tests/rlm/tasks/test_late_manifest.py",
        "tests/rlm/tasks/test_cancel_everywhere.py",
    ),
)
DENIED = Target("rlm/tasks/segment_deletion.py", ("tests/rlm/tasks/test_h12_denied_segments.py",))

EDITS: tuple[Edit, ...] = (
    *DELETION.edits(
        (
            "H5: nothing is checked before DELETE_SEGMENT_STARTED",
            "        group = await self._check(group, permit, progress)\n"
            "        await each_at_once(group, _GROUP, "
            "lambda one: self._begin(",
            "        await each_at_once(group, _GROUP, lambda one: self._begin(",
        ),
        (
            "H10: objects go before DELETE_SEGMENT_STARTED was read back",
            "        await each_at_once(group, _GROUP, lambda one: self._begin(one, permit))\n",
            "",
        ),
        (
            "H6: an attempt that got its manifest after all is deleted",
            "        await each_at_once(group, _GROUP, permit.check_reason)\n",
            "",
        ),
        (
            "H5: nothing is checked right before objects go",
            "        group = await self._check(group, permit, progress)\n        progress.gone",
            "        progress.gone",
        ),
        (
            "a store that does not say whether something came back ends the batch",
            "            except RemoteStorageError as error:\n"
            "                progress.store_failed(store_id",
            "            except KeyError as error:\n                progress.store_failed(store_id",
        ),
        (
            "a store that refuses a call ends the batch",
            "        except RemoteStorageError as error:\n            self._sizes",
            "        except KeyError as error:\n            self._sizes",
        ),
        (
            "a store that is away is asked for every segment",
            "            while left and store_id not in progress.away:\n",
            "            while left:\n",
        ),
        (
            "a store that is away is an error of every segment",
            "        if store_id in self.away and isinstance(error, Unavailable):\n"
            "            return\n",
            "",
        ),
        (
            "H12: a segment that may still be written is not looked at again",
            "        unsettled = [one for one in deleted if permit.may_be_written(one)]\n",
            "        unsettled = deleted[:0]\n",
        ),
        (
            "a store that fences a segment counts as one that does not delete it",
            "        if fenced is not None:\n            raise fenced\n        returned",
            "        progress.result.store_errors += [fenced] if fenced else []\n        returned",
        ),
        (
            "what went in the call in which a store fenced is not recorded",
            "        answers = zip(segments, errors, strict=True)\n",
            "        answers = zip(segments, errors, strict=True) if fenced is None else ()\n",
        ),
        (
            "a store that is away is asked again by the next group",
            "asked = [one for one in group if store_of(one) not in progress.away]",
            "asked = list(group)",
        ),
        (
            "G4: what came back leaves the ledger before it is deleted again",
            "                (returned if has_returned else progress.gone).append(metadata)\n",
            "                progress.gone.append(metadata)\n"
            "                returned += [metadata] if has_returned else []\n",
        ),
        (
            "G4: a segment that its store did not delete leaves the ledger",
            "        deleted = [one for one, answer in answers if answer is None]\n",
            "        deleted = [one for one, _ in answers]\n",
        ),
        (
            "G4: no entry leaves the ledger",
            "        await self._ledger.tombstone(metadata.segment_id, permit.leader_epoch)\n",
            "",
        ),
        (
            "G1: a freeze does not stop the deletion of what came back",
            "            _refuse(permit)\n            deleted, fenced",
            "            deleted, fenced",
        ),
        (
            "G1: a freeze between two calls does not stop a group",
            "                _refuse(permit)\n                size",
            "                size",
        ),
        (
            "G1: calls of a slow store are not smaller",
            "                part, left = left[:size], left[size:]\n",
            "                part, left = left, left[:0]\n",
        ),
        (
            "G1: a freeze does not stop a call that has begun",
            "        if refusal is None:\n            timer",
            "        if True:\n            timer",
        ),
        (
            "G1: a freeze is looked for once while a store deletes",
            "            timer = loop.call_later(_NOTICE_SECONDS, watch)\n        else:",
            "            pass\n        else:",
        ),
        (
            "G1: a call without an answer is repeated with as many segments",
            "            self._sizes.failed(store_id, len(segments))\n",
            "",
        ),
        (
            "G1: a freeze right before objects go does not stop it",
            "    if stopped is not None:\n        raise Fenced(stopped)",
            "    if stopped == '':\n        raise Fenced(stopped)",
        ),
        (
            "what was deleted before a freeze is not recorded",
            "stopped = error  # what is gone by now is still recorded",
            "raise Fenced(str(error)) from error",
        ),
        (
            "H11: stores are not asked who they are",
            "                await self._evidence.check_identity([one])\n",
            "                store_of(one)\n",
        ),
        (
            "a store that is away keeps the segments of the others",
            "            except Unavailable as error:\n                progress.store_failed(",
            "            except KeyError as error:\n                progress.store_failed(",
        ),
        (
            "H11: a segment is deleted though its store does not say who it is",
            "        return [one for one in asked if store_of(one) not in progress.away]\n",
            "        return asked\n",
        ),
        (
            "H5: leadership is not asked for",
            "        await permit.check_right()\n",
            "",
        ),
        (
            "H12: a manifest that lands late stays",
            "        if found.metadata is None:\n            return bool(found.unreadable)\n",
            "        if True:\n            return False\n",
        ),
        (
            "after an error in a group everything else is still begun",
            "            if has_failed:\n                return\n",
            "",
        ),
    ),
    *DENIED.edits(
        (
            "H12: where a store denies a segment, nothing that it deleted is recorded",
            "progress.store_failed(store_id, answer, is_answering=bool(deleted))",
            "progress.store_failed(store_id, answer)",
        ),
    ),
    *VERBS.edits(
        (
            "H10: a shorter retention is written before it is announced",
            "        await self._dependencies.shortening.announce(\n"
            "            seen.topic, change, by=options.by, writing=seen.writing\n"
            "        )\n"
            "        await self._publish(seen, record)\n",
            "        await self._publish(seen, record)\n"
            "        await self._dependencies.shortening.announce(\n"
            "            seen.topic, change, by=options.by, writing=seen.writing\n"
            "        )\n",
        ),
        (
            "a shorter retention is in force at once",
            "        enforced=in_force.laxer(retention.total),\n",
            "        enforced=retention.total,\n",
        ),
        (
            "data becomes deletable without a confirmation",
            "        await self._dependencies.shortening.check("
            "seen.topic, change, yes=options.yes)\n",
            "",
        ),
    ),
    *REVOCATION.edits(
        (
            "a retention from before a disable is in force again",
            'trim=False, mode="copy", enforced=None, deletion_cause=',
            'trim=False, mode="copy", deletion_cause=',
        ),
    ),
    *SHORTENING.edits(
        (
            "a shorter retention is not announced",
            "        if change.shortens:\n            await self._announcements.announce(",
            "        if change.shortens and not by:\n"
            "            await self._announcements.announce(",
        ),
        (
            "the brokers' retention counts for what is stored already",
            "        in_force = TotalRetention() if is_stored else rules.total_of(config)\n",
            "        in_force = rules.total_of(config)\n",
        ),
        (
            "a second announcement overwrites a deletion of another kind",
            "        self._announcements.refuse_other(topic.name, topic.topic_id)\n",
            "",
        ),
        (
            "what is deletable is counted from the wanted retention alone",
            "before=change.in_force, after=change.wanted)",
            "before=TotalRetention(), after=change.wanted)",
        ),
        (
            "local segments that no store has do not count",
            "                return await self._threads.run(self._scan, topic, partition)\n",
            "                await self._threads.run(self._scan, topic, partition)\n",
        ),
        (
            "a partition without a replica here fails the command",
            "            except RemoteStorageError:  # no replica here",
            "            except OSError:  # no replica here",
        ),
    ),
    *DELETABLE.edits(
        (
            "segments that are ended already are counted",
            "    segments = [one for one in plan.segments if one.next_offset > start]\n",
            "    segments = list(plan.segments)\n",
        ),
    ),
    *IN_FORCE.edits(
        (
            "what was decided is enforced at once",
            "    return record.enforced.laxer(record.total)\n",
            "    return record.total\n",
        ),
        (
            "a longer retention is not in force yet",
            "    return record.enforced.laxer(record.total)\n",
            "    return record.enforced\n",
        ),
        (
            "a retention that was stored and never enforced is in force",
            '    if record.state != "enabled" or record.enforced is None:\n'
            "        return TotalRetention()\n",
            '    if record.state != "enabled":\n'
            "        return TotalRetention()\n"
            "    if record.enforced is None:\n"
            "        return record.total\n",
        ),
        (
            "what is kept after a disable expires",
            '    if record.state != "enabled" or record.enforced is None:\n',
            "    if record.enforced is None:\n",
        ),
    ),
    *PENDING.edits(
        (
            "the delay counts from the announcement alone",
            "        for key in (announced.key, record.key)\n",
            "        for key in (announced.key,)\n",
        ),
        (
            "the delay counts from the topic's record alone",
            "        for key in (announced.key, record.key)\n",
            "        for key in (record.key,)\n",
        ),
        (
            "a shorter retention is enforced without a delay",
            "    if pending.due_in_ms or view.stopped_by(record.topic_id, STOPS_DELETE):\n",
            "    if view.stopped_by(record.topic_id, STOPS_DELETE):\n",
        ),
        (
            "a freeze does not stop a shorter retention",
            "    if pending.due_in_ms or view.stopped_by(record.topic_id, STOPS_DELETE):\n",
            "    if pending.due_in_ms:\n",
        ),
        (
            "a deletion of another kind is taken for ours",
            '    if record.state == "deleting" or '
            "(found and found.what != DELETES_BY_RETENTION):\n",
            '    if record.state == "deleting":\n',
        ),
        (
            "a stricter retention stays enforced where a longer one was decided",
            "    if _lags(record):\n        return DeletionStep.WIDEN\n",
            "",
        ),
        (
            "an announcement that nothing follows stays for good",
            "        return None if found is None else DeletionStep.FORGET\n",
            "        return None\n",
        ),
    ),
    *DELETIONS.edits(
        (
            "H17: a shorter retention is enforced from a view that is behind",
            "        await self._settings.barrier(self._barrier_deadline_ms)\n"
            "        view = self._settings.view\n",
            "        view = self._settings.view\n",
        ),
        (
            "H6: a shorter retention is enforced while a settings record cannot be read",
            "        return None if step is DeletionStep.ENFORCE and self._settings.problem "
            "else step\n",
            "        return step\n",
        ),
        (
            "H39: a retention is enforced for a topic of the same name",
            "        if record is None or topic.topic_id != topic_id:\n",
            "        if record is None:\n",
        ),
        (
            "an undo leaves the shorter retention in the topic's record",
            "                retention_ms=in_force.retention_ms,\n",
            "",
        ),
        (
            "H17: an undo goes by a view that is behind",
            "            await self._settings.barrier(self._barrier_deadline_ms)\n"
            "            view = self._settings.view\n",
            "            view = self._settings.view\n",
        ),
        (
            "what is in force is undone, as if it had deleted nothing",
            "            if record is None or not is_pending(record):\n",
            "            if record is None:\n",
        ),
        (
            "an undo removes a deletion of another kind",
            "            self._announcements.refuse_other(name, topic.topic_id)\n",
            "",
        ),
        (
            "nothing is read yet, and a shorter retention is enforced",
            "        if not self._settings.is_ready:\n            return\n"
            "        for record in self._settings.view.topics():\n"
            "            if self._next_step",
            "        for record in self._settings.view.topics():\n            if self._next_step",
        ),
    ),
    *AGES.edits(
        (
            "H16: a broker whose clock is ahead ends a delay",
            "        return max(known_ms, min(by_log_ms, now_ms - decided_ms))\n",
            "        return max(known_ms, by_log_ms)\n",
        ),
        (
            "H16: our own clock ends a delay",
            "        return max(known_ms, min(by_log_ms, now_ms - decided_ms))\n",
            "        return max(known_ms, now_ms - decided_ms)\n",
        ),
        (
            "H16: the clock of the broker that appended the record ends a delay",
            "else max(times.appended_ms, written_ms)",
            "else times.appended_ms",
        ),
        (
            "H16: the writer's clock ends a delay",
            "else max(times.appended_ms, written_ms)",
            "else written_ms",
        ),
        (
            "H16: a delay waits for as long as its writer's clock was ahead",
            "is_refuted = log_now_ms is not None and",
            "is_refuted = log_now_ms is None and",
        ),
        (
            "H16: our own clock refutes the writer's",
            "written_ms > max(now_ms, log_now_ms)",
            "written_ms > now_ms",
        ),
        (
            "H16: the brokers' clock refutes the writer's",
            "written_ms > max(now_ms, log_now_ms)",
            "written_ms > log_now_ms",
        ),
        (
            "H16: a record of the replay does not age by our monotonic clock",
            "known_ms = self.followed_ms(monotonic_ms)",
            "known_ms = 0",
        ),
    ),
    *FENCED.edits(
        (
            "H10: a late announcement replaces a newer one",
            "    DeletionRecord,\n    DiscardRecord,\n    HistoryRecord,\n",
            "    DiscardRecord,\n    HistoryRecord,\n",
        ),
        (
            "H10: a late copy limit replaces a newer one",
            "    HolesRecord,\n    CopyLimitRecord,\n)\n",
            "    HolesRecord,\n)\n",
        ),
    ),
)
