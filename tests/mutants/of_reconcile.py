"""Planted bugs in the comparison of stores and ledger: what is adopted, and what cleanup gets."""

from tests.mutants.edits import Edit, Target

PLAN = Target("rlm/plans/reconcile.py", ("tests/rlm/plans/test_h12_reconcile.py",))
TASK = Target("rlm/tasks/reconcile.py", ("tests/rlm/tasks/test_h12_reconcile.py",))
SURVEY = Target("rlm/tasks/store_survey.py", ("tests/rlm/tasks/test_h12_reconcile.py",))

EDITS: tuple[Edit, ...] = (
    *PLAN.edits(
        (
            "H4: a segment of another history is adopted",
            "    return any(usable_end(one, after) != one.next_offset for one in new) or any(\n",
            "    return any(\n",
        ),
        (
            "H4: a segment is adopted that takes offsets from a listed one",
            "        usable_end(one, after) < usable_end(one, before) for one in finished\n",
            "        usable_end(one, after) < 0 and before for one in finished\n",
        ),
        (
            "one segment of another history keeps all others from adoption",
            "    for one in added:\n        if not",
            "    for one in added[:0]:\n        if not",
        ),
        (
            "H4: records are written under the epoch of another history",
            "            leader_epoch=epoch_for(fitting, known.ledger),\n",
            "",
        ),
        (
            "H12: young remains are registered",
            "if age.now_ms - one.modified_ms >= age.grace_ms]",
            "if age.now_ms - one.modified_ms >= 0]",
        ),
        (
            "H12: the grace ends one millisecond late",
            "if age.now_ms - one.modified_ms >= age.grace_ms]",
            "if age.now_ms - one.modified_ms > age.grace_ms]",
        ),
        (
            "H6: what may be the only copy is registered",
            "        registered=() if refused else tuple(replaced),\n",
            "        registered=() if refused else tuple(old),\n",
        ),
        (
            "H6: a dead copy replaces remains",
            "        end = usable_end(one, lineage)\n",
            "        end = one.next_offset\n",
        ),
        (
            "H6: remains of which only the first records are elsewhere are registered",
            "    return at > first and size_bytes >= leftover.log_size_bytes\n",
            "    return at > first\n",
        ),
        (
            "H6: what is before the remains counts",
            "            if one.start_offset >= first and end == one.next_offset:\n",
            "            if end == one.next_offset:\n",
        ),
        (
            "H6: remains may go on over a gap",
            "        if one.start_offset <= at < end:\n",
            "        if at < end:\n",
        ),
        (
            "H2: remains are registered where nothing would be adopted",
            "        registered=() if refused else tuple(replaced),\n",
            "        registered=tuple(replaced),\n",
        ),
        (
            "H12: objects that the ledger lists are registered",
            "[one for one in leftovers if one.segment_id not in known.ledger.entries]",
            "list(leftovers)",
        ),
        (
            "H12: a service with this node id sweeps at once what is registered",
            "_NOBODY = -1\n",
            "_NOBODY = 1\n",
        ),
        (
            "what is registered is looked for under other names",
            "entropy_bits=leftover.entropy_bits, ",
            "entropy_bits=0, ",
        ),
    ),
    *TASK.edits(
        (
            "H12: the ledger is not read past a barrier",
            "pass_barriers(partition.key for partition in partitions)\n",
            "pass_barriers([])\n",
        ),
    ),
    *SURVEY.edits(
        (
            "H6: a segment with its manifest counts as remains",
            "            if identity not in found.listed:\n",
            "            if identity:\n",
        ),
    ),
)
