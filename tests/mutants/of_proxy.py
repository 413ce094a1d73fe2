"""Planted bugs in what clients receive: positions, errors, and where their records come from."""

from tests.mutants.edits import Edit, Target

_HAZARDS = (
    "tests/rlm/proxy/test_splice.py",
    "tests/rlm/proxy/test_fetch_hazards.py",
    "tests/rlm/proxy/test_h20_waits.py",
)
FETCH_PLAN = Target("rlm/proxy/fetch_plan.py", _HAZARDS)
SPLICE = Target("rlm/proxy/splice.py", _HAZARDS)
TIER_VALUES = Target("rlm/remote_log/tier.py", _HAZARDS)
EPOCHS = Target(
    "rlm/proxy/fetch_plan.py",
    ("tests/rlm/proxy/test_h37_diverging_epochs.py", "tests/rlm/proxy/test_fetch_hazards.py"),
)
REPLACEMENTS = Target(
    "rlm/proxy/splice.py", (*_HAZARDS, "tests/rlm/proxy/test_h37_diverging_epochs.py")
)

PURGATORY = Target("rlm/proxy/purgatory.py", ("tests/rlm/proxy/test_purgatory.py",))
READS = Target("rlm/proxy/reads.py", ("tests/rlm/proxy/test_purgatory.py",))
_FURTHER = ("tests/rlm/proxy/test_further_reads.py",)
FURTHER = Target("rlm/proxy/further_reads.py", _FURTHER)
UNREAD = Target("rlm/proxy/fetch_answer.py", _FURTHER)
UNREAD_SIZES = Target("rlm/proxy/fetch_answer.py", ("tests/rlm/proxy/test_sizes.py",))
LET_GO = Target("rlm/proxy/fetch_answer.py", ("tests/rlm/proxy/test_held_answers.py",))
_UNHELD = ("tests/rlm/proxy/test_h20_unheld.py",)
UNHELD = Target("rlm/proxy/fetch.py", _UNHELD)
_GAPS = ("tests/rlm/proxy/test_h15_gaps.py", "tests/rlm/proxy/test_splice.py")
GAPS = Target("rlm/proxy/splice.py", _GAPS)
GAP_READS = Target("rlm/proxy/reads.py", _GAPS)
GAP_FETCHES = Target("rlm/proxy/fetch.py", _GAPS)
GAP_BARRIERS = Target("rlm/proxy/settling.py", _GAPS)
DOUBTS = Target("rlm/proxy/settling.py", ("tests/rlm/proxy/test_h37_diverging_epochs.py",))
HELD_OFFSETS = Target("rlm/proxy/fetch_plan.py", _UNHELD)

STRANGERS = ("tests/rlm/proxy/test_g8_strangers.py",)
FETCH_FOR_STRANGERS = Target("rlm/proxy/fetch.py", STRANGERS)
FIRST_FETCH = Target("rlm/proxy/fetch.py", ("tests/rlm/proxy/test_sizes.py",))
READABLE = Target("rlm/proxy/fetch_plan.py", STRANGERS)

EDITS: tuple[Edit, ...] = (
    *FETCH_FOR_STRANGERS.edits(
        (
            "G8: remote records are read for whom the broker has not answered",
            "            if not self._readable.has(partition):\n",
            "            if not self._readable:\n",
        ),
        (
            "a first fetch that does not wait gets no remote records",
            "            return True  # it has begun since",
            "            pass  # it has begun since",
        ),
    ),
    *FIRST_FETCH.edits(
        (
            "the first fetch divides its bytes as if remote partitions took all they may",
            "            self._answered = None  # it has shown",
            "            pass  # it has shown",
        ),
    ),
    *READABLE.edits(
        (
            "G8: records are read on after the right to read was taken away",
            "            self._topics.discard(topic)\n",
            "            pass\n",
        ),
        (
            "each fetch of remote records waits for the broker first",
            "            self._topics.add(topic)\n",
            "            pass\n",
        ),
    ),
    *PURGATORY.edits(
        (
            "a read that fails for now at once is answered as if it lasted",
            "if isinstance(first, Begun) or _fails_for_now(first):",
            "if isinstance(first, Begun):",
        ),
        (
            "a read that has begun is begun again",
            "        if first is None:\n            return await self._attempt()\n",
            "        if first is not None:\n            return await self._attempt()\n",
        ),
        (
            "a read that needs no task is not counted",
            "        self._purgatory.completed(self, 0)\n        return first\n",
            "        return first\n",
        ),
        (
            "a remote fetch that fails is repeated at once",
            "                if failures or not isinstance(found, ChangedMeanwhile):\n",
            "                if failures and isinstance(found, ChangedMeanwhile):\n",
        ),
        (
            "H2: deleted data is looked up again without any back-off",
            "if failures or not isinstance(found, ChangedMeanwhile):",
            "if not isinstance(found, ChangedMeanwhile):",
        ),
        (
            "a remote fetch is repeated beyond the deadline of its Fetch",
            "while (left_ms := self._left_ms()) > 0:",
            "while (left_ms := self._left_ms() + 10_000) > 0:",
        ),
        (
            "records wait for a partition that fails for now",
            "        self._changed.set()\n",
            "",
        ),
    ),
    *READS.edits(
        (
            "H2: the offset at the remote log start counts as ended",
            "now.remote_log_start_offset <= offset:",
            "now.remote_log_start_offset < offset:",
        ),
        (
            "H2: a consumer below the new remote start waits",
            "            return self._ended(partition, view) or outcome\n",
            "            return outcome\n",
        ),
    ),
    *FURTHER.edits(
        (
            "G6: a Fetch waits for reads beyond its plan as long as they take",
            "                if left_ms <= 0:\n                    return\n",
            "                if left_ms <= -60_000:\n                    return\n",
        ),
        (
            "reads beyond the plan go on one after the other",
            "            if begun and left_bytes <= wanted_bytes:\n",
            "            if begun:\n",
        ),
        (
            "more is read beyond the plan than an answer has room for",
            "            if begun and left_bytes <= wanted_bytes:\n                break\n",
            "",
        ),
        (
            "what a round has read takes no room from the next one",
            "            self._given_bytes += given_bytes if",
            "            self._given_bytes = 0 * given_bytes if",
        ),
        (
            "G6: a Fetch of many small partitions stops the event loop",
            "            await next_turn()\n",
            "",
        ),
        (
            "G6: a Fetch of many small partitions reads them for as long as there are any",
            "            if self._clock.monotonic_ms() >= end_ms or not self._has_more():\n",
            "            if not self._has_more():\n",
        ),
        (
            "G6: partitions behind others that hang never have their turn",
            "                self._turns.took(one.partition.key)\n",
            "",
        ),
    ),
    *UNREAD.edits(
        (
            "what is being read is not read for want of room that it does not take",
            "    room.take(given_bytes if room.is_empty else min(given_bytes, limit_bytes))",
            "    room.take(limit_bytes)",
        ),
    ),
    *LET_GO.edits(
        (
            "G10: a client that leaves keeps what did not fit, until garbage is collected",
            "            records = outcome = None\n",
            "            _ = outcome\n",
        ),
        (
            "G10: a client that leaves keeps what its answer had already",
            "                replacements.clear()  # see RemoteReads.cancel\n",
            "                _ = replacements\n",
        ),
    ),
    *UNREAD_SIZES.edits(
        (
            "local records take the room of old ones that the request names before them",
            "limit_bytes, replace(room)",
            "limit_bytes, room",
        ),
    ),
    *UNHELD.edits(
        (
            "H20: a broker that does not hold a request is asked without a pause",
            "                if rest_ms <= 0 or checked.is_unsettled:\n",
            "                if rest_ms <= _SLICE_MS:\n",
        ),
        (
            "H20: local records are not looked for as long as the old partition gives nothing",
            "min(wait_ms, _SLICE_MS)",
            "max(wait_ms, 60_000)",
        ),
    ),
    *HELD_OFFSETS.edits(
        (
            "H20: with an open transaction the broker is asked where it holds no request",
            "return min(ask_offset, stable) if stable >= 0 else ask_offset",
            "return ask_offset",
        ),
        (
            "H20: an old last stable offset has a broker read records for nothing",
            "known is None or partition.source is Source.ASSUMED:",
            "known is None:",
        ),
    ),
    *GAPS.edits(
        (
            "H15: a gap is passed in which records may come back",
            "        or offset < view.unsettled_next_offset\n",
            "",
        ),
        (
            "H15: records copied meanwhile are passed with the gap before them",
            "        view.remote_next_offset != read_from.remote_next_offset\n",
            "        view.remote_next_offset < read_from.remote_next_offset\n",
        ),
        (
            "H15: a gap of one leadership is passed in another, which may have other segments",
            "        or view.leader_epoch != read_from.leader_epoch  # whose",
            "        or view.leader_epoch < read_from.leader_epoch  # whose",
        ),
        (
            "H7: a gap of one topic is passed in another",
            "view is not None and view.topic_id == read_from.topic_id and view.led_here",
            "view is not None and view.led_here",
        ),
        (
            "H15: behind a gap a consumer meets the hole in the broker's log",
            "max(offset, watermarks.log_start_offset)",
            "view.remote_next_offset",
        ),
        (
            "G7: a consumer is led past records that the broker has",
            "max(offset, watermarks.log_start_offset)",
            "max(view.remote_next_offset, watermarks.log_start_offset)",
        ),
        (
            "G7: a consumer is led back",
            "max(offset, watermarks.log_start_offset)",
            "watermarks.log_start_offset",
        ),
    ),
    *GAP_READS.edits(
        (
            "G7: where a consumer may read no further it is led past records",
            "not found.size_bytes and upper == view.remote_next_offset:",
            "not found.size_bytes and upper <= view.remote_next_offset:",
        ),
    ),
    *GAP_FETCHES.edits(
        (
            "a consumer stands still at a gap while others get records",
            "                if not self._reads.has_gaps:\n                    return await",
            "                if self._deadline_ms:\n                    return await",
        ),
        (
            "a consumer stands still at the end of the remote data",
            "            if self._reads.has_gaps or self._reads.ended():\n",
            "            if self._reads.ended():\n",
        ),
    ),
    *DOUBTS.edits(
        (
            "H37: of a partition that is frozen behind the barrier a divergence is believed",
            "            refuse_storage(partition, partition.watermarks)\n"
            "        elif isinstance(view, RemoteStorageError):\n"
            "            not_ready(partition, partition.watermarks)\n"
            "        else:\n"
            "            epoch_end",
            "            pass\n"
            "        elif isinstance(view, RemoteStorageError):\n"
            "            not_ready(partition, partition.watermarks)\n"
            "        else:\n"
            "            epoch_end",
        ),
    ),
    *GAP_BARRIERS.edits(
        (
            "H17: a gap is passed though no barrier was",
            "        elif isinstance(view, RemoteStorageError):\n"
            "            self._is_tier_late = True\n"
            "            not_ready(partition, partition.watermarks)\n",
            "        elif isinstance(view, RemoteStorageError):\n"
            "            settle_gap(partition, read_from, read_from)\n",
        ),
    ),
    *TIER_VALUES.edits(
        (
            "the first offset of the remote tier is not in it",
            "(view.remote_log_start_offset <= offset < view.remote_next_offset)",
            "(view.remote_log_start_offset < offset < view.remote_next_offset)",
        ),
        (
            "the offset behind the remote tier is in it",
            "(view.remote_log_start_offset <= offset < view.remote_next_offset)",
            "(view.remote_log_start_offset <= offset <= view.remote_next_offset)",
        ),
        (
            "G7: records above the last stable offset are served to read_committed",
            "limit = min(limit, watermarks.last_stable_offset)",
            "limit = watermarks.high_watermark",
        ),
        (
            "H4: records above the high watermark are served",
            "return min(view.remote_next_offset, limit)",
            "return view.remote_next_offset",
        ),
    ),
    *FETCH_PLAN.edits(
        (
            "H36: names of any length are remembered for as long as the process lives",
            "if name is not None and len(name) > _TOPIC_NAME_MAX_CHARS:",
            "if False:",
        ),
        (
            "H4: our view vouches under no leader epoch",
            "if partition.tiered is not None and partition.asked.current_leader_epoch == NO_EPOCH",
            "if partition.tiered is None and partition.asked.current_leader_epoch == NO_EPOCH",
        ),
        (
            "H20: a partition known to be remote is asked for with all of its bytes",
            "size_bytes = partition.asked.partition_max_bytes if is_hole else 1",
            "size_bytes = partition.asked.partition_max_bytes",
        ),
        (
            "H17: while settings are unknown a topic counts as plain",
            "maybe_tiered=tiered is not None or not ready,",
            "maybe_tiered=tiered is not None,",
        ),
        (
            "H4: a frozen partition is assumed to be remote",
            "if view.frozen or not view.led_here or not is_remote_offset(view, offset):",
            "if not view.led_here or not is_remote_offset(view, offset):",
        ),
        (
            "H4: a partition led elsewhere is assumed to be remote",
            "if view.frozen or not view.led_here or not is_remote_offset(view, offset):",
            "if view.frozen or not is_remote_offset(view, offset):",
        ),
        (
            "an offset that the broker still has is read from the store",
            "if offset < known.log_start_offset <= high_watermark:",
            "if known.log_start_offset <= high_watermark:",
        ),
        (
            "G8: a client that names another epoch is answered by our view",
            "if partition.asked.current_leader_epoch not in (NO_EPOCH, view.leader_epoch):",
            "if partition.asked.current_leader_epoch < NO_EPOCH:",
        ),
        (
            "H21: fetches of replicas are answered from the store",
            "return request.replica_id == CONSUMER_REPLICA_ID",
            "return request.replica_id <= CONSUMER_REPLICA_ID or True",
        ),
        (
            "KIP-227: an incremental fetch of a session is taken for a full one",
            "return request.session_position >= 0 and "
            "request.session_epoch not in _FULL_SESSION_EPOCHS",
            "return False",
        ),
    ),
    *SPLICE.edits(
        (
            "H20: an OFFSET_OUT_OF_RANGE to our own offset goes to the client",
            "return error_code == OFFSET_OUT_OF_RANGE and partition.ask_offset is not None",
            "return error_code == OFFSET_OUT_OF_RANGE and partition.ask_offset == -1",
        ),
        (
            "H4: an error about our own epoch goes to the client",
            "return not is_named and partition.source in BY_OUR_VIEW",
            "return is_named and partition.source in BY_OUR_VIEW",
        ),
        (
            "H7: records of another log than the one we know are answered",
            "return 0 <= answered.log_start_offset <= partition.asked.fetch_offset",
            "return False",
        ),
        (
            "H4: a follower's word about an old offset counts",
            "    if not view.led_here:\n"
            "        return _refuse(partition, NOT_LEADER_OR_FOLLOWER)\n",
            "",
        ),
        (
            "H4: a frozen partition answers OFFSET_OUT_OF_RANGE",
            "    if view.frozen:\n"
            "        return _refuse(partition, KAFKA_STORAGE_ERROR, watermarks)\n",
            "    if view.frozen:\n        return False\n",
        ),
        (
            "H15: what may come back is a hole",
            "    is_unsettled = offset < view.unsettled_next_offset\n",
            "    is_unsettled = False\n",
        ),
        (
            "H2: below the remote start the client waits for ever",
            "if offset < view.remote_log_start_offset or not (has_remote(view) or is_unsettled):",
            "if not (has_remote(view) or is_unsettled):",
        ),
        (
            "H15: a hole is answered OFFSET_OUT_OF_RANGE",
            "    if offset < hole_end:\n",
            "    if offset < 0:\n",
        ),
        (
            "H17: an offset that came into range meanwhile is out of range",
            "    if offset <= watermarks.high_watermark:\n",
            "    if offset < 0:\n",
        ),
        (
            "H17: without watermarks an empty answer is invented",
            "    if watermarks is None:\n        _refuse(partition, KAFKA_STORAGE_ERROR)\n",
            "    if watermarks is None:\n        partition.source = Source.NOT_READY\n",
        ),
    ),
    *SPLICE.edits(
        (
            "G8: errors of the broker wait",
            "leave_now |= news is None and answered.error_code != OFFSET_OUT_OF_RANGE",
            "leave_now |= news is None and answered.error_code == OFFSET_OUT_OF_RANGE",
        ),
        (
            "H17: an OFFSET_OUT_OF_RANGE passes before a barrier was",
            "is_ours = error_code == OFFSET_OUT_OF_RANGE and partition.source is Source.BROKER",
            "is_ours = error_code == OFFSET_OUT_OF_RANGE and partition.source is Source.HOLE",
        ),
    ),
    *EPOCHS.edits(
        (
            "H37: a client without an epoch has diverged",
            "    if fetched_epoch < 0:\n",
            "    if fetched_epoch < -1:\n",
        ),
        (
            "H37: an epoch newer than the leader's is consistent",
            "is_newer = fetched_epoch > leader_epoch",
            "is_newer = fetched_epoch > leader_epoch + 1_000_000",
        ),
        (
            "H37: the leader's own epoch is unknown",
            "is_newer = fetched_epoch > leader_epoch",
            "is_newer = fetched_epoch >= leader_epoch",
        ),
        (
            "H37: an epoch without records in this history is consistent",
            "is_same_epoch = epoch_end.leader_epoch == fetched_epoch",
            "is_same_epoch = True",
        ),
        (
            "H37: the offset at which an epoch ended has diverged",
            "if is_same_epoch and asked.fetch_offset <= epoch_end.end_offset:",
            "if is_same_epoch and asked.fetch_offset < epoch_end.end_offset:",
        ),
        (
            "H37: nobody ever diverges",
            "    return EpochVerdict.DIVERGED\n",
            "    return EpochVerdict.CONSISTENT\n",
        ),
    ),
    *REPLACEMENTS.edits(
        (
            "H22: the log start that clients see goes up",
            "return start if start < log_start_offset else None",
            "return start",
        ),
        (
            "H25: records go out beside an error",
            "records=() if records is None or error_code != NONE else records.records,",
            "records=() if records is None else records.records,",
        ),
        (
            "H9: aborted transactions are left out of an answer",
            "return records.aborted if records.size_bytes else None",
            "return () if records.size_bytes else None",
        ),
        (
            "H37: records go out beside a diverging epoch's tag of nobody",
            "diverging_epoch=_diverging_epoch(partition) if error_code == NONE else None,",
            "diverging_epoch=None,",
        ),
        (
            "H9: read_uncommitted receives aborted transactions",
            "aborted_transactions=_aborted(records) if read_committed and is_plain else None,",
            "aborted_transactions=_aborted(records) if is_plain else None,",
        ),
    ),
)
