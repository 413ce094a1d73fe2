"""Planted bugs in what is recorded as a hole, and in the losses that are predicted."""

from tests.mutants.edits import Edit, Target

PLAN = Target("rlm/plans/holes.py", ("tests/rlm/tasks/test_hole_watch.py",))
TASK = Target("rlm/tasks/hole_watch.py", ("tests/rlm/tasks/test_hole_watch.py",))
FRESH = Target("rlm/tasks/hole_watch.py", ("tests/rlm/tasks/test_expiration.py",))
ACCEPTED = Target(
    "rlm/tasks/accept_loss.py",
    ("tests/rlm/tasks/test_h06_trimmed_lineage.py", "tests/rlm/tasks/test_accept_loss.py"),
)
UNLISTED = Target(
    "rlm/plans/holes.py",
    ("tests/rlm/tasks/test_h06_trimmed_lineage.py", "tests/rlm/tasks/test_accept_loss.py"),
)
STORES = Target("rlm/tasks/unlisted_segments.py", ("tests/rlm/tasks/test_hole_watch.py",))
FOUND = ("tests/rlm/tasks/test_h15_found_again.py",)
FOUND_PLAN = Target("rlm/plans/holes.py", FOUND)
FOUND_TASK = Target("rlm/tasks/hole_watch.py", FOUND)
FOUND_ADOPTED = Target("rlm/tasks/cleanup.py", FOUND)
LOSS = Target("rlm/plans/loss.py", ("tests/rlm/plans/test_loss.py",))

EDITS: tuple[Edit, ...] = (
    *ACCEPTED.edits(
        (
            "H15: a store that could not be listed does not have what is accepted as lost",
            "        if listing.errors:\n",
            "        if listing is None:\n",
        ),
        (
            "H06: what a store has and the ledger does not list is accepted as lost",
            "        proven = cannot_be_stored(still, stored)\n",
            "        proven = still\n",
        ),
        (
            "H15: what is listed while the stores are listed is accepted as lost",
            "        still = in_both(self._gaps(snapshot), seen)\n",
            "        still = seen\n",
        ),
        (
            "H02: what a user had deleted is accepted as lost where no start is known",
            "        if snapshot.remote_log_start_offset is None:\n",
            "        if snapshot.remote_log_start_offset is ...:\n",
        ),
        (
            "H04: copies of another history are not named to the operator",
            "            if others:\n",
            "            if others < 0:\n",
        ),
    ),
    *FOUND_PLAN.edits(
        (
            "H15: a copy that is there after all counts as replaced by its accepted loss",
            "    if not lost:\n        return ()\n",
            "    return ()\n",
        ),
    ),
    *FOUND_TASK.edits(
        (
            "H11: a copy that the ledger lists ends a loss though its objects are missing",
            "            if one.metadata.segment_id.id in found.whole:\n",
            "            if found:\n",
        ),
    ),
    *FOUND_ADOPTED.edits(
        (
            "H15: a copy that is adopted counts as replaced by its accepted loss",
            "        await self._holes.fill(led.key, start, end, led.leader_epoch)\n",
            "",
        ),
    ),
    *UNLISTED.edits(
        (
            "H15: what an attempt may yet have is accepted as lost",
            "union((*doubtful, *open_ranges))",
            "union(open_ranges)",
        ),
        (
            "H14: what is held open and not copied yet is accepted as lost",
            "union((*doubtful, *open_ranges))",
            "union(doubtful)",
        ),
    ),
    *STORES.edits(
        (
            "H15: a store that was used once and is not known here has nothing",
            "(*(one.store_id for one in view.stores()), *known)",
            "known",
        ),
    ),
    *PLAN.edits(
        (
            "H06: a gap below our own trim becomes a hole",
            "    start = max(view.remote_log_start_offset, view.trim_bound)",
            "    start = view.remote_log_start_offset",
        ),
        (
            "H15: an attempt that may be adopted becomes a hole",
            "        *((one.start_offset, one.next_offset) for one in unsettled(view.ledger)),\n",
            "",
        ),
        (
            "H15: what was seen is forgotten once the file is gone",
            "union((*files, *seen))",
            "union(files)",
        ),
        (
            "H06: a segment that the ledger lost becomes a hole",
            "if lowest is None or one[1] <= lowest",
            "if one",
        ),
    ),
    *TASK.edits(
        (
            "H06: a ledger with a problem proves holes",
            "self._ledger.problem or self._settings.problem or snapshot",
            "self._settings.problem or snapshot",
        ),
        (
            "H06: settings with a problem prove holes",
            "self._ledger.problem or self._settings.problem or snapshot",
            "self._ledger.problem or snapshot",
        ),
        (
            "H15: a store that could not be listed has nothing",
            "        if listing.errors or view is None:",
            "        if view is None:",
        ),
        (
            "H04: what was seen under another epoch proves holes",
            "if seen is None or seen.leader_epoch != snapshot.led.leader_epoch:",
            "if seen is None:",
        ),
        (
            "H15: nobody needs to have seen what is gone",
            "        proven = in_both(found, seen.ranges)",
            "        proven = found",
        ),
    ),
    *FRESH.edits(
        (
            "H15: a hole is recorded by a snapshot that is older than a copy",
            "            snapshot = await self._snapshots.take(snapshot.led)\n            fresh = ",
            "            fresh = ",
        ),
    ),
    *LOSS.edits(
        (
            "H15: a segment that stays does not keep those behind it",
            "    return max(one.max_timestamp_ms for one in segments)",
            "    return segments[-1].max_timestamp_ms",
        ),
        (
            "H15: size alone predicts no loss",
            "    if most_bytes == UNLIMITED:\n        return",
            "    if most_bytes != UNLIMITED:\n        return",
        ),
        (
            "H15: an alarm comes later than half of what the broker keeps",
            "min(lead_ms, self.span_ms // 2)",
            "lead_ms",
        ),
    ),
)
