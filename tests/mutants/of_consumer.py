"""Planted bugs in the Tiered Storage Consumer: records are lost or repeated between the tiers."""

from tests.mutants.edits import Edit, Target

_BORDER = ("tests/rlm_client/test_border.py",)
_FETCHER = Target(
    "rlm_client/tiered_fetcher.py",
    (*_BORDER, "tests/rlm_client/test_rebalances.py", "tests/rlm_client/test_failures.py"),
)
_PIECES = Target("rlm_client/pieces.py", (*_BORDER, "tests/rlm_client/test_pieces.py"))
_FAILURES = ("tests/rlm_client/test_failures.py",)
_PARTITION = Target(
    "rlm_client/partition_read.py", ("tests/rlm_client/test_partition_read.py", *_FAILURES)
)
_REMOTE = Target("rlm_client/remote_log.py", _BORDER)
_LOOKUPS = Target("rlm_client/lookups.py", _BORDER)
_THREADS = Target(
    "rlm_client/read_threads.py",
    ("tests/rlm_client/test_read_threads.py", "tests/rlm_client/test_positions.py"),
)
_OF_STORE = ("tests/rlm_client/test_store_reader.py",)
_READER = Target("rlm_client/store/reader.py", _OF_STORE)
_WINDOWS = Target("rlm_client/store/windows.py", _OF_STORE)
_OPENED = Target("rlm_client/store/opened.py", _OF_STORE)
_LISTS = Target("rlm/remote_log/remote_window.py", ("tests/rlm/api/test_remote_window.py",))
_AHEAD = Target("rlm_client/store/ahead.py", _OF_STORE)
_LOG = Target("rsm_plugins/event_log.py", ("tests/rsm_plugins/test_event_log.py",))

EDITS: tuple[Edit, ...] = (
    *_LOG.edits(
        (
            "what reads the store writes to the standard output of the program",
            "        if structlog.is_configured():\n",
            "        if event:\n",
        ),
    ),
    *_FETCHER.edits(
        (
            "H37: a position beyond the end is reset at once",
            "            if read.beyond_for_ms(position, now_ms) < self._settle_ms:\n",
            "            if position < 0:\n",
        ),
        (
            "H20: Kafka's log start is taken for the start of the whole log",
            "            if answer is not None:\n",
            "            if answer is not None and is_alone:\n",
        ),
        (
            "H20: without commits a group begins where Kafka does, as services deny the topic",
            "                await self._lookups.check_untiered(topic_partition)\n",
            "",
        ),
        (
            "an error that the user must mend is logged without end, and raised in no call",
            "read in self._reads.items():\n                if read.asking",
            "read in ():\n                if read.asking",
        ),
        (
            "the program's seek counts as offsets that no tier had",
            "                read.lost_at = None\n\n",
            "                pass\n\n",
        ),
        (
            "H37: the read of an assignment goes on in the next one, where it was",
            "        self._reads = {one: OpenRead(self._mode) for one in assignment.tps}\n",
            "        kept = self._reads\n"
            "        self._reads = {one: OpenRead(self._mode) for one in assignment.tps}\n"
            "        for one in kept.keys() & self._reads.keys():\n"
            "            assignment.state_value(one).seek(max(kept[one].position, 0))\n",
        ),
        (
            "H06: a topic of another id is read",
            "        if topic_id is not None:\n",
            "        if topic_id is None:\n",
        ),
        (
            "H15: a hole is passed without being counted",
            "        self._counters.offsets_missed += loss.end_offset - state.position\n",
            "        self._counters.offsets_missed += 0\n",
        ),
    ),
    *_PARTITION.edits(
        (
            "H37: the proof that one position is beyond the end resets another",
            "            and before.position == position\n",
            "            and before.position >= 0\n",
        ),
        (
            "H37: a pause in which nothing was asked counts as a proof",
            "            and now_ms - before.last_ms <= MOST_PAUSE_MS\n",
            "            and now_ms >= before.last_ms\n",
        ),
        (
            "a store that is away for ever is never an error, as the limit begins at each failure",
            "        if self._failing_since_ms is None:\n",
            "        if now_ms >= 0:\n",
        ),
        (
            "the limit of failing reads counts what was read meanwhile",
            "        self._failing_since_ms = None\n",
            "        pass\n",
        ),
    ),
    *_PIECES.edits(
        (
            "H37: the last record before the border of the tiers is dropped",
            "            if record.offset >= end:\n",
            "            if record.offset >= end - 1:\n",
        ),
        (
            "H37: records beyond the border come from both tiers",
            "            if record.offset >= end:\n",
            "            if record.offset > end + 100:\n",
        ),
        (
            "records before one that cannot be read are dropped, or those of other partitions",
            "        if not has_given:\n            on_error(error)\n",
            "        if not has_given:\n            raise\n",
        ),
        (
            "H37: a read of whole batches gives out records behind the piece's end again",
            "start <= rows[0].offset <= rows[-1].offset < end:\n",
            "start <= rows[0].offset <= rows[-1].offset:\n",
        ),
        (
            "H37: the position jumps over the records of a batch that were not taken yet",
            "                self.next_fetch_offset = rows[end - 1].offset + 1\n",
            "                self.next_fetch_offset = self._after_rows\n",
        ),
        (
            "G9: the position passes a batch that is cut short",
            "            if position > size:\n",
            "            if position < 0:\n",
        ),
        (
            "H09: whole batches of aborted transactions are given out",
            "            if self._is_aborted(batch) or batch.is_control_batch:\n",
            "            if batch.is_control_batch:\n",
        ),
        (
            "G9: a batch counts as checked that is cut short or of the older format",
            "            is_checked = check_crcs and all(_checks(data))\n",
            "            is_checked = check_crcs\n",
        ),
    ),
    *_REMOTE.edits(
        (
            "H37: what the remote tier does not know yet counts as lost",
            "next_offset=absent.next_offset, is_certain=is_settled\n",
            "next_offset=absent.next_offset, is_certain=now_ms >= 0\n",
        ),
        (
            "H37: a topic that the caller may not describe any more counts as lost",
            "        if topic_id is not None:\n            leader",
            "        if topic_id is None:\n            leader",
        ),
    ),
    *_LOOKUPS.edits(
        (
            "H20: the policy begins where Kafka does, as services deny the topic",
            "        if found is None:\n            await self.check_untiered(topic_partition)\n",
            "",
        ),
    ),
    *_THREADS.edits(
        (
            "G10: calls to services that are silent stop all others",
            "now_ms - at < self._silent_ms for at in",
            "now_ms - at >= 0 for at in",
        ),
    ),
    *_READER.edits(
        (
            "H04: batches behind the end of what counts of a segment are given out",
            "        upper = min(self._end_offset, segment.next_offset)\n",
            "        upper = self._end_offset\n",
        ),
        (
            "H04: a batch that lies across the end of what counts is given out",
            "            if next_offset > segment.next_offset:\n",
            "            if next_offset > segment.next_offset + (1 << 20):\n",
        ),
        (
            "H04: what was read ahead counts though the list has other segments now",
            "        if now[: len(before)] != before:\n",
            "        if now[: len(before)] is None:\n",
        ),
        (
            "H09: the copying leader's list counts for transactions behind its end in the history",
            "if reading.read_committed and not landed.indexes.decides_aborted(",
            "if reading.identity is None and not landed.indexes.decides_aborted(",
        ),
        (
            "H09: committed reads get no aborted transactions",
            "        if self._reading.read_committed:\n",
            "        if not self._reading.read_committed:\n",
        ),
        (
            "H11: a missing object is passed over as if there were no records",
            "        self._window = None\n        self._tries",
            "        self._tries",
        ),
        (
            "a batch that two ranges share is lost",
            "            self._rest = bytes(buffer[start:])\n",
            '            self._rest = b""\n',
        ),
        (
            "H04: what a range has counts for as long as a program takes over its pieces",
            "if cut.position >= end_offset or not self._is_listed(ahead, cut, stop):\n",
            "if cut.position >= end_offset:\n",
        ),
        (
            "H04: a segment that ends before any batch shows it is taken for compacted",
            "        if self.position < end and not is_certain:\n",
            "        if self.position < 0 and not is_certain:\n",
        ),
        (
            "what follows the last batch that counts is taken for batches",
            "            self._is_over = True  # and",
            "            pass  # and",
        ),
        (
            "H15: a hole is known for one offset at a time",
            "bound = listed[0].next_offset if listed else end_offset\n",
            "bound = listed[0].next_offset if listed else position + 1\n",
        ),
    ),
    *_WINDOWS.edits(
        (
            "G9: indexes that the store gives a consumer are not held against their checksum",
            "    check_stored_indexes(data, segment.metadata)\n",
            "",
        ),
        (
            "H09: of a segment that is cut its own list counts",
            "        return not is_cut and not _open_at(self.aborted, end)\n",
            "        return not _open_at(self.aborted, end)\n",
        ),
    ),
    *_OPENED.edits(
        (
            "G9: chunks are not held against their checksums",
            "        indexes.checksums.check_range(wanted, data)\n",
            "        len(data)\n",
        ),
        (
            "H11: a segment is looked for in a store that is another one",
            "            if (identity.store_id, identity.cluster_id) == (store_id, cluster_id):\n",
            "            if identity.cluster_id == cluster_id:\n",
        ),
        (
            "G10: what is read ahead has no limit",
            "            if self._bytes + size_bytes > self._most_bytes:\n",
            "            if self._bytes < 0:\n",
        ),
    ),
    *_AHEAD.edits(
        (
            "G10: each partition that waits exceeds the memory by a whole range",
            "                most = planned.indexes.checksums.chunk_size_bytes\n",
            "",
        ),
        (
            "a read begins with a chunk behind its batch",
            "    position = found // chunk * chunk\n",
            "    position = min(-(-found // chunk) * chunk, size)\n",
        ),
        (
            "H04: a segment's part ends at the first of batches that were appended together",
            "upper = indexes.offsets.end_position(segment.next_offset)",
            "upper = indexes.offsets.upper_position(segment.next_offset)",
        ),
    ),
    *_LISTS.edits(
        (
            "H15: a list of segments goes on behind a hole",
            "        if usable is None or usable.metadata.start_offset > offset:\n",
            "        if usable is None:\n",
        ),
        (
            "H02: segments below the remote log start are listed",
            "    if start_offset < state.log_start_offset:\n",
            "    if start_offset < 0:\n",
        ),
        (
            "H09: lists do not say where a copying leader's log left the history",
            "        shared_end = history.shared_end(usable)\n",
            "        shared_end = None\n",
        ),
    ),
)
