"""Planted bugs in reading and publishing details: what is known of a record, and since when."""

from tests.mutants.edits import Edit, Target

MANAGER = Target("rlmm/manager.py", ("tests/rlmm/test_manager.py",))
PUBLISHER = Target("rlmm/publisher.py", ("tests/rlmm/test_publisher.py",))
COALESCED = Target(
    "rlmm/coalesced.py",
    ("tests/rlmm/test_coalesced.py", "tests/rlmm/test_coalesced_properties.py"),
)
BARRIER = Target("rlmm/end_offsets.py", ("tests/rlmm/test_barrier.py",))
TAIL = Target("rlmm/tail.py", ("tests/rlmm/test_tail_reads.py", "tests/rlmm/test_tail.py"))
WAITING = Target("rlmm/waiting.py", ("tests/rlmm/test_tail_reads.py", "tests/rlmm/test_tail.py"))
DIVERGENCE = Target(
    "rlmm/leader_answers.py", ("tests/rlmm/test_divergence.py", "tests/rlmm/test_tail.py")
)
QUESTIONS = Target("rlmm/clients.py", ("tests/rlmm/test_epoch_questions.py",))
TOPIC = Target("rlmm/topic.py", ("tests/rlmm/test_barrier.py",))
LOG = Target("rlmm/metadata_log.py", ("tests/rlmm/test_metadata_log.py",))
NEW_EPOCHS = Target("rlmm/metadata_log.py", ("tests/rlmm/test_h42_new_epochs.py",))
AUX_STATE = Target("rlm/remote_log/aux_state.py", ("tests/rlm/api/test_aux_state.py",))

EDITS: tuple[Edit, ...] = (
    *NEW_EPOCHS.edits(
        (
            "a barrier is refused where another epoch began meanwhile",
            "        if self._tail.doubt([topic_partition]):  # another epoch began meanwhile\n",
            "        if False:\n",
        ),
    ),
    *LOG.edits(
        (
            "a question outlives the barrier that has failed, and its client",
            "            async with asyncio.TaskGroup() as both:"
            "  # neither outlives this call, nor its client\n"
            "                end = both.create_task(asked)\n"
            "                confirmed = both.create_task(self._tail.verify([topic_partition]))\n",
            "            end = asyncio.ensure_future(asked)\n"
            "            confirmed = asyncio.ensure_future(self._tail.verify([topic_partition]))\n"
            "            await asyncio.gather(end, confirmed)\n",
        ),
        (
            "H42: a barrier passes where the question for what was read broke off",
            "        if end.cancelled() or confirmed.cancelled():",
            "        if False:",
        ),
    ),
    *QUESTIONS.edits(
        (
            "H42: a deposed leader confirms an epoch that is over",
            "    return question.current_leader_epoch if is_newer else _ANY_EPOCH\n",
            "    return _ANY_EPOCH\n",
        ),
        (
            "a leader that is newer than what was read is not asked again",
            "        if error_code == FENCED_LEADER_EPOCH\n",
            "        if error_code == -2\n",
        ),
    ),
    *AUX_STATE.edits(
        (
            "H4: a replica begins where the history has left a segment",
            "if found.next_offset < found.metadata.next_offset:",
            "if found.next_offset < found.metadata.start_offset:",
        ),
        (
            "H4: a replica begins with epochs of another history",
            "if stored.epoch_for_offset(last) != state.history.lineage.epoch_for_offset(last):",
            "if stored.epoch_for_offset(last) is None:",
        ),
        (
            "H2: a replica begins below the remote log start",
            "if offset >= state.log_start_offset else None",
            "if offset >= 0 else None",
        ),
    ),
    *MANAGER.edits(
        (
            "H3: a publish counts although it was overtaken or is illegal",
            "        self._refuse_overtaken(key, metadata is None, offset)\n",
            "        assert offset >= 0\n",
        ),
        (
            "H3: a publish counts although a reader objects to it",
            "if dispute is not None and dispute.newest.offset == offset:",
            "if dispute is not None and dispute.newest.offset == -1:",
        ),
        (
            "H3: a publish counts although another record is newer",
            "if newest != (None if is_tombstone else offset):",
            "if newest is None and not is_tombstone:",
        ),
        (
            "H3: a tombstone counts although a record came after it",
            "if newest != (None if is_tombstone else offset):",
            "if not is_tombstone and newest != offset:",
        ),
        (
            "H3: something is written under an epoch that is known to be over",
            "if state is not None and leader_epoch < state.newest_epoch:",
            "if state is not None and leader_epoch < -1:",
        ),
        (
            "H3: the present epoch counts as over",
            "if state is not None and leader_epoch < state.newest_epoch:",
            "if state is not None and leader_epoch <= state.newest_epoch:",
        ),
        (
            "H3: something is written on a state that is known to be over",
            "        if newest != expected_previous:\n",
            "        if newest < expected_previous:\n",
        ),
        (
            "an unlawful change is published",
            "if not is_adoption and not is_lawful_change(before, metadata.state):",
            "if before and not is_adoption and not is_lawful_change(before, metadata.state):",
        ),
        (
            "H3: what was mended meanwhile is mended once more, over what stands there",
            "            if self._still_needed(repair):\n",
            "            if repair:\n",
        ),
        (
            "H17: the barrier is of another ledger partition",
            "TopicPartition(LEDGER_TOPIC, ledger_partition(key)), deadline_ms)",
            "TopicPartition(LEDGER_TOPIC, key.partition), deadline_ms)",
        ),
        (
            "H6: a record that cannot be read is passed over in silence",
            "            self._unreadable[raw_key] = "
            'f"{record.topic_partition} offset {record.offset}: {error}"\n',
            "            self._unreadable.setdefault(raw_key, '')\n",
        ),
        (
            "a problem stays when its key was mended",
            "        self._unreadable.pop(raw_key, None)\n",
            "",
        ),
        (
            "H3: a replay of any length proves absence",
            "self._is_whole = 0 <= replay_ms < _ABSENCE_KNOWN_WITHIN_MS",
            "self._is_whole = True",
        ),
        (
            "H16: a clock that was set back makes a long replay a short one",
            "self._is_whole = 0 <= replay_ms < _ABSENCE_KNOWN_WITHIN_MS",
            "self._is_whole = replay_ms < _ABSENCE_KNOWN_WITHIN_MS",
        ),
        (
            "H6: a ledger that was not read yet has no problem",
            "        if not self.is_ready:\n            return",
            "        if self.is_ready is None:\n            return",
        ),
        (
            "H6: a problem of the topic is none of the ledger",
            "return self.damage or self._log.problem",
            "return self.damage",
        ),
        (
            "a view is never recreated",
            "if view is None or view.version != state.version:",
            "if view is None:",
        ),
    ),
    *PUBLISHER.edits(
        (
            "H10: a producer that was dropped meanwhile is given a record that it never sends",
            "                if producer is not self._producer:",
            "                if False:",
        ),
        (
            "H10: a dropped producer goes on sending until it is closed",
            "            cut_producer(producer)  # before anybody passes a barrier (H10)\n",
            "",
        ),
        (
            "H10: a publish returns before it was read back",
            "                await read_back(record.topic_partition, offset + 1)\n",
            "",
        ),
        (
            "H10: a publish returns when what is before it was read",
            "await read_back(record.topic_partition, offset + 1)",
            "await read_back(record.topic_partition, offset)",
        ),
        (
            "H10: no ack in time counts as not written",
            "            raise OutcomeUnknown(what) from error\n",
            "            raise Unavailable(what) from error\n",
        ),
        (
            "H10: an error instead of an ack counts as not written",
            'raise OutcomeUnknown(\n                f"publish to {topic_partition}:',
            'raise Unavailable(\n                f"publish to {topic_partition}:',
        ),
        (
            "H10: what was never sent counts as unknown",
            "            if attempt.producer is None:\n",
            "            if attempt.producer is None and record.value == b'':\n",
        ),
        (
            "H10: a producer is kept with what it has not sent",
            "if attempt.producer is not None and not attempt.is_written:",
            "if attempt.producer is not None and attempt.is_written is None:",
        ),
        (
            "a producer is dropped though its record was acknowledged",
            "                attempt.is_written = True\n",
            "",
        ),
        (
            "H6: records go to a topic that was never looked at",
            "                await self._verify_once(record.topic_partition.topic, producer)\n",
            "",
        ),
        (
            "H6: a change of metadata does not make anybody snapshot again",
            "if layout == verified_layout and 0 <= self._now_ms()",
            "if verified_layout and 0 <= self._now_ms()",
        ),
        (
            "H6: a topic is never looked at again",
            " and 0 <= self._now_ms() - verified_ms < _VERIFIED_FOR_MS:",
            ":",
        ),
        (
            "H16: a clock set back keeps a topic verified",
            "0 <= self._now_ms() - verified_ms < _VERIFIED_FOR_MS",
            "self._now_ms() - verified_ms < _VERIFIED_FOR_MS",
        ),
        (
            "H6: a topic counts as verified before it was",
            "            await self._verify(topic)\n"
            "            self._verified[topic] = self._now_ms(), layout\n",
            "            self._verified[topic] = self._now_ms(), layout\n"
            "            await self._verify(topic)\n",
        ),
        (
            "a dropped producer is used again",
            "        if producer is self._producer:\n            self._producer = None\n",
            "        if producer is self._producer:\n",
        ),
    ),
    *COALESCED.edits(
        (
            "H17: a question is answered by a request that was sent before it",
            "        if batch.was_sent or len(batch.questions) >= MOST_AT_ONCE:\n",
            "        if batch.is_done or len(batch.questions) >= MOST_AT_ONCE:\n",
        ),
        (
            "H17: after an error no further request is sent",
            "        if batch.was_sent or len(batch.questions) >= MOST_AT_ONCE:\n",
            "        if batch.answers is not None or len(batch.questions) >= MOST_AT_ONCE:\n",
        ),
        (
            "two requests of one group are in flight",
            "            async with group.in_flight:\n",
            "            async with asyncio.Lock():\n",
        ),
        (
            "a cancelled sender leaves its callers waiting",
            "        self.has_sender = False\n        self.changed.set()\n",
            "        self.changed.set()\n",
        ),
        (
            "an error reaches the sender only",
            "            batch.error, batch.origin = error, error.__traceback__\n",
            "            raise error\n",
        ),
        (
            "groups are never forgotten",
            "                del self._groups[key]\n",
            "                pass\n",
        ),
    ),
    *BARRIER.edits(
        (
            "H17: callers that came before the metadata log began are never served",
            "            self._early.append(question)\n",
            "            pass\n",
        ),
        (
            "H17: callers wait for an answer after the metadata log has ended",
            "            self._abandon()\n",
            "            self._early.clear()\n",
        ),
        (
            "H17: after a restart a question goes to the tasks that ended",
            "                finally:\n                    self._tasks = None\n",
            "                finally:\n                    assert self._tasks\n",
        ),
    ),
    *TAIL.edits(
        (
            "H42: a deposed leader confirms what an earlier process had read",
            "        return None if is_early else read\n",
            "        return read\n",
        ),
        (
            "H6: records removed before they were read are no loss",
            "            if begin > position:\n",
            "            if begin > position + 1_000_000:\n",
        ),
        (
            "H6: after an OFFSET_OUT_OF_RANGE the bounds are not looked at",
            "        if self._initial_end and not self._out_of_range:\n",
            "        if self._initial_end:\n",
        ),
        (
            "H42: a new connection is no reason to verify",
            "            await reader.start()\n            self._unverified.set()\n",
            "            await reader.start()\n",
        ),
        (
            "H42: another epoch is no reason to verify",
            "        if self._read_positions.has_unproven(topic_partition):\n"
            "            self._unverified.set()\n",
            "",
        ),
        (
            "H42: what is lost is followed further",
            "            if topic_partition not in self._read_positions.lost\n",
            "",
        ),
        (
            "H42: a loss is reported to nobody",
            "            self._lost.set()\n",
            "            pass\n",
        ),
        (
            "a record is delivered again after a restart",
            "            self._next[topic_partition] = record.offset + 1\n",
            "            self._next[topic_partition] = record.offset\n",
        ),
        (
            "H17: the initial replay counts as over too early",
            "self._next.get(topic_partition, 0) >= end\n",
            "self._next.get(topic_partition, 0) >= end - 1\n",
        ),
        (
            "the end of a compacted log is never reached",
            "            position = await reader.position(topic_partition)\n",
            "            position = self._next[topic_partition]\n",
        ),
    ),
    *WAITING.edits(
        (
            "H17: who waits for the last offset is woken before it came",
            "            if end <= position:\n",
            "            if end <= position + 1:\n",
        ),
    ),
    *DIVERGENCE.edits(
        (
            "H42: a replay goes on with another leader, and nobody asks for what was read before",
            "        if before is not None and before.leader_epoch != read.leader_epoch:\n",
            "        if before and before.leader_epoch != read.leader_epoch and not is_replay:\n",
        ),
        (
            "H42: an epoch of a replay of which the leader has no record left is a loss",
            "replace(before, replayed=is_replay)",
            "replace(before, replayed=False)",
        ),
        (
            "H42: a question does not name the newest epoch",
            "EpochQuestion(read.leader_epoch, self.newest_epoch(partition))",
            "EpochQuestion(read.leader_epoch, read.leader_epoch)",
        ),
        (
            "H42: what nobody has confirmed is forgotten when the process ends",
            "        found = {**read, **unproven}\n",
            "        found = {**unproven, **read}\n",
        ),
        (
            "H42: an epoch that ends below what was read is no loss",
            "    if answer.end_offset < read.position:\n",
            "    if answer.end_offset < 0:\n",
        ),
        (
            "H42: an epoch that ends where the reader is counts as lost",
            "    if answer.end_offset < read.position:\n",
            "    if answer.end_offset <= read.position:\n",
        ),
        (
            "H42: an epoch that is not there any more is no loss",
            "    if answer.leader_epoch < read.leader_epoch and not is_far_behind:\n",
            "    if answer.leader_epoch < read.leader_epoch and is_far_behind:\n",
        ),
        (
            "H42: an epoch that compaction took from an earlier process's reads is a loss",
            "    if answer.leader_epoch < read.leader_epoch and not is_far_behind:\n",
            "    if answer.leader_epoch < read.leader_epoch:\n",
        ),
        (
            "H42: no answer confirms what was read",
            "        if answer is None or NO_EPOCH in answer:\n",
            "        if answer is not None and NO_EPOCH in answer:\n",
        ),
        (
            "H42: an undefined answer is a loss",
            "        if answer is None or NO_EPOCH in answer:\n",
            "        if answer is None:\n",
        ),
        (
            "H42: a doubt stays when a leader has answered",
            "        self._doubts.pop(partition, None)\n",
            "",
        ),
        (
            "H42: the end of an epoch that is over need not be confirmed",
            "            self._unproven.setdefault(partition, []).append(unproven)\n",
            "            pass\n",
        ),
        (
            "H42: an epoch that is over and not confirmed raises no doubt",
            "            for read in self._unproven.get(partition, ()):\n",
            "            for read in ():\n",
        ),
        (
            "H42: the epoch of a batch is that of the one behind it",
            "while len(began) > 1 and began[1][0] < position:",
            "while len(began) > 1 and began[1][0] <= position:",
        ),
    ),
    *TOPIC.edits(
        (
            "H6: a topic recreated is taken for ours",
            "        if self.topic_id not in (None, topic_id):\n",
            "        if self.topic_id is None:\n",
        ),
        (
            "H6: the id of a topic that is not fit is remembered",
            "if self.topic_id is None and faults is None:",
            "if self.topic_id is None:",
        ),
        (
            "H6: a missing topic is not lost",
            'self._say("is missing", lost=True)',
            'self._say("is missing", lost=False)',
        ),
        (
            "H6: a ledger with another number of partitions is fit",
            "        if partition_count != self.partition_count:\n",
            "        if partition_count > self.partition_count:\n",
        ),
        (
            "H6: a topic that may lose its tail is fit",
            'for name in ("cleanup.policy", "unclean.leader.election.enable", '
            '"message.timestamp.type"):',
            'for name in ("cleanup.policy", "message.timestamp.type"):',
        ),
        (
            "H6: a topic with too few in-sync replicas is fit",
            "if not insync.isdigit() or int(insync) < self.min_insync_replicas:",
            "if not insync.isdigit():",
        ),
    ),
)
