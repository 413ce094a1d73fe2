"""Planted bugs in what follows when somebody else sets a retention that was taken over (H14)."""

from tests.mutants.edits import Edit, Target

_CONTESTS = "tests/rlm/topics/test_h14_contests.py"
CONTESTS = Target(
    "rlm/plans/retention_contests.py", ("tests/rlm/plans/test_retention_contests.py", _CONTESTS)
)
KEEPER = Target("rlm/topics/keeper.py", (_CONTESTS,))
SETTLER = Target("rlm/topics/takeover.py", (_CONTESTS,))
VERBS = Target("rlm/topics/verbs.py", (_CONTESTS,))
BROKERS = Target("rlm/topics/cluster_retention.py", ("tests/rlm/topics/test_cluster_retention.py",))
ACCESS = Target("rlm/topics/access.py", (_CONTESTS,))

EDITS: tuple[Edit, ...] = (
    *CONTESTS.edits(
        (
            "H14: a tool that insists is fought for ever",
            "is_given_up=known.is_given_up or len(recent) >= MOST_REVERTS,",
            "is_given_up=False,",
        ),
        (
            "H14: a bound that stays is reverted again when the reverts are long past",
            "is_given_up=known.is_given_up or len(recent) >= MOST_REVERTS,",
            "is_given_up=len(recent) >= MOST_REVERTS,",
        ),
        (
            "H14: reverts of long ago count",
            "if now_ms - at <= CONTEST_MS)",
            "if now_ms - at <= 1 << 60)",
        ),
        (
            "G1: trims go on while somebody bounds the retention now and then",
            'return f"somebody bounded',
            'return None and f"somebody bounded',
        ),
        (
            "a contest never ends",
            "now_ms - known.bounded_at_ms > CONTEST_MS:",
            "now_ms < known.bounded_at_ms:",
        ),
    ),
    *KEEPER.edits(
        (
            "H14: reverts are not counted",
            "                self._contests.reverted(name, self._clock.monotonic_ms())\n",
            "                pass\n",
        ),
        (
            "H14: what a crash left half-done is taken for a contest",
            "        if bounds and not is_half_done:\n",
            "        if bounds:\n",
        ),
        (
            "an operator who sets -1 himself waits 15 minutes for the first trim",
            "            if self._takeover == ENFORCE:\n                self._contests.bounded(",
            "            if self._takeover:\n                self._contests.bounded(",
        ),
    ),
    *SETTLER.edits(
        (
            "H14: retention.takeover=external alters configurations",
            "            if not self.alters_configs:\n",
            "            if not self:\n",
        ),
    ),
    *VERBS.edits(
        (
            "with retention.takeover=external what the operator set is given back later",
            "            record = replace(record, originals=before.originals if before",
            "            record = replace(record, originals=record.originals if before",
        ),
    ),
    *BROKERS.edits(
        (
            "G1: a contested retention does not stop trims",
            "return answer.bounded or self._contests.words(topic, self._clock.monotonic_ms())",
            "return answer.bounded",
        ),
    ),
    *ACCESS.edits(
        (
            "H40: the right to alter is asked for where nothing is altered",
            "        if self._alters_configs:\n            uses.append(",
            "        if uses:\n            uses.append(",
        ),
    ),
)
