"""Planted bugs in naming what stops copies: an open transaction, an absent service (H18)."""

from tests.mutants.edits import Edit, Target

_TESTS = ("tests/rlm/tasks/test_h18_open_transactions.py",)
PLAN = Target("rlm/plans/open_transactions.py", _TESTS)
WATCH = Target("rlm/tasks/transaction_watch.py", _TESTS)

PEERS = Target(
    "rlm/plans/problem_rules.py",
    ("tests/rlm/test_h18_absent_peers.py", "tests/rlm/plans/test_h38_problem_rules.py"),
)

EDITS: tuple[Edit, ...] = (
    *PEERS.edits(
        (
            "H18: an absent peer is an alarm only after more than a minute",
            "    peers_ms: int = 50_000\n",
            "    peers_ms: int = 60_000\n",
        ),
    ),
    *PLAN.edits(
        (
            "H18: any open transaction is named",
            "return min(transactions, key=",
            "return max(transactions, key=",
        ),
    ),
    *WATCH.edits(
        (
            "H18: an offset that moves on is pinned all the same",
            "if known is None or known.last_stable_offset != offset:",
            "if known is None:",
        ),
        (
            "H18: every transaction is a problem",
            "self._clock.monotonic_ms() - self._least_ms()",
            "self._clock.monotonic_ms()",
        ),
        (
            "H18: what waits for something else waits for a transaction",
            "if status.reason != WhyNot.LAST_STABLE_OFFSET.value:",
            "if status.reason == WhyNot.TO_BE_COPIED.value:",
        ),
        (
            "H38: a producer of long ago is named while the broker does not answer",
            "return replace(pinned, transaction=None, why=str(error))",
            "return replace(pinned, why=str(error))",
        ),
    ),
)
