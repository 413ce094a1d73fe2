"""Planted bugs in the state of ledger and settings: what counts, and what is disputed."""

from tests.mutants.edits import Edit, Target

REPLAY = Target(
    "rlmm/replay.py",
    (
        "tests/rlmm/test_replay.py",
        "tests/rlmm/test_manager.py",
        "tests/rlmm/test_replay_properties.py",
        "tests/rlmm/test_ledger_model.py",
    ),
)
LEDGER = Target("rlmm/ledger.py", ("tests/rlmm/test_ledger.py", "tests/rlm/plans"))
COVER = Target(
    "rlmm/cover.py",
    ("tests/rlmm/test_ledger.py", "tests/rlmm/test_ledger_model.py", "tests/rlm/plans"),
)
STORE = Target(
    "rlmm/segment_store.py",
    ("tests/rlmm/test_segment_store.py", "tests/rlmm/test_ledger_model.py"),
)
PACKER = Target("rlmm/record_packer.py", ("tests/rlmm/test_record_packer.py",))
LATER = Target("rlmm/ledger.py", ("tests/rlmm/test_manager.py",))
VIEW = Target(
    "rlmm/settings_view.py",
    (
        "tests/rlmm/test_settings_view.py",
        "tests/rlmm/test_settings.py",
        "tests/rlm/tasks/test_trim.py",
    ),
)
SETTINGS = Target(
    "rlmm/settings.py",
    ("tests/rlmm/test_settings.py", "tests/rlm/tasks/test_h18_live_services.py"),
)


STATUSES = Target("rlm/service/statuses.py", ("tests/rlm/service/test_statuses.py",))

EDITS: tuple[Edit, ...] = (
    *STATUSES.edits(
        (
            "a status does not show the remote log start",
            "view.adopted(StartRecord.KIND, keys)",
            "[None] * len(keys)",
        ),
        (
            "a status does not show the holes on record",
            "view.adopted(HolesRecord.KIND, keys)",
            "[None] * len(keys)",
        ),
    ),
    *LEDGER.edits(
        (
            "H4: the highest end is beyond the log's end",
            "if not cover.has_disputed and cover.reach and cover.reach <= log_end_offset:",
            "if not cover.has_disputed and cover.reach:",
        ),
        (
            "H3: a disputed segment supports the highest end",
            "if not cover.has_disputed and cover.reach and cover.reach <= log_end_offset:",
            "if cover.reach and cover.reach <= log_end_offset:",
        ),
    ),
    *LATER.edits(
        (
            "H6: what a later version recorded is trimmed and deleted over",
            "            return self.later_problem\n",
            "            return None\n",
        ),
    ),
    *REPLAY.edits(
        (
            "a record read twice is taken twice",
            "if offset < self.next_offset:\n            return False",
            "if offset < self.next_offset - 1:\n            return False",
        ),
        (
            "H3: records behind a gap are judged as if nothing were missing",
            "if offset > self.next_offset:\n",
            "if offset > self.next_offset + 1_000_000:\n",
        ),
        (
            "H3: a record that could not be read is no gap",
            "            self.next_offset = offset + 1\n            self._lose_sight(offset + 1)\n",
            "            self.next_offset = offset + 1\n",
        ),
        (
            "H3: the newest epoch may go back",
            "self.newest_epoch = max(self.newest_epoch, leader_epoch)",
            "self.newest_epoch = leader_epoch",
        ),
        (
            "views do not notice a new record",
            "        self.version += 1\n",
            "",
        ),
        (
            "H3: after a long replay absence of records counts as known",
            "        self._absence_is_known = absence_is_known\n",
            "        self._absence_is_known = True\n",
        ),
        (
            "H3: a zombie of an older epoch is lawful",
            "if record.leader_epoch < partition.newest_epoch and (known or certain):",
            "if record.leader_epoch < -1 and (known or certain):",
        ),
        (
            "H3: an epoch equal to the newest is a zombie's",
            "if record.leader_epoch < partition.newest_epoch and (known or certain):",
            "if record.leader_epoch <= partition.newest_epoch and (known or certain):",
        ),
        (
            "H3: a reader who knows less objects to what others accept",
            "elif certain and self._may_know_less(known, record, partition.newest_epoch):",
            "elif certain and not known and self.is_complete:",
        ),
        (
            "H3: an illegal record becomes what is lawful",
            "lawful = record if not why else known.lawful if known else None",
            "lawful = record",
        ),
        (
            "H3: the state is what is lawful, not the newest record",
            "taken = KeyKnowledge(newest=record, lawful=lawful,",
            "taken = KeyKnowledge(newest=lawful or record, lawful=lawful,",
        ),
        (
            "H3: a tombstone that is disputed forgets the key",
            "if record.state_id == _TOMBSTONE and not why:",
            "if record.state_id == _TOMBSTONE:",
        ),
        (
            "H3: a deleted key is forgotten although records may have been missed",
            "if taken.certain and self._absence_is_known:",
            "if taken.certain or self._absence_is_known:",
        ),
        (
            "H3: a deleted key is forgotten too early",
            "if known is not None and known.newest is tombstone and not known.why:",
            "if known is not None and not known.why:",
        ),
        (
            "deleted keys are remembered for ever",
            "while self._tombstones and self._tombstones[0][1].timestamp_ms < oldest_ms:",
            "while self._tombstones and self._tombstones[0][1].timestamp_ms < 0:",
        ),
        (
            "H3: the lawful state is republished as if nothing stood there",
            "            expected_previous=dispute.newest.state_id,\n",
            "            expected_previous=NO_PREVIOUS,\n",
        ),
        (
            "H3: a dispute is settled by what the zombie wrote",
            "metadata=dispute.lawful.metadata if dispute.lawful else None,",
            "metadata=dispute.newest.metadata,",
        ),
        (
            "H3: a writer who expected the lawful state may do anything",
            "if expected == lawful and (lawful, record.state_id) in _TABLE:",
            "if expected == lawful:",
        ),
        (
            "H3: a writer who expected another state may do what the table allows",
            "if expected == lawful and (lawful, record.state_id) in _TABLE:",
            "if (lawful, record.state_id) in _TABLE:",
        ),
        (
            "H3: whoever knew the newest record may replace it by anything",
            "    if _is_correction(known, record):\n",
            "    if known is not None or record:\n",
        ),
        (
            "H3: a correction need not know what it corrects",
            "    if expected != newest:\n",
            "    if expected != newest and not _is_correction(known, record):\n",
        ),
        (
            "H6: an adoption is a dispute",
            "    if record.state_id == _FINISHED:\n        return True\n",
            "",
        ),
        (
            "H3: a writer of the same epoch may undo another one's record",
            "record.leader_epoch > known.newest.leader_epoch",
            "record.leader_epoch >= known.newest.leader_epoch",
        ),
        (
            "H3: a tombstone is lawful after any state",
            "| {(_DELETED, _TOMBSTONE)}",
            "| {(_DELETED, _TOMBSTONE), (_DELETED - 1, _TOMBSTONE)}",
        ),
    ),
    *COVER.edits(
        (
            "H4: a segment that goes beyond its epoch counts whole",
            "and extent.next_offset <= span[1]:",
            "and extent.start_offset <= span[1]:",
        ),
        (
            "H4: a segment that begins before its epoch counts whole",
            "span is not None and span[0] <= first and",
            "span is not None and",
        ),
        (
            "H4: a segment that ends where the log does is not usable",
            "if start < each.next_offset <= log_end_offset",
            "if start < each.next_offset < log_end_offset",
        ),
        (
            "H4: a segment beyond the log's end is usable",
            "or chunk.reach[-1] > log_end_offset:",
            "or False:",
        ),
        (
            "H2: a segment that ends at the remote start is still shown",
            "if start < each.next_offset <= log_end_offset",
            "if start <= each.next_offset <= log_end_offset",
        ),
        (
            "H3: a trim stands on disputed copies",
            "                    and not row.disputed\n",
            "",
        ),
        (
            "H3: a trim stands on a chunk with disputed copies",
            "self.is_solid = not self.has_disputed and all(",
            "self.is_solid = all(",
        ),
        (
            "H11: a trim stands on copies that are gone",
            "                    and Uuid(row.segment) not in without\n",
            "",
        ),
        (
            "H11: a trim stands on a chunk of which copies are gone",
            "takes_all = isinstance(without, Sized) and len(without) == 0",
            "takes_all = True",
        ),
        (
            "H4: a trim stands on a chunk that reaches beyond the log's end",
            "if chunk.is_solid and takes_all and reach <= log_end_offset:",
            "if chunk.is_solid and takes_all:",
        ),
        (
            "H15: a recorded hole ends contiguity for ever",
            "in merge(pieces, sorted(holes)):",
            "in pieces:",
        ),
        (
            "G1: contiguity passes a gap of one offset",
            "            if piece_start > cursor:\n",
            "            if piece_start > cursor + 1:\n",
        ),
        (
            "G1: contiguity passes a gap of one offset inside a chunk",
            "            start <= reach for start, reach in",
            "            start <= reach + 1 for start, reach in",
        ),
        (
            "G1: a short segment behind a long one takes contiguity back",
            "            cursor = max(cursor, piece_end)\n",
            "            cursor = piece_end\n",
        ),
        (
            "H3: disputed copies count for the highest end",
            "if best < end <= log_end_offset and (disputed or not is_disputed):",
            "if best < end <= log_end_offset:",
        ),
        (
            "a lookup gives a segment that ends with the offset",
            "if offset < end <= log_end_offset:",
            "if offset <= end <= log_end_offset:",
        ),
        (
            "H4: a lookup gives a segment beyond the log's end",
            "if offset < end <= log_end_offset:",
            "if offset < end:",
        ),
        (
            "H3: a disputed copy is read although an undisputed one is there",
            "return not disputed, end",
            "return True, end",
        ),
        (
            "H3: a zombie's record hides data that is lawfully there",
            "        for packed in self.disputes.hidden.values():\n",
            "        for packed in ():\n",
        ),
        (
            "H3: a copy whose newest record is no FINISHED is shown as undisputed",
            "            yield packed, True\n",
            "            yield packed, False\n",
        ),
        (
            "H3: a cover that is inherited does not see that a dispute has begun or ended",
            "        if self.disputes is not other.disputes:\n",
            "        if self.disputes is None:\n",
        ),
        (
            "a cover that is inherited keeps what is gone",
            "if row not in lost]",
            "if row]",
        ),
    ),
    *STORE.edits(
        (
            "a view changes with the next record",
            "            self._maker = object()\n        return self._frozen\n",
            "        return self._frozen\n",
        ),
        (
            "a view is not that of the newest record",
            "        self._frozen = None\n        at = bisect_right",
            "        at = bisect_right",
        ),
    ),
    *PACKER.edits(
        (
            "a value under the key of another segment is packed",
            "            or segment != key[_PARTITION_BYTES:]\n",
            "",
        ),
        (
            "offsets that are no range are packed",
            "            or not 0 <= start <= end\n",
            "",
        ),
        (
            "a value of several epochs is packed as one of a single epoch",
            "            or epochs != _ONE_EPOCH\n",
            "",
        ),
    ),
    *LEDGER.edits(
        (
            "H4: what was worked out for one lineage is used for another",
            "return next((one for one in covers if one.lineage == lineage), None)",
            "return next((one for one in covers), None)",
        ),
        (
            "H15: a hole may be empty",
            "if not 0 <= self.start < self.end:",
            "if not 0 <= self.start <= self.end:",
        ),
    ),
    *VIEW.edits(
        (
            "H2: the remote log start goes back",
            "newcomer.remote_log_start_offset < adopted.remote_log_start_offset",
            "newcomer.remote_log_start_offset < 0",
        ),
        (
            "H2: a record of an older epoch is adopted",
            "        if leader_epoch < newest_epoch:\n",
            "        if leader_epoch < -1:\n",
        ),
        (
            "H2: a record of the present epoch is overruled",
            "        if leader_epoch < newest_epoch:\n",
            "        if leader_epoch <= newest_epoch:\n",
        ),
        (
            "H2: the newest epoch of a key may go back",
            "self._newest_epoch[key] = max(self._newest_epoch.get(key, epoch), epoch)",
            "self._newest_epoch[key] = epoch",
        ),
        (
            "what was overruled is not asserted again",
            "            self._overruled[key] = newcomer.offset\n",
            "",
        ),
        (
            "what was asserted again is asserted for ever",
            "        self._overruled.pop(key, None)\n        self._adopted.put(key, newcomer)\n",
            "        self._adopted.put(key, newcomer)\n",
        ),
        (
            "a record that cannot be read is no problem",
            '            self._problems[name] = f"settings offset {offset}: {error}"\n',
            "            name = name\n",
        ),
        (
            "a problem stays when its key was mended",
            "        self._problems.pop(name, None)\n",
            "",
        ),
        (
            "H4: a history that cannot be read is none",
            "        if unread is not None:\n            raise Corrupt(unread)\n",
            "",
        ),
        (
            "the cluster's freeze does not hold for a topic",
            'keys = (FreezeRecord.KIND, f"{FreezeRecord.KIND}/{topic_id}")',
            'keys = (f"{FreezeRecord.KIND}/{topic_id}",)',
        ),
        (
            "a topic's own freeze does not hold",
            'keys = (FreezeRecord.KIND, f"{FreezeRecord.KIND}/{topic_id}")',
            "keys = (FreezeRecord.KIND,)",
        ),
        (
            "the copy limit for all counts before that of a node",
            "keys = (copy_limit_key(node_id), copy_limit_key(None))",
            "keys = (copy_limit_key(None), copy_limit_key(node_id))",
        ),
    ),
    *VIEW.edits(
        (
            "H10: a record that lands late overrules what its writer did not know",
            "            and adopted.offset >= seen\n",
            "            and adopted.offset >= seen + 1_000_000\n",
        ),
        (
            "H10: a new leader cannot overrule what it did not know of an old one",
            "            and leader_epoch <= adopted.stamp.leader_epoch\n",
            "",
        ),
        (
            "H10: a tombstone that lands late takes a newer record away",
            "        if adopted.offset >= knew.seen:\n",
            "        if adopted.offset >= knew.seen + 1_000_000:\n",
        ),
        (
            "an old leader's tombstone takes a newer record away",
            "        if knew.leader_epoch < newest_epoch:\n",
            "        if knew.leader_epoch < -1:\n",
        ),
        (
            "H4: a start is decided under the epoch of its stamp",
            "return NO_LEADER_EPOCH if decided is None else min(decided, found.stamp.leader_epoch)",
            "return found.stamp.leader_epoch",
        ),
    ),
    *SETTINGS.edits(
        (
            "H2: a record counts although it was overtaken or overruled",
            "        if adopted is None or adopted.offset != offset:\n",
            "        if adopted is None:\n",
        ),
        (
            "a tombstone counts although an older record stands",
            "        if adopted is not None and adopted.offset < offset:\n",
            "        if adopted is not None and adopted.offset < 0:\n",
        ),
        (
            "H2: a record is written that is known not to count",
            '        if why:\n            raise Fenced(f"settings record',
            '        if why == "":\n            raise Fenced(f"settings record',
        ),
        (
            "H10: a writer does not say how far it had read",
            "headers = knew.encode() if isinstance(record, FENCED_RECORDS) else ()",
            "headers = ()",
        ),
        (
            "fields of a later version are lost",
            "record = replace(record, extra={**adopted.record.extra, **record.extra})",
            "record = replace(record, extra={**record.extra})",
        ),
        (
            "a leader asserts details of partitions that it does not lead",
            "for found in self.view.reassert if _belongs(found.record, partition)]",
            "for found in self.view.reassert]",
        ),
        (
            "every leader asserts a topic's own record",
            "        return partition == PartitionKey(record.topic_id, 0)\n",
            "        return partition.topic_id == record.topic_id\n",
        ),
        (
            "H6: a topic recreated while nobody looked is no problem",
            "            if known[name] != topic_id:\n",
            "            if known[name] is None:\n",
        ),
        (
            "H6: settings that were not read yet have no problem",
            "        if not self.is_ready:\n            return",
            "        if self.is_ready is None:\n            return",
        ),
        (
            "H6: a record that was not understood is no problem of the settings",
            "return self._log.problem or self.view.problem or self._foreign_topics()",
            "return self._log.problem or self._foreign_topics()",
        ),
        (
            "H16: what the replay brings is a sign of life",
            "read_ms = None if self._is_replay else self._monotonic_ms()",
            "read_ms = self._monotonic_ms()",
        ),
    ),
)
