"""Planted bugs in the plans that go by offsets: what to copy, to cut, to cover, to wait for."""

from tests.mutants.edits import Edit, Target

FETCH = Target("rlm/plans/fetch.py", ("tests/rlm/plans/test_fetch.py",))
COVER = Target("rlm/plans/coverage.py", ("tests/rlm/plans/test_copy.py", "tests/rlm/plans"))
EMPTY = Target("rlm/plans/coverage.py", ("tests/rlm/plans/test_empty_segments.py",))
DOUBTFUL = Target("rlm/tasks/copy.py", ("tests/rlm/tasks/test_empty_segments.py",))
SNAPSHOT = Target("rlm/remote_log/snapshots.py", ("tests/rlm/tasks/test_empty_segments.py",))
OFFSET_INDEX = Target("kip405/indexes.py", ("tests/rlm/plans/test_fetch.py",))
STORED_INDEXES = Target(
    "kip405/indexes.py",
    (
        "tests/rlm/reading/test_remote_reader.py",
        "tests/rlm/reading/test_integrity.py",
        "tests/rlm/reading/test_many_at_once.py",
        "tests/rlm/reading/test_disk_cached.py",
        "tests/rlm/reading/test_any_copies.py",
    ),
)
RETENTION = Target("rlm/plans/retention.py", ("tests/rlm/plans/test_retention.py",))
UNSETTLED = Target("rlm/plans/coverage.py", ("tests/rlm/plans/test_unsettled.py",))
COPY = Target("rlm/plans/copy.py", ("tests/rlm/plans/test_copy.py", "tests/rlm/tasks/test_copy.py"))

EDITS: tuple[Edit, ...] = (
    *STORED_INDEXES.edits(
        (
            "G9: the checksum of the indexes object is not looked at",
            "if len(data) != custom.indexes_size_bytes or crc32c(data) != custom.indexes_crc32c:",
            "if len(data) != custom.indexes_size_bytes:",
        ),
    ),
    *OFFSET_INDEX.edits(
        (
            "H4: the index passes over batches that reach the upper offset",
            "            bisect_left(entries, next_offset, key=self._offset),\n        )",
            "            len(self),\n        )",
        ),
        (
            "the index passes over the last batch of an answer, whose end is then not known",
            "return self.entry(count - 2) if count > 1 else None",
            "return self.entry(count - 1) if count > 0 else None",
        ),
    ),
    *FETCH.edits(
        (
            "a batch that ends with the offset asked for is skipped",
            "if last >= bounds.offset:",
            "if last > bounds.offset:",
        ),
        (
            "H4: a batch that reaches the upper offset is given",
            "if last >= bounds.upper_offset:",
            "if last > bounds.upper_offset:",
        ),
        (
            "a batch that fits exactly is left out",
            "if after > budget_end and not",
            "if after >= budget_end and not",
        ),
        (
            "KIP-74: the first batch is not given where it is too large: the client stalls",
            "and not (bounds.at_least_one and start == end):",
            "and True:",
        ),
        (
            "more than one batch is given beyond max_bytes",
            "and not (bounds.at_least_one and start == end):",
            "and not bounds.at_least_one:",
        ),
        (
            "max_bytes counts batches that were skipped",
            "budget_end = start + bounds.max_bytes",
            "budget_end = position + bounds.max_bytes",
        ),
        (
            "G9: an index that is wrong about its batch is believed",
            "return (position, base) if bounds.offset < base <= offset else (start, least_base)",
            "return position, base",
        ),
        (
            "the index passes over batches beyond max_bytes",
            "limit = min(budget_end, loaded_until)",
            "limit = loaded_until",
        ),
        (
            "the index passes over batches that are not loaded",
            "limit = min(budget_end, loaded_until)",
            "limit = budget_end",
        ),
        (
            "every batch of an answer is walked over",
            "if found is None or found[1] <= start:",
            "if found is None or found[1] >= start:",
        ),
        (
            "H20: the next offset is that of the last record given, for ever",
            "end, next_offset = after, last + 1",
            "end, next_offset = after, last",
        ),
        (
            "G9: offsets of batches may go back",
            "if at > log_size or base < least_base:",
            "if at > log_size:",
        ),
        (
            "G9: a batch may reach beyond the log",
            "if at > log_size or base < least_base:",
            "if base < least_base:",
        ),
        (
            "G9: a negative last offset delta is believed",
            "length >= _LEAST_V2 and delta >= 0:",
            "length >= _LEAST_V2:",
        ),
        (
            "G9: a batch shorter than its header is believed",
            "length >= _LEAST_V2 and delta >= 0:",
            "delta >= 0:",
        ),
        (
            "a header that straddles two chunks is taken for loaded",
            "if self.loaded_until(position) < end:",
            "if self.loaded_until(position) <= position:",
        ),
        (
            "a segment counts as read to its end when a chunk is missing",
            "exhausted = end >= window.log_size_bytes",
            "exhausted = True",
        ),
    ),
    *EMPTY.edits(
        (
            "H15: an accepted loss of which a part is found again holds the trims for ever",
            "copied = copies() if any(True for _ in _empty(log)) else Cover()",
            "copied = Cover()",
        ),
        (
            "every segment of the ledger is decoded though no file is empty",
            "copied = copies() if any(True for _ in _empty(log)) else Cover()",
            "copied = copies()",
        ),
        (
            "H15: what a copy has counts as empty",
            "            found += settled.not_copied(one.base_offset, end)\n",
            "            found.append(OffsetRange(start=one.base_offset, next_offset=end))\n",
        ),
    ),
    *DOUBTFUL.edits(
        (
            "H11: a copy that is gone settles a file that lost its bytes",
            "partial(snapshot.copied, gone)",
            "snapshot.copied",
        ),
        (
            "H15: an alarm stays for a loss that was accepted, and of which a part is found again",
            "return doubtful_segments(snapshot.log, start, holes, partial(snapshot.copied, gone))",
            "return doubtful_segments(snapshot.log, start, holes)",
        ),
    ),
    *SNAPSHOT.edits(
        (
            "H15: an accepted loss of which a part is found again holds the trims for ever",
            "empty_ranges(self.log, holes, self.copied)",
            "empty_ranges(self.log, holes)",
        ),
    ),
    *COVER.edits(
        (
            "two ranges with a gap of one offset count as one",
            "if kept and item.start <= kept[-1].next_offset:",
            "if kept and item.start <= kept[-1].next_offset + 1:",
        ),
        (
            "H4: a range inside another one shortens it",
            "max(last.next_offset, item.next_offset)",
            "item.next_offset",
        ),
        (
            "H3: disputed segments count as copied",
            "        if not one.disputed\n",
            "",
        ),
        (
            "a range counts as covered when its last offset is not",
            "return self.end_from(start) >= next_offset",
            "return self.end_from(start) >= next_offset - 1",
        ),
    ),
    *RETENTION.edits(
        (
            "local retention that is unlimited trims at once",
            "return None if chosen == UNLIMITED else chosen",
            "return chosen",
        ),
        (
            "local retention that is as total is unlimited",
            "chosen = total if local == AS_TOTAL else local",
            "chosen = UNLIMITED if local == AS_TOTAL else local",
        ),
        (
            "local retention may be longer than the total",
            "if local > total:",
            "if local > total and total == 0:",
        ),
    ),
    *UNSETTLED.edits(
        (
            "H6: a ledger with a problem proves holes",
            "if not trusted and start < next_offset and not covered.holds(start, next_offset):",
            "if trusted is None and start < next_offset:",
        ),
        (
            "H15: an attempt that may be adopted yet leaves a hole",
            "    RemoteLogSegmentState.COPY_SEGMENT_STARTED,\n",
            "",
        ),
        (
            "H15: a deletion that may be somebody's late word leaves a hole",
            "    RemoteLogSegmentState.DELETE_SEGMENT_STARTED,\n",
            "",
        ),
        (
            "H3: a disputed segment leaves a hole",
            "if one.state in _OPEN or one.disputed:",
            "if one.state in _OPEN:",
        ),
        (
            "an attempt whose offsets others hold holds readers up",
            "        and not covered.holds(first, after)\n",
            "",
        ),
    ),
    *COPY.edits(
        (
            "H35: an unknown recovery point counts as everything flushed",
            "    return (recovery_point or 0) if is_needed else None\n",
            "    return recovery_point if is_needed else None\n",
        ),
        (
            "H35: copy.recovery.point: always asks only for partitions with one replica",
            "needs is NeedsFlush.ALWAYS or (",
            "(",
        ),
        (
            "G2: a segment is copied before the last stable offset has passed it",
            "if segment.next_offset > view.last_stable_offset:",
            "if segment.base_offset > view.last_stable_offset:",
        ),
        (
            "G2: the border of the last stable offset is one too far",
            "if segment.next_offset > view.last_stable_offset:",
            "if segment.next_offset > view.last_stable_offset + 1:",
        ),
        (
            "G2: a segment that ends with the last stable offset waits for ever",
            "if segment.next_offset > view.last_stable_offset:",
            "if segment.next_offset >= view.last_stable_offset:",
        ),
        (
            "H35: a segment that is in the page cache only is copied",
            "if view.recovery_point is not None and segment.next_offset > view.recovery_point:",
            "if view.recovery_point is not None and segment.base_offset > view.recovery_point:",
        ),
        (
            "H35: a segment that is flushed exactly waits for ever",
            "and segment.next_offset > view.recovery_point:",
            "and segment.next_offset >= view.recovery_point:",
        ),
        (
            "H4: a frozen partition is copied",
            "    if view.frozen is not None:\n        return CopyPlan(",
            "    if view.frozen is not None and view.topic.internal:\n        return CopyPlan(",
        ),
        (
            "H35: a compacted topic is copied",
            'if topic.cleanup_policy != "delete":',
            'if "delete" not in topic.cleanup_policy:',
        ),
        (
            "internal topics are copied",
            "    if topic.internal:\n",
            "    if topic.internal and topic.native_tiering:\n",
        ),
        (
            "a topic that Kafka tiers itself is copied",
            "    if topic.native_tiering:\n",
            "    if topic.native_tiering and topic.internal:\n",
        ),
        (
            "a topic that is not enabled is copied",
            "    if not topic.enabled:\n",
            "    if not topic.enabled and topic.internal:\n",
        ),
        (
            "H2: what ended below the remote log start is copied again",
            "start = max(view.local_log_start_offset, view.remote_log_start_offset)\n    wanted",
            "start = view.local_log_start_offset\n    wanted",
        ),
        (
            "a segment that was deleted whole is copied",
            "if next_offset is not None and next_offset <= start:",
            "if next_offset is not None and next_offset < start:",
        ),
        (
            "a segment whose beginning was deleted is copied for ever",
            "max(segment.base_offset, start), next_offset\n",
            "segment.base_offset, next_offset\n",
        ),
    ),
)
