"""Planted bugs: offsets that clients ask for by time or name."""

from tests.mutants.edits import Edit, Target

LIST_OFFSETS = Target(
    "rlm/remote_log/list_offsets.py",
    ("tests/rlm/proxy/test_positions.py", "tests/rlm/api/test_h15_list_offsets.py"),
)
ANSWERS = Target("rlm/proxy/position_answers.py", ("tests/rlm/proxy/test_positions.py",))
HANDLERS = Target("rlm/proxy/position_handlers.py", ("tests/rlm/proxy/test_positions.py",))

EDITS: tuple[Edit, ...] = (
    *LIST_OFFSETS.edits(
        (
            "H17: `earliest` passes before a barrier was",
            "frozenset({LATEST_TIMESTAMP, MAX_TIMESTAMP})",
            "frozenset({LATEST_TIMESTAMP, MAX_TIMESTAMP, EARLIEST_TIMESTAMP})",
        ),
        (
            "H2: `earliest` is the local start",
            "return found if found != NOWHERE and is_lower else None",
            "return found if found != NOWHERE and is_lower and timestamp >= 0 else None",
        ),
        (
            "H2: `earliest` goes up to the remote start",
            "return found if found != NOWHERE and is_lower else None",
            "return found if found != NOWHERE and (is_lower or timestamp < 0) else None",
        ),
        (
            "the latest tiered offset is one too high",
            "return _at(remote, remote.next_offset - 1) if remote.has_records else NOWHERE",
            "return _at(remote, remote.next_offset) if remote.has_records else NOWHERE",
        ),
        (
            "the earliest pending upload lies below the log start",
            "return _at(remote, max(remote_next, await self._local_log_start(view)))",
            "return _at(remote, remote_next)",
        ),
        (
            "a timestamp is answered with a later record than the broker's",
            "return found if found != NOWHERE and is_lower else None",
            "return found if found != NOWHERE and (is_lower or timestamp >= 0) else None",
        ),
        (
            "a timestamp that the broker does not know is unknown",
            "is_lower = found.offset < broker_offset or broker_offset == _UNKNOWN",
            "is_lower = found.offset < broker_offset",
        ),
        (
            "a timestamp that no tier knows is answered with an unknown offset",
            "return found if found != NOWHERE and is_lower else None",
            "return found if is_lower else None",
        ),
        (
            "H4: a frozen partition tells a lower start",
            "    if view.frozen:\n        raise _frozen(view)\n    asks_for_old",
            "    asks_for_old",
        ),
        (
            "H17: after a change of leadership `earliest` is the local start of the old leader",
            "if not view.led_here:",
            "if False:",
        ),
        (
            "H15: while the oldest data is not settled `earliest` is the local start",
            "if asks_for_old and is_unsettled and not has_remote(view):",
            "if False:",
        ),
        (
            "H4: an epoch's end of a frozen partition is answered",
            "            if broker.end_offset < 0:\n                raise _frozen(view)\n",
            "",
        ),
        (
            "H4: an epoch's end is taken from a frozen history",
            "                raise _frozen(view)\n            return None\n",
            "                raise _frozen(view)\n",
        ),
    ),
    *ANSWERS.edits(
        (
            "an error keeps the positions beside it",
            "            answered[name] = _UNKNOWN\n",
            "            pass\n",
        ),
    ),
    *HANDLERS.edits(
        (
            "H25: a lost segment is asked for again for ever",
            "lost = not found.retriable and not frozen(found)",
            "lost = False",
        ),
        (
            "H25: a segment that is away counts as lost",
            "lost = not found.retriable and not frozen(found)",
            "lost = True",
        ),
    ),
)
