"""Planted bugs in what one process leaves of the ledger to the next one."""

from tests.mutants.edits import Edit, Target

READS = Target("rlmm/tail.py", ("tests/rlmm/test_tail_reads.py", "tests/rlmm/test_metadata_log.py"))
RESUMING = Target(
    "rlmm/resuming.py",
    ("tests/rlmm/test_resuming.py", "tests/rlmm/test_rewritten_ledger_end.py"),
)
TAIL = Target("rlmm/tail.py", ("tests/rlmm/test_resuming.py",))
REWRITTEN = Target("rlmm/tail.py", ("tests/rlmm/test_rewritten_ledger_end.py",))
NEVER_READY = Target("rlmm/tail.py", ("tests/rlmm/test_never_ready.py",))
POINTS = Target("rlmm/resuming.py", ("tests/rlmm/test_never_ready.py",))
QUESTIONS = Target("rlmm/leader_answers.py", ("tests/rlmm/test_ledger_chain.py",))
ANSWERS = Target(
    "rlmm/leader_answers.py", ("tests/rlmm/test_divergence.py", "tests/rlmm/test_never_ready.py")
)
CHAIN = Target("rlmm/tail.py", ("tests/rlmm/test_ledger_chain.py",))
CODEC = Target("rlmm/snapshot.py", ("tests/rlmm/test_snapshot.py",))
REPLAY = Target("rlmm/replay.py", ("tests/rlmm/test_snapshot.py",))
STORE = Target("rlmm/segment_store.py", ("tests/rlmm/test_snapshot.py",))
MANAGER = Target(
    "rlmm/manager.py",
    ("tests/rlm/service/test_ledger_snapshot.py", "tests/rlmm/test_resuming.py"),
)
LOG = Target("rlmm/metadata_log.py", ("tests/rlmm/test_metadata_log.py",))
FILE = Target("rlm/service/ledger_snapshot_file.py", ("tests/rlm/test_ledger_snapshot_file.py",))
SERVICE = Target("rlm/service/ledger_snapshot.py", ("tests/rlm/service/test_ledger_snapshot.py",))

EDITS: tuple[Edit, ...] = (
    *RESUMING.edits(
        (
            "H3: a tombstone that compaction took away is not missed",
            "        if partition not in self._trusted or not has_gap(position, offsets):\n",
            "        if partition not in self._trusted or position >= 0:\n",
        ),
        (
            "H3: a gap of one record is none",
            "    if not offsets or offsets[-1] + 1 - expected == len(offsets):\n",
            "    if not offsets or offsets[-1] - expected <= len(offsets):\n",
        ),
        (
            "H42: a snapshot of what the ledger has lost is taken",
            "        if answer.end_offset < self.position:\n",
            "        if answer.end_offset < 0:\n",
        ),
        (
            "H42: another epoch's records count as those that were read",
            "        if answer.leader_epoch != self.leader_epoch:\n",
            "        if answer.leader_epoch > self.leader_epoch:\n",
        ),
        (
            "H42: the last record that was read may be any other one",
            "        if last is None or first == last:\n",
            "        if last is None or first is not None:\n",
        ),
        (
            "H42: another record in place of the last one is no loss",
            "        is_lost = first is not None and first.offset == last.offset\n",
            "        is_lost = False\n",
        ),
        (
            "H42: a last record that was compacted away is a loss",
            "        is_lost = first is not None and first.offset == last.offset\n",
            "        is_lost = True\n",
        ),
        (
            "H42: an empty value is as a tombstone to the mark of a record",
            "_LENGTH.pack(-1 if part is None else len(part))",
            "_LENGTH.pack(len(part or b''))",
        ),
        (
            "H6: a log whose beginning is gone is read on",
            "        if log_start != self.log_start:\n",
            "        if log_start < self.log_start:\n",
        ),
        (
            "H42: no answer of a leader is as good as one",
            "        if answer is None:\n"
            '            return f"no leader confirms epoch {self.leader_epoch} up to '
            '{self.position}"\n',
            "        if answer is None:\n            return None\n",
        ),
    ),
    *TAIL.edits(
        (
            "H3: a gap behind the last record is not seen",
            "        if is_ahead and self._is_refuted(topic_partition, [position]):\n",
            "        if topic_partition in self._refuted:\n",
        ),
        (
            "H3: who missed records leaves what it made of the others",
            "            self._gapped.add(topic_partition)\n",
            "            pass\n",
        ),
        (
            "H3: what is read again begins where the snapshot ended",
            "            self._next |= {one: self._begin[one] for one in self._refuted}\n",
            "            self._next |= {one: self._initial_end[one] for one in self._refuted}\n",
        ),
        (
            "H42: what was lost is left to the next process",
            "        if not is_whole or topic_partition in self.lost or read is None:\n",
            "        if not is_whole or read is None:\n",
        ),
    ),
    *READS.edits(
        (
            "H3: the time of a replay that broke off counts",
            "        if not self._initial_end:\n"
            "            self._replay_began_ms = self._now_ms()\n",
            "        self._replay_began_ms = self._replay_began_ms or self._now_ms()\n",
        ),
        (
            "H3: what a replay that broke off has read is not forgotten",
            "        self._start_over(topic_partition)\n",
            "",
        ),
    ),
    *REWRITTEN.edits(
        (
            "H42: what was read on from is never asked for again",
            "            self._read_positions.advance(topic_partition, read, is_replay=True)\n",
            "            _ = read\n",
        ),
        (
            "H42: a replay is over before the last record that was read is seen again",
            "        return end is not None and is_seen and self._next",
            "        return end is not None and self._next",
        ),
        (
            "H3: a last record behind which the log ends is never missed",
            "                self._is_another(topic_partition, None)\n",
            "                pass\n",
        ),
        (
            "H3: what was read before is delivered again",
            "        new = records[len(known) :]\n",
            "        new = records\n",
        ),
        (
            "H42: a later process begins where nobody knows which records were lost before",
            "        if self._read_positions.has_unproven(topic_partition):\n"
            "            return None\n",
            "",
        ),
        (
            "H42: a refused point is forgotten",
            "            self.remember(topic_partition, what.point)\n",
            "",
        ),
        (
            "H42: a partition that is read again is no longer asked for what was read on from",
            "        self._read_positions.start_over(topic_partition)\n",
            "        self._read_positions._newest.pop(topic_partition, None)\n",
        ),
        (
            "H42: a replay goes on over another connection",
            "            self._begin_again()\n",
            "            pass\n",
        ),
    ),
    *NEVER_READY.edits(
        (
            "H42: an end that is lost during the replay is waited for",
            "            if end < needed:\n",
            "            if end < 0:\n",
        ),
        (
            "H42: a replay waits for a partition that is lost",
            " or (self.lost and not is_caught_up):\n",
            ":\n",
        ),
        (
            "H42: a partition that is lost is read on from its point",
            "            self._resuming.give_up(topic_partition, why)\n",
            "            pass\n",
        ),
    ),
    *POINTS.edits(
        (
            "H42: a point that was confirmed is never asked for again",
            "        again, self._unseen = self._unseen, set()\n",
            "        again: set[TopicPartition] = set()\n",
        ),
    ),
    *ANSWERS.edits(
        (
            "H42: a deposed leader confirms what an earlier process had read beyond the end",
            " or (why is None and read_to < read.position):\n",
            ":\n",
        ),
    ),
    *QUESTIONS.edits(
        (
            "H42: a chain of lives believes a deposed leader of an epoch that is over",
            "EpochQuestion(read.leader_epoch, self.newest_epoch(partition))",
            "EpochQuestion(read.leader_epoch, NO_EPOCH)",
        ),
    ),
    *CHAIN.edits(
        (
            "H42: a chain of lives forgets a refused point",
            "            self.remember(topic_partition, what.point)\n",
            "            pass\n",
        ),
        (
            "H42: a chain of lives has states of two leaders",
            "            self._begin_again()\n",
            "            _ = self._begin_again\n",
        ),
    ),
    *CODEC.edits(
        (
            "H3: a dispute has no lawful record any more",
            '        lawful = known.lawful.packed if known.lawful else b""\n',
            '        lawful = b""\n',
        ),
    ),
    *REPLAY.edits(
        (
            "H3: disputes are not found again",
            "            _disputes=None if any(known.why for known in frozen.unusual) "
            "else NO_DISPUTES,\n",
            "            _disputes=NO_DISPUTES,\n",
        ),
        (
            "H3: remembered tombstones are never forgotten",
            "            if known := partition.unusual(segment):\n",
            "            if (known := partition.unusual(segment)) and known.why:\n",
        ),
        (
            "what a later version wrote is never read by it",
            "        if any(partition.later for partition in self.partitions.values()):\n"
            "            return None\n",
            "",
        ),
        (
            "H3: what was compacted before the snapshot is taken for seen",
            "        state._contiguous_since = frozen.contiguous_since\n",
            "",
        ),
        (
            "H3: an absent key counts as one that never was",
            "        state._absence_is_known = frozen.absence_is_known\n",
            "",
        ),
    ),
    *STORE.edits(
        (
            "what is changed after a restart changes the view before it",
            "        store._chunks = list(segments.chunks)\n",
            "        store._chunks = [Chunk(one.items, store._maker) for one in segments.chunks]\n",
        ),
    ),
    *MANAGER.edits(
        (
            "H3: the end of a replay makes a restored absence certain",
            "            if partition not in self._restored:\n",
            "            if partition not in ():\n",
        ),
        (
            "H3: a slow replay is left to the next process",
            "        if not self._is_whole or any(one == partition",
            "        if any(one == partition",
        ),
        (
            "what could not be read is left out by the next process too",
            "        if not self._is_whole or any(one == partition for one, _ in "
            "self._unreadable):\n",
            "        if not self._is_whole:\n",
        ),
        (
            "a partition that is read again keeps what was restored",
            "        self._states[partition] = LedgerState(first_version)\n",
            "        pass\n",
        ),
        (
            "H3: caches keep what they made of a partition before it was read again",
            "        self._states[partition] = LedgerState(first_version)\n",
            "        self._states[partition] = LedgerState()\n",
        ),
    ),
    *LOG.edits(
        (
            "H3: a run that is begun again goes back to the snapshot",
            "        earlier, self._earlier = self._earlier, None\n",
            "        earlier = self._earlier\n",
        ),
        (
            "the snapshot is asked before it is known which ledger is there",
            "            await self._ensure_topics()\n            await self._resume()\n",
            "            await self._resume()\n            await self._ensure_topics()\n",
        ),
    ),
    *FILE.edits(
        (
            "G9: a section that does not have its checksum is read",
            'if len(data) != section["size_bytes"] or crc32c(data) != section["crc32c"]:',
            'if len(data) != section["size_bytes"]:',
        ),
        (
            "G9: a directory that does not have its checksum is read",
            "    if crc32c(data) != crc:\n",
            "    if len(data) != size_bytes:\n",
        ),
        (
            "G9: bytes that no section has are read over",
            '    if sum(section["size_bytes"] for section in sections) != size_bytes:\n',
            '    if sum(section["size_bytes"] for section in sections) > size_bytes:\n',
        ),
        (
            "H6: a snapshot of another cluster or ledger is taken",
            "            if directory.get(name) != value:\n",
            "            if name not in directory:\n",
        ),
    ),
    *SERVICE.edits(
        (
            "H6: a refused service replaces the snapshot of a later version",
            "        if not (self._may_write and metadata_log.is_ready):\n",
            "        if not metadata_log.is_ready:\n",
        ),
        (
            "H42: a damaged ledger is left to the next process",
            "        if topic_id is None or metadata_log.damage is not None:\n",
            "        if topic_id is None:\n",
        ),
        (
            "no partition is ever read whole again",
            "        return [one for one in found if one.partition != number]\n",
            "        return found\n",
        ),
        (
            "H42: what was known of the partition that is read whole is forgotten",
            "                self._metadata.log.remember_read(one.partition, one.point)\n",
            "                pass\n",
        ),
        (
            "what was not read yet replaces the snapshot at a stop",
            "        if not (self._may_write and metadata_log.is_ready):\n",
            "        if not self._may_write:\n",
        ),
        (
            "writing never rests",
            "            self._next_ms = began_ms + took_ms * _REST_OF_DURATION\n",
            "            _ = took_ms\n",
        ),
    ),
)
