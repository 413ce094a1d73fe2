"""Planted bugs in imports of another uploader's bucket: what is taken, and what is left alone."""

from tests.mutants.edits import Edit, Target

_IMPORT = "tests/rlm/imports/test_import.py"
_WRONG_USE = "tests/rlm/imports/test_wrong_use.py"
_COMMAND = "tests/rlm/cli/test_import.py"
_LAYOUT = "tests/rsm_plugins/test_pinterest_layout.py"
_STOPS = "tests/rlm/imports/test_stops.py"
_INDEXES = "tests/kip405/test_rebuilt_indexes.py"
_OVERLAPS = "tests/rlm/imports/test_overlaps.py"
_LATER = "tests/rlm/imports/test_overlaps_later.py"
_LISTINGS = "tests/rlm/imports/test_listings.py"
_HISTORIES = "tests/rlm/imports/test_histories.py"
_TWO = "tests/rlm/imports/test_two_imports.py"
_STOPS_LATER = "tests/rlm/imports/test_stops_later.py"
PLAN = Target("rlm/plans/pinterest_import.py", (_IMPORT,))

RUN = Target("rlm/imports/run.py", (_WRONG_USE,))
STOPPED = Target("rlm/imports/partition.py", (_WRONG_USE,))
PARTITION = Target("rlm/imports/partition.py", (_IMPORT,))
STOPS = Target("rlm/imports/stops.py", (_STOPS,))
STOPPING = Target("rlm/imports/run.py", (_STOPS,))
WAITING = Target("rlm/imports/partition.py", (_STOPS,))
STOP_IDS = Target("rsm_plugins/layout/import_stops.py", (_TWO,))
FOUND_LESS = Target("rlm/imports/run.py", (_STOPS_LATER,))
LACKING = Target("rlm/imports/partition.py", (_STOPS_LATER,))
FOUND_LATER = Target("rlm/imports/run.py", (_TWO,))
SURVEY = Target("rlm/tasks/store_survey.py", (_STOPS,))
DOWNLOAD = Target("rlm/download/store_plans.py", (_STOPS,))
SOURCES = Target("rlm/download/sources.py", (_STOPS,))
LISTED = Target("rlm/tasks/settled_listing.py", (_LISTINGS,))
RANDOM = Target("rlm/tasks/settled_listing.py", (_HISTORIES,))
SURVEYED = Target("rlm/tasks/store_survey.py", (_LISTINGS,))
ATTACHED = Target("rlm/tasks/attachment.py", (_LISTINGS,))
DOWNLOADED = Target("rlm/download/sources.py", (_LISTINGS,))
MANAGER = Target("rsm_plugins/pinterest/manager.py", (_IMPORT,))
COMMAND = Target("rlm/cli/imports.py", (_COMMAND,))
OWN = Target("rsm_plugins/local/manager.py", (_IMPORT,))
EVIDENCE = Target("rlm/tasks/evidence.py", (_IMPORT,))
LAYOUT = Target("rsm_plugins/layout/pinterest.py", (_LAYOUT,))
INDEXES = Target("kip405/rebuilt_indexes.py", (_INDEXES,))
OVERLAPS = Target("rlm/imports/overlaps.py", (_OVERLAPS,))
OVERLAPPING = Target("rlm/imports/partition.py", (_OVERLAPS,))
REPEATED = Target("rlm/imports/scanned.py", (_OVERLAPS,))
OUT_OF_ORDER = Target("rlm/plans/pinterest_import.py", (_LATER,))
THREE = Target("rlm/imports/partition.py", (_LATER,))
SETTLED = Target("rlm/plans/pinterest_import.py", (_OVERLAPS,))

EDITS: tuple[Edit, ...] = (
    *PLAN.edits(
        (
            "segments above the watermark are taken",
            "if one.base_offset <= watermark)\n    warnings +=",
            "if one.base_offset >= 0)\n    warnings +=",
        ),
        (
            "a gap is accepted by nobody's decision",
            "    if not accepts_gaps:\n        raise Invalid(\n",
            "    if accepts_gaps:\n        raise Invalid(\n",
        ),
        (
            "a segment without its log is no gap",
            "    if lost and lost[0] < watermark and not accepts_gaps:\n",
            "    if lost and lost[0] > watermark and not accepts_gaps:\n",
        ),
        (
            "a log that was replaced after its import is as good",
            "known.segment_size_bytes != log.size_bytes:\n",
            "known.segment_size_bytes < 0:\n",
        ),
        (
            "leader epochs may fall from one log to the next",
            "        if latest is not None and one.epoch < latest:\n",
            "        if latest is not None and one.epoch < 0:\n",
        ),
    ),
    *PARTITION.edits(
        (
            "H9: a segment is imported while its transactions are open",
            "            if opened is not None and opened < waiting[0].next_offset:\n",
            "            if opened is not None and opened < 0:\n",
        ),
        (
            "H9: transactions of logs that were imported before are not known",
            "            if reading.has_transactions and first > 0:\n",
            "            if reading.has_transactions and first < 0:\n",
        ),
    ),
    *STOPPED.edits(
        (
            "a log that was cut short at a batch is imported, and cannot be mended any more",
            "            await self._check_following(log, reading, tracked_to, left)\n",
            "            if left and left[0].base_offset < tracked_to:\n"
            "                await self._check_following(log, reading, tracked_to, left)\n",
        ),
        (
            "segments that wait before a damaged log are not reported",
            "self._state(self._tracker, self._waiting)",
            "self._state(TransactionTracker(), ())",
        ),
    ),
    *OVERLAPS.edits(
        (
            "H4: logs that overlap are of one history",
            "        if first != second:\n",
            "        if len(first) != len(second):\n",
        ),
        (
            "H4: of logs that overlap only the first piece is compared",
            "    for start in range(0, shared_bytes, READ_BYTES):\n",
            "    for start in range(0, min(shared_bytes, READ_BYTES), READ_BYTES):\n",
        ),
        (
            "H4: what reaches beyond the log before it is a copy",
            "    if other.size_bytes > shared_bytes:\n",
            "    if other.size_bytes < shared_bytes:\n",
        ),
        (
            "a copy that is cut short is a copy",
            "    await LogReading(other, TransactionTracker()).read(objects, other_name)\n",
            "",
        ),
        (
            "another offset is named than the first that differs",
            "        if begins + at <= position:\n",
            "        if at <= position:\n",
        ),
    ),
    *OVERLAPPING.edits(
        (
            "H9: what the next log repeats is forgotten",
            "            tracker.forget_below(scanned.log.base_offset)",
            "            tracker.forget_below(scanned.next_offset)",
        ),
        (
            "epochs of the end that is repeated stay",
            "lineage_with(lineage.below(log.base_offset), log, scan)\n",
            "lineage_with(lineage, log, scan)\n",
        ),
        (
            "H4: what overlaps a log that has gone is imported",
            "            if one.start_offset < next_offset and log",
            "            if one.start_offset > next_offset and log",
        ),
        (
            "the log in which a new one begins is not read again",
            "    return at if end > logs[first].base_offset else first\n",
            "    return first\n",
        ),
        (
            "what was compared before must be there to compare",
            "        if log.imported is not None:\n            end = min(end, log.base_offset)\n",
            "",
        ),
    ),
    *REPEATED.edits(
        (
            "H9: a transaction begins again where the next log repeats its records",
            "            if not header.is_control and header.base_offset >= self._tracked_to:\n",
            "            if not header.is_control:\n",
        ),
        (
            "H4: a log may begin inside a batch of the one before",
            "            if self._base == header.base_offset:\n",
            "            if self._base <= header.last_offset:\n",
        ),
    ),
    *SETTLED.edits(
        (
            "H4: a log that is newer than the import was passed over by it",
            "            and log.modified_ms + _LONGEST_UPLOAD_MS < latest_ms\n",
            "",
        ),
        (
            "copies are compared again with each import",
            "        if not is_settled:\n",
            "        if is_settled or not is_settled:\n",
        ),
    ),
    *OUT_OF_ORDER.edits(
        (
            "H4: what was uploaded slowly counts as passed over",
            "            and log.modified_ms + _LONGEST_UPLOAD_MS < latest_ms\n",
            "            and log.modified_ms < latest_ms\n",
        ),
        (
            "a copy whose first log has gone refuses its partition",
            "        refused=_refusal(kept, whole, ",
            "        refused=_refusal(taken, whole, ",
        ),
    ),
    *THREE.edits(
        (
            "H4: a log is only compared with the next one",
            "                going_on.append(other)\n",
            "                left.appendleft(other)\n                return\n",
        ),
        (
            "H4: an imported log that was replaced proves others",
            "            _check_unchanged(log, scan)\n",
            "",
        ),
    ),
    *RUN.edits(
        (
            "a damaged watermark stops all partitions",
            "        except Corrupt as error:\n            there",
            "        except NotFound as error:\n            there",
        ),
    ),
    *STOPPING.edits(
        (
            "H4: readers take the end of a refused import for the end of all",
            "stops.end(stop_of(plan, ends, ours.doubtful), why)\n",
            "stops.end(stop_of(plan, ends, ours.doubtful), None)\n",
        ),
        (
            "H4: readers take the end of a killed import for the end of all",
            "        if plan.new and not is_growing:\n",
            "        if plan.new and is_growing:\n",
        ),
        (
            "a manifest of ours that cannot be used is passed over",
            "        if ours.unusable:\n",
            "        if ours.unusable == partition:\n",
        ),
        (
            "a watermark is newer than the listing that it is held against",
            "        try:\n            watermark = await self._watermark(found)\n",
            "        segments = await self._segments(found)\n"
            "        try:\n            watermark = await self._watermark(found)\n"
            "            if watermark is not None and watermark not in segments:\n"
            "                raise Corrupt(str(watermark))\n",
        ),
    ),
    *WAITING.edits(
        (
            "H4: readers take the watermark of an uploader that has ended for the end",
            "        if self.plan.beyond and not is_growing:\n",
            "        if self.plan.beyond and is_growing:\n",
        ),
        (
            "H4: a segment of ours that was removed is a hole where its import stops",
            "    return min(end, _covered_to(",
            "    return max(end, _covered_to(",
        ),
        (
            "a log that overlaps ours refuses what was imported",
            "        offset = max(offset, ends[start])\n",
            "        offset = max(offset, start)\n",
        ),
        (
            "H4: readers take a log that stopped the import for the end",
            "        if self.stopped is not None:\n            return f",
            "        if self.stopped is None:\n            return f",
        ),
        (
            "H4: segments that wait are no reason for a stop",
            "        if self.held_back and (self.is_cut_off",
            "        if not self.held_back and (self.is_cut_off",
        ),
    ),
    *STOPS.edits(
        (
            "a stop stays for good",
            "        await self._remove(before)\n",
            "",
        ),
    ),
    *STOP_IDS.edits(
        (
            "H4: an import removes the stop of another one that runs",
            "        parts = (str(import_id), str(self.partition)",
            "        parts = (str(self.partition)",
        ),
    ),
    *FOUND_LESS.edits(
        (
            "a partition that has gone from their bucket says nothing",
            "        plans += [one async for one in self._vanished(set(found), own)]\n",
            "",
        ),
        (
            "H4: a refusal takes the stop at a missing segment for one behind it",
            "stops.end(stop_of(plan, ends, ours.doubtful), why)\n",
            "stops.end(stop_of(plan, ends), why)\n",
        ),
        (
            "H4: an import forgets where others have stopped",
            "            doubtful=ours.doubtful,\n",
            "            doubtful=(),\n",
        ),
        (
            "H4: a manifest that cannot be used is a gap once it is removed",
            "for one in (*self.stops, *self.unusable))\n",
            "for one in self.stops)\n",
        ),
    ),
    *FOUND_LATER.edits(
        (
            "a partition that another import has found meanwhile has gone",
            " or await self._segments(of):\n",
            ":\n",
        ),
    ),
    *LACKING.edits(
        (
            "a refusal stops where their log never was",
            "default=plan.begins_at)\n",
            "default=0)\n",
        ),
        (
            "H4: a stop goes though something is missing behind it",
            "            self._check_doubtful()\n",
            "",
        ),
        (
            "H4: a log that fills a gap stops behind it",
            "        offset = max(offset, ends[start])\n",
            "        offset = max(offset, *ends.values())\n",
        ),
    ),
    *SURVEY.edits(
        (
            "H4: a stop that goes while manifests are read was none",
            "            if is_stop_id(parsed.segment_id):\n",
            "            if not parsed.segment_id:\n",
        ),
    ),
    *DOWNLOAD.edits(
        (
            "H4: a download passes a stop over",
            "            for one in partition.stops\n",
            "            for one in partition.stops[:0]\n",
        ),
    ),
    *SOURCES.edits(
        (
            "H4: a download takes what was listed before an import ended for all",
            "            if is_stop_id(parsed.segment_id):\n",
            "            if not parsed.segment_id:\n",
        ),
    ),
    *LISTED.edits(
        (
            "H4: a stop that comes and goes between two listings was none",
            "_LISTINGS = 2\n",
            "_LISTINGS = 1\n",
        ),
    ),
    *RANDOM.edits(
        (
            "H4: every listing is settled",
            "        for _ in range(_LISTINGS):\n",
            "        for _ in range(0):\n",
        ),
    ),
    *SURVEYED.edits(
        (
            "H4: a listing that is never settled counts",
            "            found.unsettled(one, is_import=True, is_whole=False)\n",
            "            pass\n",
        ),
        (
            "H4: what a second listing has added is not read",
            "        await self._read_twice(store, found, names, caller)\n",
            "",
        ),
    ),
    *ATTACHED.edits(
        (
            "H4: a partition that was settled is listed once more for its gaps",
            "{*self._read, *gone, *vanished, *self._unsettled} - {one.key for one in settled}\n",
            "{*self._read, *gone, *vanished, *self._unsettled}\n",
        ),
        (
            "H4: segments of an import are listed once",
            "        return self._imported | self._stopped | _stopped((found,))\n",
            "        return self._stopped | _stopped((found,))\n",
        ),
        (
            "H4: a stop that has gone leaves nothing that a listing may have missed",
            "        return self._imported | self._stopped | _stopped((found,))\n",
            "        return self._imported | _stopped((found,))\n",
        ),
        (
            "H4: nothing that a listing has missed lies below a stop",
            "        return self._imported | self._stopped | _stopped((found,))\n",
            "        return self._imported | self._stopped\n",
        ),
    ),
    *DOWNLOADED.edits(
        (
            "H4: a download lists what was settled once more for its gaps",
            "            imports.append(partition)\n            continue\n",
            "            imports.append(partition)\n",
        ),
        (
            "H4: a download lists imported segments once",
            "        if any(map(_is_of_import, there)):\n",
            "        if not there:\n",
        ),
    ),
    *COMMAND.edits(
        (
            "a partition that was stopped by a damaged log counts as imported",
            "not one.held_back and one.why_not_whole(is_growing=is_growing) is None\n",
            "not one.held_back\n",
        ),
    ),
    *MANAGER.edits(
        (
            "their log need not be there",
            "        if size_bytes == expected.log_size_bytes:\n            return own\n",
            "        if size_bytes != expected.log_size_bytes:\n            return own\n",
        ),
        (
            "H11: a bucket that is away has lost its logs",
            "        except NotFound as error:\n            raise Unavailable(\n",
            "        except NotFound as error:\n            raise NotFound(\n",
        ),
        (
            "other settings than those of the import find another log",
            "        check_mark(locator, name)\n        return name\n",
            "        return name\n",
        ),
        (
            "a deletion of ours reaches their log",
            "        await self._own.delete_log_segment_data(locator)\n",
            "        await self._own.delete_log_segment_data(locator)\n"
            "        __import__('os').remove(self.uploaded._base / self._log_of(locator))\n",
        ),
        (
            "a copy of ours is written into an imported segment",
            "        if is_marked(locator):\n            raise Invalid(f",
            "        if not is_marked(locator):\n            raise Invalid(f",
        ),
    ),
    *OWN.edits(
        (
            "a store that does not name their bucket finds imported segments damaged",
            "        refuse_marked(locator)\n",
            "",
        ),
    ),
    *EVIDENCE.edits(
        (
            "H6: nothing can use the manifest of an imported segment",
            "        layout = MANIFEST_LAYOUT\n",
            "        pass\n",
        ),
    ),
    *LAYOUT.edits(
        (
            "what is no offset counts as a watermark",
            "    if not _OFFSET.fullmatch(text) or int(text) > MAX_OFFSET:\n",
            "    if not _OFFSET.match(text):\n",
        ),
    ),
    *INDEXES.edits(
        (
            "H9: an abort counts from its marker",
            "        aborted = AbortedTransaction(header.producer_id, first, header.last_offset)\n",
            "        aborted = AbortedTransaction(\n"
            "            header.producer_id, header.base_offset, header.last_offset\n"
            "        )\n",
        ),
        (
            "H9: an abort that a later segment has is left out of the list",
            "            if one.aborted.last_offset >= start and",
            "            if start <= one.aborted.last_offset < next_offset and",
        ),
    ),
)
