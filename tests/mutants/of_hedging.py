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
        (
            "second requests take any memory",
            "self._second_bytes and self._second_bytes + size_bytes > MOST_BYTES",
            "False",
        ),
        (
            "a large range is never asked for twice",
            "self._second_bytes and self._second_bytes + size_bytes > MOST_BYTES",
            "self._second_bytes + size_bytes > MOST_BYTES",
        ),
        (
            "the memory of second requests is taken for ever",
            "self._second_bytes -= size_bytes",
            "pass",
        ),
        ("sizes are mixed", "size_bytes.bit_length()", "0"),
    ),
    *Target("rlm/stores/opened.py", ("tests/rlm/service/test_settings_wiring.py",)).edits(
        (
            "fetch.hedge.max.percent is not obeyed",
            "hedged_percent=config.fetch_hedge_max_percent",
            "hedged_percent=5",
        ),
    ),
    *Target("rlm/stores/opened.py", ("tests/rlm/stores/test_service_stores.py",)).edits(
        (
            "a reader is ready before it has reached its store",
            "connection.store_id is not None and connection.layouts is not None",
            "connection.store_id is not None",
        ),
    ),
)
