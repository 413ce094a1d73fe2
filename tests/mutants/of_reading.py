"""Planted bugs on the way of a read: which copy, which bytes, proven by which checksum."""

from tests.mutants.edits import Edit, Target

HISTORY = Target(
    "rlm/remote_log/history.py",
    (
        "tests/rlm/test_losses.py",
        "tests/rlm/test_local_tier.py",
        "tests/rlm/test_tier_histories.py",
        "tests/rlm/reading/test_any_copies.py",
        "tests/rlm/api/test_remote_only.py",
        "tests/rlm/api/test_remote_losses.py",
        "tests/rlm/api/test_h04_remote_only.py",
        "tests/rlm/test_h02_reads_of_ended_data.py",
    ),
)
TIER = Target(
    "rlm/remote_log/leader_view.py",
    (
        "tests/rlm/test_local_tier.py",
        "tests/rlm/test_tier_histories.py",
        "tests/rlm/test_h02_reads_of_ended_data.py",
    ),
)
EPOCHS = Target("rlm/remote_log/mirrored.py", TIER.tests)
PARTITIONS = Target(
    "rlm/remote_log/snapshot_cache.py",
    ("tests/rlm/test_snapshot_cache.py", "tests/rlm/tasks/test_lineage_publisher.py"),
)
_READS = (
    "tests/rlm/reading/test_remote_reader.py",
    "tests/rlm/reading/test_integrity.py",
    "tests/rlm/reading/test_many_at_once.py",
    "tests/rlm/reading/test_disk_cached.py",
    "tests/rlm/reading/test_any_copies.py",
)
READER = Target("rlm/reading/reader.py", _READS)
VERIFY = Target(
    "rlm/reading/source.py",
    ("tests/rlm/reading/test_verify.py", "tests/rlm/reading/test_chunk_memory.py", *_READS),
)
INDEXES = Target(
    "rlm/reading/segment_indexes.py", ("tests/rlm/reading/test_segment_indexes.py", *_READS)
)
SOURCE = Target("rlm/reading/source.py", ("tests/rlm/reading/test_source.py", *_READS))
LOADER = Target(
    "rlm/reading/chunk_loader.py", (*_READS, "tests/rlm/reading/test_loads.py", "tests/rlm/reading")
)
MEMORY = Target(
    "rlm/reading/load_scheduler.py",
    ("tests/rlm/reading/test_memory.py", "tests/rlm/reading/test_loads.py"),
)
READINGS = Target(
    "rlm/remote_log/reads.py",
    ("tests/rlm/api/test_fetch_service.py", "tests/rlm/test_h02_reads_of_ended_data.py"),
)

EDITS: tuple[Edit, ...] = (
    *READINGS.edits(
        (
            "H2: a stream ends with an error where a segment was deleted in order",
            "except (Fenced, ChangedMeanwhile):",
            "except Fenced:",
        ),
        (
            "H15: below the start a start is named that leaves out what is not settled",
            "first = offset if view is None else max(offset, view.remote_log_start_offset)",
            "first = offset",
        ),
        (
            "H4: below the start a start is named that leaves out what a freeze withholds",
            "if view is not None and view.frozen and first < state.log_start_offset:",
            "if view is not None and view.frozen and view.remote_log_start_offset <= offset:",
        ),
        (
            "H15: below the start nothing is said while a later offset is not settled",
            "if first < state.log_start_offset and state.is_unsettled(first):",
            "if state.is_unsettled(first):",
        ),
    ),
    *HISTORY.edits(
        (
            "G10: a loss on record keeps what the read had loaded",
            "known[segment_id] = type(error)(str(error))",
            "known[segment_id] = error",
        ),
        (
            "H15: a gap that is not settled is passed over",
            "            history.refuse_unsettled(offset, start)\n            if start > offset:",
            "            if start > offset:",
        ),
        (
            "a gap in the remote data is not reported",
            "missing += missed([(offset, start)], history.empty)",
            "pass",
        ),
        (
            "what is missing at the end is not reported",
            "missing += missed([(offset, request.upper_offset)], history.empty)",
            "pass",
        ),
        (
            "H4: a read goes on in a segment above the upper offset",
            "if usable is None or usable.metadata.start_offset >= request.upper_offset:",
            "if usable is None:",
        ),
        (
            "a read ends with a segment that has nothing below the upper offset",
            "if read.size_bytes or not read.exhausted:",
            "if read.size_bytes or read.exhausted:",
        ),
        (
            "H25: a lost copy is not replaced by another one",
            "            except (NotFound, Corrupt) as failed:\n                error = failed if",
            "            except KeyError as failed:\n                error = failed if",
        ),
        (
            "H25: a copy that does not hold the offset replaces a lost one",
            "if other.metadata.start_offset <= at and other != best:",
            "if other != best:",
        ),
        (
            "H4: a segment is read beyond its usable end",
            "upper_offset=min(request.upper_offset, usable.next_offset),",
            "upper_offset=request.upper_offset,",
        ),
        (
            "a timestamp is looked for in the first segment only",
            "if usable.metadata.max_timestamp_ms < timestamp_ms:",
            "if usable.metadata.max_timestamp_ms <= timestamp_ms:",
        ),
        (
            "H15: a timestamp is answered from behind a gap that is not settled",
            "            history.refuse_unsettled(start, usable.metadata.start_offset)\n",
            "",
        ),
        (
            "H4: a timestamp is answered with a record outside the history",
            "if found is not None and found.offset < usable.next_offset:",
            "if found is not None:",
        ),
        (
            "H25: a timestamp is not found although the segment that has it is lost",
            "if not any(_covers(other, usable) for other in known if other not in lost):",
            "if not known:",
        ),
        (
            "H15: no record is answered although a gap is not settled",
            "        history.refuse_unsettled(start, next_offset)\n        return None",
            "        return None",
        ),
        (
            "H25: a copy that ends earlier stands in for a lost one",
            "return begins and other.next_offset >= segment.next_offset",
            "return begins",
        ),
        (
            "H11: a lost segment is not remembered",
            "            self.losses.note(ledger.key, segment_id, error, ledger.entries.keys())\n",
            "",
        ),
        (
            "H2: a segment that was deleted in order is an alarm",
            "if not await self._is_listed(ledger.key, segment_id):",
            "if False:",
        ),
        (
            "H2: what another service deleted is an alarm",
            "                await self._ledgers.barrier(key, _BARRIER_DEADLINE_MS)\n",
            "                pass\n",
        ),
        (
            "H11: a segment that is read again stays lost",
            "        self.losses.forget(ledger.key, segment_id)\n",
            "",
        ),
        (
            "H3: disputed data is not offered to readers",
            "self.log_end_offset, disputed=True)",
            "self.log_end_offset, disputed=False)",
        ),
    ),
    *EPOCHS.edits(
        (
            "H37: the latest epoch is answered from the last snapshot",
            "if latest is None or leader_epoch >= latest:",
            "if latest is None or leader_epoch > latest:",
        ),
    ),
    *TIER.edits(
        (
            "H2: what has ended is skipped like a hole",
            "if request.offset < start:  # what",
            "if request.offset < 0:  # what",
        ),
        (
            "H17: the tier is ready before the settings were read",
            "            self._settings.is_ready\n            and self._ledger.is_ready\n",
            "            self._ledger.is_ready\n",
        ),
        (
            "H17: the tier is ready before the ledger was read",
            "            and self._ledger.is_ready\n",
            "",
        ),
        (
            "H17: the tier is ready before leadership was looked at",
            "self._leadership.snapshot.taken_at_ms >= 0",
            "self._leadership.snapshot.taken_at_ms >= -1",
        ),
        (
            "H17: a barrier takes no snapshot",
            "            snapshot = await self._coalesced.take(led)\n",
            "            snapshot = self._snapshots.snapshots[led.key]\n",
        ),
        (
            "H4: a snapshot of another leadership is shown under this one",
            "return self._view(snapshot.led, snapshot)",
            "return self._view(led, snapshot)",
        ),
        (
            "H39: a topic recreated under its name is taken for the tiered one",
            "return described if topic.topic_id in (None, described.topic_id) else None",
            "return described",
        ),
        (
            "H39: a topic whose id is not tiered is served",
            "        if self._settings.view.topic(described.topic_id) is None:\n"
            "            return None\n",
            "",
        ),
        (
            "H4: a frozen partition is read",
            "        if snapshot.frozen is not None:\n            raise Fenced",
            "        if snapshot.led is None:\n            raise Fenced",
        ),
        (
            "H2: a timestamp is answered with a record below the remote start",
            "start=max(self._settings.view.remote_log_start(key) or 0, start_offset),",
            "start=start_offset,",
        ),
        (
            "H17: a view does not change with the ledger",
            "            version,\n            self._ledger.problem,\n",
            "            0,\n            self._ledger.problem,\n",
        ),
        (
            "H17: a view does not change with the remote start",
            "            start,\n            version,\n",
            "            0,\n            version,\n",
        ),
        (
            "H17: a view does not change with a new snapshot",
            "return known[1] is seen[1] and known[0] == seen[0] and known[2:] == seen[2:]",
            "return known[0] == seen[0] and known[2:] == seen[2:]",
        ),
        (
            "H4: a partition that is frozen does not snapshot so",
            "frozen=snapshot is not None and (snapshot.frozen is not None or is_start_lost),",
            "frozen=False,",
        ),
        (
            "H15: what is not settled yet snapshots like a hole",
            "unsettled_next_offset=unsettled_end,",
            "unsettled_next_offset=SETTLED,",
        ),
        (
            "H6: a ledger with a problem proves holes to readers",
            "self._ledger.ledger(key), self._ledger.problem is None",
            "self._ledger.ledger(key), True",
        ),
    ),
    *PARTITIONS.edits(
        (
            "H4: a snapshot of an older leader epoch is used under a newer one",
            "if snapshot is None or snapshot.led.leader_epoch != led.leader_epoch:",
            "if snapshot is None:",
        ),
        (
            "H4: readers hear of a freeze after the leader's tier",
            "        await self._lineage_publisher.publish(snapshot)\n        if mine",
            "        if mine",
        ),
        (
            "H4: a snapshot that was overtaken is remembered",
            "        if mine >= self._newest.get(key, mine):\n",
            "        if mine:\n",
        ),
        (
            "H4: a partition that is led elsewhere is still remembered",
            "if known is not None and known.led.leader_epoch <= led.leader_epoch:",
            "if known is not None and known.led.leader_epoch > led.leader_epoch:",
        ),
        (
            "H17: snapshots of different partitions are one question",
            "group_of=lambda led: led.key",
            "group_of=lambda led: type(led)",
        ),
        (
            "H17: a waiting snapshot is taken under the leadership of who asked first",
            "        newest = max(callers, key=lambda led: led.leader_epoch)\n",
            "        newest = callers[0]\n",
        ),
        (
            "a cancelled caller ends the snapshot of the others",
            "result = await asyncio.shield(task)",
            "result = await task",
        ),
        (
            "G10: each caller that gave up leaves a task behind while a snapshot hangs",
            "        task = self._next.get(led)\n        if task is None:\n",
            "        task = None\n        if task is None:\n",
        ),
        (
            "H17: a caller gets a snapshot that began before it asked",
            "        for led in callers:\n            self._begun(led)\n",
            "",
        ),
    ),
    *READER.edits(
        (
            "H9: read_committed receives no aborted transactions",
            "    if read_committed:\n        aborted",
            "    if not read_committed:\n        aborted",
        ),
        (
            "H9: aborted transactions of the offsets that follow are left out",
            "aborted_for_fetch(one.indexes.aborted, bounds.offset, found.next_offset)",
            "aborted_for_fetch(one.indexes.aborted, bounds.offset, bounds.offset)",
        ),
        (
            "a search by timestamp ends with the first batch",
            "            offset = read.next_offset\n        return None",
            "            return None\n        return None",
        ),
        (
            "the size of chunks is never learnt from the indexes",
            "        self.suppose_chunk_bytes(one.indexes.chunks.chunk_size_bytes)\n",
            "",
        ),
    ),
    *VERIFY.edits(
        (
            "G9: checksums of chunks are not looked at",
            "        checksums.check(number, view_of(chunk))\n",
            "        checksums.crcs[number]\n",
        ),
        (
            "G9: a chunk of another length is good",
            "    if read_bytes != size_bytes:\n",
            "    if read_bytes > size_bytes:\n",
        ),
        (
            "G9: a store that gives more than was asked for is believed",
            "    if len(found) > whole.size_bytes:\n",
            "    if len(found) > 2 * whole.size_bytes:\n",
        ),
        (
            "G9: a chunk is checked by its neighbour's checksum",
            "checked(chunk, read_bytes, number, expected,",
            "checked(chunk, read_bytes, number - numbers.start, expected,",
        ),
        (
            "the last chunk is asked for beyond the log",
            "end = min(numbers.stop * chunk_bytes, log_size_bytes)",
            "end = numbers.stop * chunk_bytes",
        ),
        (
            "H25: a file that is gone is not believed to be lost",
            'return dict.fromkeys(numbers, _caused(NotFound(f"{what}: {found.path} is gone"), '
            "error))",
            'return dict.fromkeys(numbers, _caused(Unavailable(f"{what}: {found.path}"), error))',
        ),
        (
            "a slice is read from the beginning of its file",
            "found.position + at) if part",
            "at) if part",
        ),
    ),
    *INDEXES.edits(
        (
            "the chunk in which a range ends is left out",
            "return range(start // chunk_bytes, min(-(-end // chunk_bytes), count))",
            "return range(start // chunk_bytes, min(end // chunk_bytes, count))",
        ),
        (
            "a range reaches beyond the chunks that there are",
            "return range(start // chunk_bytes, min(-(-end // chunk_bytes), count))",
            "return range(start // chunk_bytes, -(-end // chunk_bytes))",
        ),
        (
            "the offset index is of another base offset",
            "offsets=OffsetIndex(offsets, segment.start_offset),",
            "offsets=OffsetIndex(offsets, 0),",
        ),
    ),
    *SOURCE.edits(
        (
            "G10: the error of the indexes keeps the range that came first",
            "                early = None  # the error",
            "                pass  # the error",
        ),
        (
            "H25: a lost indexes object is believed at once",
            "            self._counts.refetches += 1\n            return await",
            "            raise\n            return await",
        ),
        (
            "H25: a lost chunk is believed at once",
            "        return await self._again(segment, landed, indexes)\n",
            "        return landed\n",
        ),
        (
            "H25: what came before the indexes is believed at once",
            "            landed.update(await self._verify(segment, numbers, indexes, early))\n",
            "            return await self._verify(segment, numbers, indexes, early)\n",
        ),
        (
            "H25: what is wrong in a known file is answered",
            "the store decides\n        return good\n",
            "the store decides\n        return landed\n",
        ),
        (
            "G9: a chunk of the disk cache is not checked against the segment",
            "if not isinstance(outcome, Corrupt):\n                good[number] = outcome",
            "if chunk is not None:\n                good[number] = chunk",
        ),
        (
            "a wrong chunk stays in the disk cache",
            "                disk.discard(key)\n",
            "                continue\n",
        ),
        (
            "only what is missing is asked for once more, not what is wrong",
            "isinstance(outcome, NotFound | Corrupt)\n        ]",
            "isinstance(outcome, NotFound)\n        ]",
        ),
        (
            "runs of chunks go on over a gap",
            "        if start is not None and number == after:\n",
            "        if start is not None and number >= (after or 0):\n",
        ),
    ),
    *LOADER.edits(
        (
            "an error of a load is given as data",
            "        if isinstance(outcome, RemoteStorageError):\n            del load",
            "        if isinstance(outcome, Busy):\n            del load",
        ),
        (
            "G10: the error of one chunk keeps the other chunks of its range",
            "            del load  # the error refers to this frame",
            "            pass  # the error refers to this frame",
        ),
        (
            "a chunk that is on its way is asked for again",
            "return key in self._loads or key in self._chunks",
            "return key in self._chunks",
        ),
        (
            "a failed load is found again by who asks next",
            "if self._loads.get(key) is load:",
            "if self._loads.get(key) is not load:",
        ),
    ),
    *MEMORY.edits(
        (
            "G10: reads hold more than their bound",
            "if lacking > 0 and self._chunks.evict(lacking, spares_ahead=is_ahead) < lacking:",
            "if lacking > 0 and self._chunks.evict(lacking, spares_ahead=is_ahead) < 0:",
        ),
        (
            "G10: read-ahead takes all of the memory",
            "if is_ahead and ahead_bytes + size_bytes > self._limits.ahead_bytes:",
            "if is_ahead and size_bytes > self._limits.ahead_bytes:",
        ),
        (
            "G10: any number of loads go beyond the bound",
            "        self._is_overdrawn = True\n        self._take",
            "        self._take",
        ),
        (
            "answers never leave room for others",
            "return max(min(whole, unpinned // 2),",
            "return max(whole,",
        ),
    ),
)
