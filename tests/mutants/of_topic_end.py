"""Planted bugs in the end of deleted topics: what is evidence, and what is asked before a step."""

from tests.mutants.edits import Edit, Target

_SERVICES = (
    "tests/rlm/topics/test_h07_topic_end.py",
    "tests/rlm/topics/test_topic_end.py",
)
EVIDENCE = Target("rlm/plans/topic_end.py", ("tests/rlm/plans/test_topic_end.py",))
ENDS = Target("rlm/topics/ends.py", _SERVICES)
LEFTOVERS = Target("rlm/topics/leftovers.py", ("tests/rlm/topics/test_h10_leftovers.py",))
LEFT_ENDS = Target("rlm/topics/ends.py", ("tests/rlm/topics/test_h10_leftovers.py",))
PARTITION = Target("rlm/tasks/partition_end.py", _SERVICES)
PURGE = Target("rlm/topics/purge.py", _SERVICES)
ASKING = Target("rlm/topics/presence.py", ("tests/rlm/topics/test_presence.py",))
MANAGER = Target(
    "rlmm/manager.py",
    ("tests/rlmm/test_remote_log_metadata_manager.py", "tests/rlm/topics/test_topic_end.py"),
)

EDITS: tuple[Edit, ...] = (
    *ENDS.edits(
        (
            "H6: a topic ends of which a later version recorded what is not understood",
            "self._refusal() or frozen or self._later_problem(topic_id)",
            "self._refusal() or frozen",
        ),
        (
            "H16: a topic ends while clocks disagree",
            " or self._time.why_not()",
            "",
        ),
    ),
    *EVIDENCE.edits(
        (
            "H7: a broker of another cluster is a witness",
            "        if answer.cluster_id != cluster_id:\n",
            "        if False:\n",
        ),
        (
            "H7: a broker that does not see the ledger topic is a witness",
            "        if code != NO_ERROR:\n",
            "        if code == UNKNOWN_TOPIC_ID:\n",
        ),
        (
            "H7: a topic that our own broker knows after all stays to be deleted",
            "    if len(answers) < needed and (not answers or UNKNOWN_TOPIC_ID in codes):\n",
            "    if len(answers) < needed:\n",
        ),
        ("H7: one broker is enough", "_ENOUGH_BROKERS = 2", "_ENOUGH_BROKERS = 1"),
        (
            "H7: one broker that does not know the topic is enough",
            "and all(answer.error_codes.get(topic_id)",
            "and any(answer.error_codes.get(topic_id)",
        ),
        (
            "H7: a topic that an answer leaves out is gone",
            "answer.error_codes.get(topic_id) == UNKNOWN_TOPIC_ID for",
            "answer.error_codes.get(topic_id, UNKNOWN_TOPIC_ID) == UNKNOWN_TOPIC_ID for",
        ),
        (
            "H7: a topic that we may not see is gone",
            "answer.error_codes.get(topic_id) == UNKNOWN_TOPIC_ID for",
            "answer.error_codes.get(topic_id) in (29, UNKNOWN_TOPIC_ID) for",
        ),
        (
            "H7: an interruption does not begin the grace again",
            "            unknown_since_ms={topic_id: before.get(topic_id, now_ms) for topic_id in "
            "unknown}\n",
            "            unknown_since_ms={**dict.fromkeys(unknown, now_ms), **before}\n",
        ),
        ("H7: one occasion is enough", "if now_ms - since_ms >= grace_ms", "if grace_ms"),
        (
            "H7: any number of topics ends at once",
            "    if topics > limits.max_topics:\n",
            "    if topics > 9:\n",
        ),
        (
            "H7: any share of the bytes ends at once",
            "    if size_bytes * 100 > all_bytes * limits.max_share_percent:\n",
            "    if size_bytes > all_bytes:\n",
        ),
        (
            "the delay is not waited for",
            "    if age_ms < delay_ms:\n",
            "    if age_ms < 0:\n",
        ),
        (
            "G4: a topic is forgotten while partitions are being deleted",
            "    if all(state is _FINISHED for state in states):\n",
            "    if any(state is _FINISHED for state in states):\n",
        ),
    ),
    *ENDS.edits(
        (
            "H7: doubtful answers count",
            "        if not self._doubt:\n            unknown = unknown_everywhere",
            "        if answers:\n            unknown = unknown_everywhere",
        ),
        (
            "H7: a cluster record of another cluster is believed",
            "        if cluster is None or cluster.cluster_id != self._config.cluster_id:\n",
            "        if cluster is None:\n",
        ),
        (
            "H7: what waits for an operator goes when the others have gone",
            "            if record.topic_id not in self._held:\n",
            "            if self._why_operator([record.topic_id]) is None:\n",
        ),
        (
            "H7: what was decided is not counted with what seems to be deleted now",
            "self._why_operator([*unknown, *ending])",
            "self._why_operator(unknown)",
        ),
        (
            "H7: an operator's word is enough",
            "        if unknown_ms is None or unknown_ms < self._config.grace_ms:\n",
            "        if unknown_ms is None:\n",
        ),
        (
            "H7: the brokers are not asked again before a step",
            "        if is_gone_end(record):\n            await self.check_gone(record.topic_id)\n",
            "",
        ),
        (
            "H17: a stale view of the decision counts",
            "        await self._settings.barrier(self._config.barrier_deadline_ms)\n"
            "        now = self._settings.view.topic(record.topic_id)\n"
            "        if now != record:\n"
            '            raise Fenced(f"the settings of topic {record.name} changed meanwhile")\n'
            "        if is_gone_end(record):\n",
            "        if is_gone_end(record):\n",
        ),
        (
            "a freeze does not stop the end of a topic",
            "self._refusal() or frozen or self._later_problem(topic_id)",
            "self._refusal() or (frozen and None)",
        ),
        (
            "H13: a service with a rival deletes",
            "self._ledger.problem or self._settings.problem or self._rival()",
            "self._ledger.problem or self._settings.problem",
        ),
        (
            "H6: a ledger that lost records is no reason to stop",
            "self._ledger.problem or self._settings.problem or self._rival()",
            "self._rival()",
        ),
        (
            "H7: a topic that is there again stays marked",
            "            await self._withdraw(record, keys, error)\n",
            "            return\n",
        ),
        (
            "G4: the remote log start of a disabled topic is not raised first",
            "        await self._raise_starts(record, permit)\n",
            "",
        ),
        (
            "H2: a start is raised while the deletion can be revoked",
            "        for partition in partitions:\n"
            "            await self._partition_end.begin(partition, permit)\n"
            "        await self._raise_starts(record, permit)\n",
            "        await self._raise_starts(record, permit)\n"
            "        for partition in partitions:\n"
            "            await self._partition_end.begin(partition, permit)\n",
        ),
        (
            "H2: a start is raised though the deletion was revoked",
            "self._local_starts.raise_starts(record, permit.check)",
            "self._local_starts.raise_starts(record, lambda: self._settings.barrier(0))",
        ),
        (
            "H14: what a topic had before is forgotten before it is given back",
            "            await self._check_given_back(record)\n",
            "",
        ),
        (
            "a disabled topic that is gone by name alone ends",
            "            except NotFound:\n"
            "                await self.check_gone(record.topic_id)\n",
            "            except NotFound:\n                return\n",
        ),
        (
            "a disabled topic whose name another one has is enabled again",
            "            if not is_gone_end(record):\n                raise\n",
            "",
        ),
        (
            "the record of a deletion that was revoked stays",
            "        await self._leftovers.remove_records(self._is_chosen)\n",
            "",
        ),
        (
            "topics that are kept end by themselves",
            'return [one for one in self._in_state("enabled") if one.topic_id in proven]',
            "return [one for one in self._settings.view.topics() if one.topic_id in proven]",
        ),
        (
            "every live service acts",
            "chosen_node(stores_of, self._stores(topic_id)) == self._config.node_id",
            "chosen_node(stores_of, self._stores(topic_id)) is not None",
        ),
    ),
    *LEFT_ENDS.edits(
        (
            "H7: leftovers go without the grace and the delay",
            "if self.unknown_for_ms.get(topic_id, -1) < due_ms or",
            "if self.unknown_for_ms.get(topic_id, -1) < 0 or",
        ),
        (
            "H7: leftovers go whatever the brokers know of their topic",
            "if self.unknown_for_ms.get(topic_id, -1) < due_ms or",
            "if",
        ),
        (
            "H7: the brokers are not asked again before leftovers go",
            '            raise Fenced(f"topic {topic_id} has a settings record again")\n'
            "        await self.check_gone(topic_id)\n",
            '            raise Fenced(f"topic {topic_id} has a settings record again")\n',
        ),
        (
            "H10: what arrives after the end of a topic stays",
            "        await self._remove_leftovers()\n",
            "",
        ),
    ),
    *LEFTOVERS.edits(
        (
            "H10: a deletion that arrives late stops an enabled topic for good",
            '_REVOKED_IN = ("enabled", "kept")',
            '_REVOKED_IN = ("kept",)',
        ),
        (
            "H7: a segment that can be read is a leftover",
            "            await self._refuse_copies(key)\n",
            "",
        ),
        (
            "H7: a segment that can be read without its manifest is a leftover",
            "if metadata.state is _COPIED and await self._evidence.is_readable(metadata):",
            "if metadata.state is None:",
        ),
        (
            "H10: a partition whose deletion was over keeps what came after it",
            "        if self._ledger.ledger(key).is_deleted:\n"
            "            await self._partition_end.unmark(key)\n",
            "",
        ),
    ),
    *PARTITION.edits(
        (
            "H7: STARTED is written without asking",
            "            await permit.check()\n"
            "            await self._publish(partition, _STARTED, permit)\n",
            "            await self._publish(partition, _STARTED, permit)\n",
        ),
        (
            "G4: a partition is FINISHED while a store keeps its segments",
            "        for error in (result.stopped, *result.store_errors):\n"
            "            if error is not None:\n"
            "                raise error\n",
            "        for entry in found if result.store_errors else []:\n"
            "            await self._ledger.tombstone(entry.segment_id, epoch)\n",
        ),
        (
            "G4: FINISHED is written while segments are left",
            "if view.deletion_state is _STARTED and not view.entries and not view.disputes:",
            "if view.deletion_state is _STARTED:",
        ),
        (
            "H2: settings records of an ended topic stay",
            "            await self._settings.tombstone(name, view.newest_epoch(name), seen)\n",
            "            break\n",
        ),
        (
            "H2: the end of a topic removes what was written when it was enabled again",
            "view.newest_epoch(name), seen)",
            "view.newest_epoch(name), view.next_offset)",
        ),
        (
            "H3: the leader epoch of an ended topic is 0",
            "        return max(0, self._ledger.ledger(key).newest_epoch)\n",
            "        return 0\n",
        ),
    ),
    *MANAGER.edits(
        (
            "H3: a partition-delete record of an older epoch is written",
            "        self._refuse_older_epoch(key, str(key), leader_epoch)\n"
            "        before = view.deletion_state\n",
            "        before = view.deletion_state\n",
        ),
        (
            "a partition that is being deleted gets another segment",
            "        if is_new and state is not None and state.deletion is not None:\n",
            "        if False:\n",
        ),
        (
            "H3: a tombstone that was overtaken counts",
            "        if newest is not None and newest.offset > offset:\n",
            "        if newest is not None and newest.offset > offset + 9:\n",
        ),
    ),
    *PURGE.edits(
        (
            "H39: a name ends every topic that had it",
            "            if len(found) > 1:\n",
            "            if len(found) > 9:\n",
        ),
        (
            "H7: undo disables an enabled topic that a broker knows",
            "                    await self._ends.check_gone(record.topic_id)\n",
            "                    pass\n",
        ),
    ),
    *ASKING.edits(
        (
            "H7: the other brokers are not asked",
            "        return (own, *(answer for answer in answers if answer is not None))\n",
            "        return (own,)\n",
        ),
        (
            "H7: the ledger topic is not asked for in the same request",
            "*(_ask(one, broker, [*unknown, ledger_topic_id])",
            "*(_ask(one, broker, unknown)",
        ),
    ),
)
