"""Planted bugs in what `rlm download` and `rlm restore` take of a store alone (H4)."""

from tests.mutants.edits import Edit, Target

PLANS = Target("rlm/download/store_plans.py", ("tests/rlm/download/test_h04_histories.py",))
SOURCES = Target("rlm/download/sources.py", ("tests/rlm/download/test_h04_histories.py",))

VANISHED = Target("rlm/download/sources.py", ("tests/rlm/tasks/test_h15_vanished.py",))
GAPS = Target("rlm/download/sources.py", ("tests/rlm/tasks/test_h15_listings.py",))

EDITS: tuple[Edit, ...] = (
    *PLANS.edits(
        (
            "H4: the history that segments have stored does not count",
            "            stored=stored,\n",
            "            stored=None,\n",
        ),
        (
            "H4: by an accepted history dead records are taken",
            "        lineage = published_lineage(ledger, found.history)\n",
            "        lineage = published_lineage(ledger, None)\n",
        ),
        (
            "H4: doubtful offsets are taken by nobody's decision",
            "    if not doubts:\n",
            "    if doubts:\n",
        ),
        (
            "H4: a history that cannot be read is guessed",
            "        if stored is None and not is_accepted:\n",
            "        if stored is None and is_accepted:\n",
        ),
        (
            "H4: a store that is away for a moment has no history",
            "        if lineages.unreadable:\n",
            "        if lineages.unreadable > 1:\n",
        ),
        (
            "what was accepted of another partition is passed over",
            "        if left:\n",
            "        if left and not partitions:\n",
        ),
    ),
    *SOURCES.edits(
        (
            "H4: an operator's decision does not count",
            "        self._accepted = frozenset(accepted)\n",
            "        self._accepted = frozenset[str]()\n",
        ),
    ),
    *VANISHED.edits(
        (
            "H15: what goes before it is read had no other copy in its place",
            "        above |= vanished.get(partition, set())\n",
            "        above |= set()\n",
        ),
    ),
    *GAPS.edits(
        (
            "H15: what a listing has missed is passed over like a gap",
            "        if not above <= seen:\n",
            "        if seen and not above <= seen:\n",
        ),
        (
            "H15: what one more listing has added has no gap below",
            "        if not above <= seen:\n",
            "        if not seen and not above <= seen:\n",
        ),
    ),
)
