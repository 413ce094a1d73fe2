"""Planted bugs of second requests for late reads."""

from tests.mutants.edits import Target

EDITS = (
    *Target("rlm/stores/hedging.py", ("tests/rlm/stores/test_hedging.py",)).edits(
        (
            "the error of the quicker request counts",
            "if not isinstance(found, _Failure):\n                        self",
            "if True:\n                        self",
        ),
        ("an overloaded store is asked twice", "self._saved < 1 or ", ""),
        (
            "nobody ends the request that is not needed",
            "            task.cancel()",
            "            pass",
        ),
        ("errors of the store do not matter", "            self._note(error)\n", ""),
        ("sizes are mixed", "size_bytes.bit_length()", "0"),
    ),
    *Target("rlm/stores/opened.py", ("tests/rlm/service/test_settings_wiring.py",)).edits(
        (
            "fetch.hedge.max.percent is not obeyed",
            "clock, config.fetch_hedge_max_percent",
            "clock, 5",
        ),
    ),
)
