"""Planted bugs in the thresholds of topics: what waits too long, and what goes too early."""

from tests.mutants.edits import Edit, Target

OFFLOAD = Target(
    "rlm/plans/offload.py",
    ("tests/rlm/plans/test_offload.py", "tests/rlm/tasks/test_offload.py"),
)
RULES = Target("rlm/topics/rules.py", ("tests/rlm/topics/test_offload.py",))
VERBS = Target("rlm/topics/verbs.py", ("tests/rlm/topics/test_offload.py",))

PATTERNS = Target("rlm/cli/topic_patterns.py", ("tests/rlm/cli/test_topic_patterns.py",))
SUMMARIES = Target("rlm/api/topic_summaries.py", ("tests/rlm/cli/test_topic_patterns.py",))

EDITS: tuple[Edit, ...] = (
    *OFFLOAD.edits(
        (
            "H15: a copy waits although a retention that was taken over is bounded",
            '        if record.mode == "tier" and is_bounded:\n            return None\n',
            "",
        ),
        (
            "H15: a copy waits as long as the brokers keep the segment",
            "    return lag if lag is not None and lag < retention else retention // 2\n",
            "    return lag if lag is not None and lag < retention else retention\n",
        ),
        (
            "H15: a threshold may be as long as the brokers keep the segment",
            "        if UNLIMITED != limit <= lag:\n",
            "        if UNLIMITED != limit < lag:\n",
        ),
        (
            "a record from the future holds up its segment",
            "        if self.max_age_ms is not None and not 0 <= age_ms < self.max_age_ms:\n",
            "        if self.max_age_ms is not None and age_ms >= self.max_age_ms:\n",
        ),
        (
            "the deletion lag ends at once",
            "if entry.timestamp_ms > now_ms - lag_ms)",
            "if entry.timestamp_ms > now_ms)",
        ),
    ),
    *RULES.edits(
        (
            "a later call takes the thresholds of a topic away",
            "        return otherwise if wanted is None else None if wanted == UNSET else wanted\n",
            "        return None if wanted == UNSET else wanted\n",
        ),
    ),
    *VERBS.edits(
        (
            "H15: thresholds are not compared with retention",
            "        self._dependencies.offload.check(record, rules.total_of(seen.config))\n",
            "",
        ),
    ),
    *PATTERNS.edits(
        (
            "a pattern makes data deletable and nobody has confirmed it",
            "        if is_risky and not request.yes:\n",
            "        if is_risky and False:\n",
        ),
        (
            "a pattern means names of which it matches a part",
            "if pattern.fullmatch(row.topic)]",
            "if pattern.search(row.topic)]",
        ),
    ),
    *SUMMARIES.edits(
        (
            "a pattern means internal topics",
            "            if not is_internal(topic):\n",
            "            if topic:\n",
        ),
    ),
)
