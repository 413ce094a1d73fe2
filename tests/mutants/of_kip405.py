"""Planted bugs in the vocabulary: lineages of leader epochs, the proof of a segment's bytes, and
the table of settings.
"""

from tests.mutants.edits import Edit, Target

LINEAGE = Target(
    "kip405/lineage.py", ("tests/kip405/test_lineage.py", "tests/kip405/test_lineage_properties.py")
)
CRC = Target("kip405/crc.py", ("tests/kip405/test_crc.py",))
SCAN = Target("kip405/scan.py", ("tests/kip405/test_scan.py",))
SEGMENT_CHECK = Target(
    "kip405/segment_check.py", ("tests/rlm_spark/pipelines/test_segment_audit.py",)
)
SETTINGS = Target("kip405/settings.py", ("tests/kip405/test_settings.py",))

EDITS: tuple[Edit, ...] = (
    *LINEAGE.edits(
        (
            "an epoch without records stays in a lineage and hides its successor",
            "kept[-1].start_offset == entry.start_offset",
            "kept[-1].start_offset > entry.start_offset",
        ),
        (
            "a lineage that does not ascend is taken for a history",
            "before.epoch < entry.epoch and before.start_offset < entry.start_offset",
            "before.epoch < entry.epoch",
        ),
        (
            "H4: the offset at which an epoch begins counts to the epoch before",
            "at = bisect_right(self.entries, offset, key=_start_of)\n        return",
            "at = bisect_left(self.entries, offset, key=_start_of)\n        return",
        ),
        (
            "the next higher epoch of an epoch is that epoch itself",
            "at = bisect_right(self.entries, epoch, key=_epoch_of)\n"
            "        return self.entries[at] if",
            "at = bisect_left(self.entries, epoch, key=_epoch_of)\n"
            "        return self.entries[at] if",
        ),
        (
            "H37: OffsetForLeaderEpoch of an unknown epoch answers for the latest one",
            "if not self.entries or epoch < 0 or epoch > self.entries[-1].epoch:",
            "if not self.entries or epoch < 0:",
        ),
        (
            "H37: OffsetForLeaderEpoch names the epoch asked for, not the one that was there",
            "floor = self.entries[at - 1].epoch if at else epoch\n",
            "floor = epoch\n",
        ),
        (
            "a segment's stored epochs begin below the segment",
            "start_offset=max(start, entry.start_offset))",
            "start_offset=entry.start_offset)",
        ),
        (
            "a segment's stored epochs miss the one that it begins in",
            "first = max(bisect_right(self.entries, start, key=_start_of) - 1, 0)",
            "first = max(bisect_right(self.entries, start, key=_start_of), 0)",
        ),
        (
            "a segment's stored epochs hold the one that begins right behind it",
            "last = bisect_left(self.entries, next_offset, key=_start_of)\n        return tuple(",
            "last = bisect_right(self.entries, next_offset, key=_start_of)\n        return tuple(",
        ),
        (
            "H8: what is left after a trim keeps the epoch that was deleted",
            "first = EpochEntry(epoch=self.entries[gone - 1].epoch, start_offset=log_start_offset)",
            "first = EpochEntry(epoch=self.entries[0].epoch, start_offset=log_start_offset)",
        ),
        (
            "the lineage up to an epoch lacks that epoch",
            "Lineage(self.entries[: bisect_right(self.entries, epoch, key=_epoch_of)])",
            "Lineage(self.entries[: bisect_left(self.entries, epoch, key=_epoch_of)])",
        ),
        (
            "the lineage stored with a segment holds an epoch that begins behind it",
            "Lineage(self.entries[: bisect_left(self.entries, next_offset, key=_start_of)])",
            "Lineage(self.entries[: bisect_right(self.entries, next_offset, key=_start_of)])",
        ),
        (
            "H8: the start that a trim re-based is believed though remote knows a lower one",
            "if remote_start is not None and remote_start < first.start_offset:",
            "if remote_start is not None and remote_start > first.start_offset:",
        ),
        (
            "H4: remote epochs that diverged are merged into the leader's history by offset",
            "if entry.epoch < first.epoch and entry.start_offset < first.start_offset",
            "if entry.start_offset < first.start_offset",
        ),
        (
            "H4: remote epochs that diverged are merged into the leader's history by epoch",
            "if entry.epoch < first.epoch and entry.start_offset < first.start_offset",
            "if entry.epoch < first.epoch",
        ),
        (
            "H4: merged lineage keeps the leader's first entry only",
            "return Lineage((*older, first, *local.entries[1:]))",
            "return Lineage((*older, first))",
        ),
        (
            "H3: segments that are not finished prove epochs",
            "if segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:",
            "if segment.state is not RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:",
        ),
        (
            "an epoch begins where the last segment that knows it does",
            "starts[entry.epoch] = min(\n",
            "starts[entry.epoch] = max(\n",
        ),
        (
            "H4: of two conflicting histories the lower epoch wins",
            "for epoch in sorted((one for one in starts if one <= newest_epoch), reverse=True):",
            "for epoch in sorted(one for one in starts if one <= newest_epoch):",
        ),
        (
            "H4: an epoch that begins where a higher one does is kept",
            "if not kept or starts[epoch] < kept[-1].start_offset:",
            "if not kept or starts[epoch] <= kept[-1].start_offset:",
        ),
        (
            "H4: a later, dead epoch hides older ones",
            "one for one in starts if one <= newest_epoch",
            "one for one in starts if one <= newest_epoch + 1",
        ),
        (
            "H4: proven divergence does not shorten what is usable of a segment",
            "return end if conflict is None else min(end, max(conflict, segment.start_offset))",
            "return end",
        ),
        (
            "H4: an epoch that begins elsewhere than the leader's counts as the same history",
            "if start is None or not begins_alike:",
            "if start is None:",
        ),
        (
            "H4: a segment may begin in an epoch before that epoch began",
            "entry.start_offset >= start or entry.epoch == (first and first.epoch)",
            "True",
        ),
        (
            "H8: a segment that begins below a re-based first epoch is refused",
            "entry.start_offset >= start or entry.epoch == (first and first.epoch)",
            "entry.start_offset >= start",
        ),
        (
            "H8: an epoch that begins right behind a segment proves that it diverged",
            "if entry.start_offset > segment.end_offset:",
            "if entry.start_offset > segment.next_offset:",
        ),
        (
            "H8: an epoch that begins with a segment's last offset proves nothing",
            "if entry.start_offset > segment.end_offset:",
            "if entry.start_offset >= segment.end_offset:",
        ),
        (
            "H8: a lower epoch of the lineage proves that a segment diverged",
            "if epoch is not None and entry.epoch > epoch:",
            "if epoch is not None and entry.epoch != epoch:",
        ),
    ),
    LINEAGE.harmless(
        "`divergence` ends the segment at the same offset: each of the two guards stands for both",
        "H4: a segment counts beyond the start of the leader's next epoch",
        "if lineage_next and lineage_next.start_offset < own_end:",
        "if lineage_next and lineage_next.start_offset < segment.start_offset:",
    ),
    *SEGMENT_CHECK.edits(
        (
            "G9: an object of the right size is not compared with its checksum",
            "elif crc != wanted:",
            "elif crc != wanted and not size:",
        ),
        (
            "G9: an index entry that leads to a later batch is not noticed",
            "header.base_offset > lowest:",
            "header.base_offset < lowest:",
        ),
        (
            "G9: an index entry that leads between two batches is not noticed",
            "self._astray += [(offset, position) for position, offset in self._indexed.items()]",
            "self._indexed.clear()",
        ),
        (
            "G9: a segment that ends before its metadata says passes the check",
            "if scan.last_offset != metadata.end_offset:",
            "if scan.last_offset > metadata.end_offset:",
        ),
        (
            "H9: an aborted list that lacks the segment's own transactions passes the check",
            "needed - listed",
            "listed - needed",
        ),
        (
            "G9: the batches' checksums are not checked once the object has ended",
            "if self._problem is not None:\n                raise self._problem",
            "if self._problem is not None:\n                return",
        ),
    ),
    *SCAN.edits(
        (
            "H8: what a re-based epoch file does not know is compared with it",
            "            if offset >= first.start_offset\n",
            "",
        ),
        (
            "H13: the last batch of an epoch is not compared with the checkpoint",
            "            for offset in (entry.start_offset, last_base)\n",
            "            for offset in (entry.start_offset,)\n",
        ),
        (
            "H13: the first batch of an epoch is not compared with the checkpoint",
            "            for offset in (entry.start_offset, last_base)\n",
            "            for offset in (last_base,)\n",
        ),
        (
            "G9: checksums of batches are not looked at while copying",
            "            check_crc(buffer, position, header)\n",
            "",
        ),
        (
            "H13: offsets of a segment may go back",
            "self._least_offset <= header.base_offset <= header.last_offset < self._next_offset",
            "header.base_offset <= header.last_offset < self._next_offset",
        ),
        (
            "H13: a batch may begin with the offset that the one before ended with",
            "self._least_offset = header.last_offset + 1",
            "self._least_offset = header.last_offset",
        ),
        (
            "H13: a segment may hold the offset that the next one begins with",
            "header.base_offset <= header.last_offset < self._next_offset",
            "header.base_offset <= header.last_offset <= self._next_offset",
        ),
        (
            "H13: leader epochs may go back within a segment",
            "if header.leader_epoch < known:",
            "if header.leader_epoch < NO_EPOCH:",
        ),
        (
            "H13: only the first batch of an epoch is noted",
            "        self._last_base_offsets[-1] = header.base_offset\n",
            "",
        ),
        (
            "a file that ends inside a batch is copied",
            "if self._carry:\n            raise",
            "if not self._batch_count:\n            raise",
        ),
        (
            "H9: a transactional batch is forgotten when a plain one follows",
            "self._has_transactions = self._has_transactions or header.is_transactional",
            "self._has_transactions = header.is_transactional",
        ),
        (
            "retention by time goes by the last batch, not by the newest record",
            "self._max_timestamp_ms = max(self._max_timestamp_ms, header.max_timestamp_ms)",
            "self._max_timestamp_ms = header.max_timestamp_ms",
        ),
        (
            "a torn length is waited for with all of the memory",
            "if size is not None and size > self._max_batch_bytes:",
            "if size is not None and size > self._max_batch_bytes * 1024:",
        ),
        (
            "checksums of chunks are of another chunk size than they say",
            "self._checksums = ChunkedCrc32c(chunk_size_bytes)",
            "self._checksums = ChunkedCrc32c(DEFAULT_CHUNK_BYTES)",
        ),
    ),
    *CRC.edits(
        (
            "G9: the checksum of a whole is joined as if each part had the size of a chunk",
            "return joined_crc32c(self._whole, self._chunk, open_bytes)",
            "return joined_crc32c(self._whole, self._chunk, self._chunk_size_bytes)",
        ),
        (
            "G9: the parts of a whole may change places",
            "return _product(_power_of_bytes(second_bytes), first) ^ second",
            "return _product(_power_of_bytes(second_bytes), first ^ second)",
        ),
    ),
    *SETTINGS.edits(
        (
            "the value of a secret is in the refusal of it",
            "            if self.secret:\n                raise Invalid(",
            "            if self.secret and not value:\n                raise Invalid(",
        ),
        (
            "the value of a secret is in the cause of its refusal",
            'raise Invalid(f"{name}: must be {self.kind.allowed}") from None',
            'raise Invalid(f"{name}: must be {self.kind.allowed}: {error}") from error',
        ),
        (
            "of two names of one setting the last is used",
            "            if key in found:\n",
            "            if key in found and name == key:\n",
        ),
        (
            "a required setting that is missing is None",
            "                if row.is_required:\n",
            "                if row.is_required and row.aliases == ():\n",
        ),
        (
            "a name that only begins like another one is taken for it",
            "return name.startswith(self.key[:-1]) and len(name) >= len(self.key)",
            "return name.startswith(self.key[:-2])",
        ),
        (
            "a flag is read as a number",
            "if type(value) is not int or value < least",
            "if not isinstance(value, int) or value < least",
        ),
        (
            "a part of a longer secret is left in a text",
            "return sorted(spellings, key=len, reverse=True)",
            "return sorted(spellings, key=len)",
        ),
        (
            "a secret that JSON escapes is left in a text",
            "            json.dumps(secret)[1:-1],\n"
            "            json.dumps(secret, ensure_ascii=False)[1:-1],\n",
            "",
        ),
    ),
)
