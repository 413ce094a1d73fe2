"""Planted bugs in what deletes segments of dead histories: proof, replacement, age, number."""

from tests.mutants.edits import Edit, Target

PLAN = Target("rlm/plans/unreferenced.py", ("tests/rlm/plans/test_h08_unreferenced.py",))
TASK = Target("rlm/tasks/unreferenced.py", ("tests/rlm/tasks/test_h08_unreferenced.py",))
STEPS = Target("rlm/tasks/expiration.py", ("tests/rlm/tasks/test_h08_unreferenced.py",))

EDITS: tuple[Edit, ...] = (
    *PLAN.edits(
        (
            "H8: an absent epoch counts as divergence",
            "    return has_diverged and usable_end",
            "    return has_diverged is not None and usable_end",
        ),
        (
            "H8: a segment goes of which a part is in the lineage",
            "usable_end(metadata, lineage) <= metadata.start_offset",
            "usable_end(metadata, lineage) <= metadata.end_offset",
        ),
        (
            "H11: the segments that replace another are not among those to be seen",
            "    return one.start_offset < other.next_offset and ",
            "    return one.start_offset < other.start_offset and ",
        ),
        (
            "H8: any number of orphans goes without an operator",
            "    if len(unaccepted) > view.max_orphans:\n",
            "    if len(unaccepted) > 100:\n",
        ),
        (
            "H8: one orphan fewer goes than may",
            "    if len(unaccepted) > view.max_orphans:\n",
            "    if len(unaccepted) >= view.max_orphans:\n",
        ),
        (
            "H8: what an operator has accepted still waits for one",
            "if diverges(one.metadata, view.lineage, view.accepted)",
            "if one.metadata",
        ),
        (
            "H3: a disputed segment goes",
            "        not entry.disputed\n        and ",
            "        ",
        ),
        (
            "H3: a disputed segment replaces another",
            "        if not one.disputed and _is_old(",
            "        if _is_old(",
        ),
        (
            "a segment that is being copied goes",
            "        and entry.metadata.segment_id.id not in view.copying\n",
            "",
        ),
        (
            "H8: a young orphan goes",
            "        and _is_old(entry, view)\n        and _is_within",
            "        and _is_within",
        ),
        (
            "H8: a segment goes that lies below the leader's epoch file",
            "        and _is_within(entry.metadata, view.local)\n",
            "",
        ),
        (
            "H8: before the objects go, it is not asked how far the leader's epoch file reaches",
            "        and _is_within(metadata, view.local)\n",
            "",
        ),
        (
            "H8: the leader's newest epoch needs no copies as old as the grace",
            "    return found if has_lasted else ()\n",
            "    return found\n",
        ),
        (
            "H8: a young segment replaces another",
            " and _is_old(view.ledger.entries[one.metadata.segment_id.id], view)\n",
            "\n",
        ),
        (
            "H8: the grace ends one millisecond late",
            "    return view.now_ms - entry.timestamp_ms >= view.grace_ms\n",
            "    return view.now_ms - entry.timestamp_ms > view.grace_ms\n",
        ),
        (
            "H8: a segment goes that no other has replaced",
            "        and _is_covered(entry.metadata, view, covered)\n",
            "",
        ),
        (
            "what has ended is deleted here too",
            "    return metadata.next_offset > start and covered.holds(\n",
            "    return covered.holds(\n",
        ),
        (
            "H8: dead offsets replace others",
            "OffsetRange(start=one.start_offset, next_offset=usable_end(one, view.lineage))",
            "OffsetRange(start=one.start_offset, next_offset=one.next_offset + 10**6)",
        ),
        (
            "H8: before the objects go, it is not asked whether the segment is still dead",
            "        is_orphan(metadata, view.lineage)\n        and _is_within",
            "        _is_within",
        ),
    ),
    *TASK.edits(
        (
            "H8: no second snapshot confirms the first",
            "        plan = self.plan(fresh)\n",
            "        plan = first\n",
        ),
        (
            "H8: orphans are not looked for again when the ledger has changed",
            "(known.version, known.lineage) != (version, snapshot.lineage)",
            "known.lineage != snapshot.lineage",
        ),
        (
            "H11: what replaces a segment may be gone from its store",
            "        for why in missing.values():\n",
            "        for why in ():\n",
        ),
        (
            "G1: a freeze of deletions keeps nothing",
            "        if self._expiry.refusal(snapshot) is not None or isinstance",
            "        if isinstance",
        ),
        (
            "H8: the reason is not asked again before the objects go",
            "        if view is None or not is_replaced(metadata, view):\n",
            "        if view is None:\n",
        ),
        (
            "why segments are kept is logged again and again",
            "        elif self._held.get(snapshot.key) != held:\n",
            "        else:\n",
        ),
    ),
    *STEPS.edits(
        (
            "dead segments are never deleted",
            "        return await self._unreferenced.run_on(seen.snapshot)\n",
            "        return seen is None\n",
        ),
    ),
)
