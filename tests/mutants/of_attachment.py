"""Planted bugs in what an attached reader serves: doubts, starts, and what it must not change."""

from tests.mutants.edits import Edit, Target

_API = "tests/rlm/api/test_h04_attached.py"
PLAN = Target("rlm/plans/attachment.py", ("tests/rlm/plans/test_h04_attachment.py",))
STATE = Target("rlm/remote_log/remote_state.py", (_API,))
READING = Target("rlm/remote_log/remote_only.py", (_API,))
TASK = Target("rlm/tasks/attachment.py", (_API,))
TASK_LISTED = Target("rlm/tasks/attached_gaps.py", (_API,))
SURVEY = Target("rlm/tasks/store_survey.py", (_API,))
LINEAGES = Target("rlm/tasks/stored_lineages.py", (_API,))
_LISTINGS = ("tests/rlm/tasks/test_h15_listings.py",)
LISTED = Target("rlm/tasks/settled_listing.py", _LISTINGS)
UNKNOWN = Target("rlm/remote_log/remote_state.py", _LISTINGS)
GAPS = Target("rlm/tasks/attached_gaps.py", _LISTINGS)
TASK_GAPS = Target("rlm/tasks/attachment.py", _LISTINGS)
RELISTED = Target("rlm/tasks/settled_listing.py", ("tests/rlm/tasks/test_relisting.py",))
SURVEYED = Target("rlm/tasks/store_survey.py", _LISTINGS)
_VANISHED = ("tests/rlm/tasks/test_h15_vanished.py",)
VANISHED_GAPS = Target("rlm/tasks/attached_gaps.py", _VANISHED)
VANISHED_TASK = Target("rlm/tasks/attachment.py", _VANISHED)
STARTS = Target("rlm/tasks/attached_starts.py", _VANISHED)
STORES = Target("rlm/service/attached_stores.py", ("tests/rlm/cli/test_attach.py",))

EDITS: tuple[Edit, ...] = (
    *PLAN.edits(
        (
            "H15: an operator accepts what a listing may have missed",
            "[one for one in unread if one.is_unsettled or not is_accepted]",
            "[one for one in unread if not is_accepted]",
        ),
        (
            "H4: readers are sent to a start above what can be read later",
            "    first = min([first, *(one.start_offset for one in left_out if ",
            "    first = min([first, *(one.start_offset for one in () if ",
        ),
        (
            "H4: copies of two histories are no doubt",
            "        if epochs[0] != epochs[1]:\n",
            "        if epochs[0] is None:\n",
        ),
        (
            "H4: a published history of one of the leaders ends the doubt",
            "if max(one.epochs) > proven]",
            "if min(one.epochs) > proven]",
        ),
        (
            "H4: what the newest segment has stored does not count",
            "    if stored is None or latest is None:\n",
            "    if stored is None or latest is not None:\n",
        ),
        (
            "H4: a freeze of the backup is lifted by nobody's decision",
            "        if not is_accepted:\n            return published\n",
            "        if is_accepted:\n            return published\n",
        ),
        (
            "H4: the end of a segment behind a contradiction is left out",
            "    for start, next_offset in missed(left, taken):\n",
            "    for start, next_offset in missed(left, taken)[:0]:\n",
        ),
        (
            "a manifest that cannot be used is left out",
            "    found = (*disputed, *_from_unread(left_out, whole_to))\n",
            "    found = tuple(disputed)\n",
        ),
        (
            "H4: what imports may have written into a gap is passed over",
            "    return gaps[0][0] if gaps else _end(",
            "    return _end(",
        ),
        (
            "all of a partition is refused while imports write there",
            "whole_to() if one.start_offset is None",
            "0 if one.start_offset is None",
        ),
        (
            "H2: the start of the backup alone counts",
            "        return max(known, manifest_start_offset)\n",
            "        return known\n",
        ),
        (
            "H2: the starts of the manifests do not count",
            "    return max(first, manifest_start_offset)\n",
            "    return first\n",
        ),
    ),
    *STATE.edits(
        (
            "H4: a doubtful offset is served",
            "            if doubt.start <= offset < doubt.next_offset:\n",
            "            if doubt.start < offset < doubt.next_offset:\n",
        ),
        (
            "H4: a read goes on into a doubt",
            "                return doubt.start\n",
            "                return MAX_OFFSET\n",
        ),
        (
            "a hidden end is taken for the end",
            "            if doubt.next_offset > self.next_offset:\n",
            "            if doubt.next_offset > MAX_OFFSET:\n",
        ),
    ),
    *READING.edits(
        (
            "H4: a timestamp is found beyond a doubt",
            "        state.refuse_doubtful(MAX_OFFSET if found is None else found.offset + 1)\n",
            "        state.refuse_doubtful(0 if found is None else found.offset + 1)\n",
        ),
    ),
    *TASK_LISTED.edits(
        (
            "what was read before a failure, and is gone since, is served",
            "if is_in(listed, key, own_id)]",
            "if own_id]",
        ),
        (
            "what was deleted in the store stays",
            "            if segment_id not in gone:\n",
            "            if segment_id:\n",
        ),
    ),
    *TASK.edits(
        (
            "a backup of another cluster counts",
            "    if backup.cluster.cluster_id != cluster_id:\n",
            "    if not backup.cluster.cluster_id:\n",
        ),
    ),
    *SURVEY.edits(
        (
            "a manifest that cannot be read is left out",
            "        for one in failed:\n            found.unreadable += 1\n",
            "        for one in failed[:0]:\n            found.unreadable += 1\n",
        ),
    ),
    *LINEAGES.edits(
        (
            "H4: the history that an old segment has stored counts",
            "        highest = max(map(_last_epoch, found))\n",
            "        highest = min(map(_last_epoch, found))\n",
        ),
    ),
    *LISTED.edits(
        (
            "H15: a copy of another leader epoch ends where the next segment begins",
            "        return self._covers.get(epoch, Cover()).holds(offset, offset + 1)\n",
            "        return any(one.holds(offset, offset + 1) for one in self._covers.values())\n",
        ),
    ),
    *UNKNOWN.edits(
        (
            "H15: for what will be known later an operator has to decide",
            "        if doubt.is_unsettled:\n",
            "        if not doubt.text:\n",
        ),
    ),
    *RELISTED.edits(
        (
            "H15: what a listing of the whole store has of others is taken, too",
            "if parsed is None or (key := identity_of(parsed)[0]) not in keys:",
            "if parsed is None or not (key := identity_of(parsed)[0]):",
        ),
        (
            "H4: a partition whose name is cut is listed where another one would lie",
            " or any(len(one.topic) == TOPIC_CUT for one in partitions)\n",
            "\n",
        ),
        (
            "H4: a partition counts as settled while another one is listed",
            "self.once([one for one in partitions if one.key not in added])\n",
            "self.once([] if added else partitions)\n",
        ),
    ),
    *GAPS.edits(
        (
            "H15: what a listing has missed is passed over like a gap",
            "            if unseen:\n",
            "            if unseen and key in gone:\n",
        ),
        (
            "H15: where a copy has gone no other one has taken its place",
            "        is_open = bool(lost) or key in self.unsettled\n",
            "        is_open = key in self.unsettled\n",
        ),
        (
            "H15: a round that has not settled a partition needs one listing to be right",
            "        is_open = bool(lost) or key in self.unsettled\n",
            "        is_open = bool(lost)\n",
        ),
        (
            "H15: where the last copy has gone no other one has taken its place",
            "above_gaps(fresh, records, start), *without_end(lost, records, start)):\n",
            "above_gaps(fresh, records, start), *above_gaps(lost, records, start)):\n",
        ),
        (
            "H15: what a round that failed has read is there as long as it has no manifest",
            "        lost = [read[one].metadata for one in read.keys() - new]\n",
            "        lost = [read[one].metadata for one in read.keys() & set[Uuid]()]\n",
        ),
        (
            "H15: no segment is missing below the first one that was listed",
            "        start = max([self.decided_start(key), *starts])\n",
            "        start = min((one.start_offset for one in known), default=0)\n",
        ),
        (
            "H15: a gap that stays makes its partition doubtful",
            "            unseen = [one for one in opened if one not in self._seen]\n",
            "            unseen = [one for one in opened]\n",
        ),
    ),
    *TASK_GAPS.edits(
        (
            "H15: a segment that is missed was copied to the store of the next one",
            "            for one in surveys:\n                caller = ",
            "            for one in surveys[-1:]:\n                caller = ",
        ),
        (
            "H4: an import that begins while gaps are listed is served at once",
            "        for partition in {*left, *self._begun}:\n",
            "        for partition in left:\n",
        ),
        (
            "H15: what copies may lack is served below a gap in offsets, in later rounds",
            "            is_import = partition in self._begun  # settled",
            "            is_import = True  # settled",
        ),
        (
            "H15: a listing with a new gap each time counts",
            "        for partition in {*left, *self._begun}:\n",
            "        for partition in self._begun:\n",
        ),
    ),
    *SURVEYED.edits(
        (
            "H15: what one more listing has added is not read",
            "        added = await self._relisting(store, found, caller).once(partitions)\n",
            "        added: Added = {}\n",
        ),
    ),
    *VANISHED_GAPS.edits(
        (
            "H15: what could not be read and has gone had no other copy in its place",
            "    for one in (*unread, since):\n",
            "    for one in unread:\n",
        ),
        (
            "H15: what goes before it is read had no other copy in its place",
            "    for one in (*unread, since):\n",
            "    for one in (since,):\n",
        ),
        (
            "H15: where a copy that was never read has gone, no other one has taken its place",
            "self._open(key, listed, gone), *unread)\n",
            "self._open(key, listed, gone), *())\n",
        ),
    ),
    *VANISHED_TASK.edits(
        (
            "H15: one store of a partition with imports was listed before another one got more",
            "        settled = self._imported | self._stopped if len(surveys) == 1 else set()\n",
            "        settled = self._imported | self._stopped\n",
        ),
        (
            "H4: half an import that one more listing shows is served where others were before",
            "            self._begun.add(segment_id.topic_id_partition)\n",
            "",
        ),
        (
            "H4: the start of what was discarded stays",
            "                self._starts.left(key, segments)\n",
            "                self._starts.of(key)\n",
        ),
    ),
    *STARTS.edits(
        (
            "H2: a start is forgotten with the segments of its leader",
            "        if any(one.next_offset <= start for one in segments):\n",
            "        if segments:\n",
        ),
        (
            "H2: the start of a leader that has segments left is forgotten",
            "for epoch, at in known.items() if epoch >= first}",
            "for epoch, at in known.items() if epoch > first}",
        ),
        (
            "H2: a lower start that is read later counts",
            "        if any(other >= epoch and known[other] >= start for other in known) or ",
            "        if any(other >= epoch and known[other] >= start for other in ()) or ",
        ),
    ),
    *STORES.edits(
        (
            "H11: the store of another cluster is attached",
            "            if identity.cluster_id != self.cluster_id:\n",
            "            if not identity.cluster_id:\n",
        ),
    ),
)
