"""Planted bugs in what a client is shown of the past: who is limited, to what, and what follows."""

from tests.mutants.edits import Edit, Target

_PROXY = ("tests/rlm/proxy/test_history.py",)
RULES = Target("rlm/plans/client_history.py", ("tests/rlm/plans/test_client_history.py",))
SETTINGS = Target("rlm/config/history.py", ("tests/rlm/config/test_history.py",))
VISIBLE = Target("rlm/remote_log/visible.py", _PROXY)
CONNECTIONS = Target("rlm/proxy/client_connections.py", _PROXY)
POSITIONS = Target("rlm/proxy/position_handlers.py", _PROXY)
WINDOWS = Target("rlm/remote_log/history_windows.py", ("tests/rlm/test_history_windows.py",))
COVER = Target("rlmm/cover.py", ("tests/rlm/test_history_windows.py",))
LEADER = Target("rlm/remote_log/leader_view.py", ("tests/rlm/test_history_windows.py",))
MESSAGES = Target("rlm/workers/messages.py", ("tests/rlm/workers/test_messages.py",))

EDITS: tuple[Edit, ...] = (
    *RULES.edits(
        (
            "a client escapes the limit of its principal by another client id",
            "            if rule.principals and principal is not None",
            "            if rule.principals and client_id is None and principal is not None",
        ),
        (
            "a rule for one principal limits all whose names begin alike",
            "pattern.fullmatch(principal) or",
            "pattern.match(principal) or",
        ),
        (
            "a window begins above the broker's own log",
            "start = min(segment.start_offset, local_log_start_offset)",
            "start = segment.start_offset",
        ),
        (
            "one young segment below old ones is all that a window begins with",
            "            continue\n        until_ms",
            "            break\n        until_ms",
        ),
        (
            "H38: a segment of unknown age is hidden",
            "if 0 <= newest_ms < now_ms",
            "if newest_ms < now_ms",
        ),
    ),
    *SETTINGS.edits(
        (
            "a duration of 0 is `local`",
            "if not 0 < window_ms",
            "if not 0 <= window_ms",
        ),
        (
            "a rule limits everybody",
            "    if len(patterns) != 1:\n",
            "    if len(patterns) > 1:\n",
        ),
    ),
    *VISIBLE.edits(
        (
            "H17: an offset is out of range before it is known where the window begins",
            "        if has_start and self._start(view) is None:\n",
            "        if self._window_ms < 0:\n",
        ),
        (
            "where nothing is remote a limited client waits for what never comes",
            "        if has_start and self._start(view) is None:\n",
            "        if self._start(view) is None:\n",
        ),
        (
            "H17: without a window that is known everything is shown",
            "NOTHING_REMOTE if start is None else start",
            "view.remote_log_start_offset if start is None else start",
        ),
        (
            "a timestamp leads below the window",
            "timestamp_ms, start)\n",
            "timestamp_ms)\n",
        ),
        (
            "an epoch ends below the window, so that clients see a truncation",
            "or found.end_offset > start:",
            "or found.end_offset <= start:",
        ),
        (
            "H04: a frozen partition is not known instead of frozen",
            "if view is None or view.frozen or not view.led_here:",
            "if view is None:",
        ),
        (
            "who a client is once it has logged in changes nothing",
            "        self._principal = principal\n",
            "",
        ),
        (
            "the first client id of a connection counts for ever",
            "        if client_id != self._client_id:\n",
            "        if self._client_id is None:\n",
        ),
    ),
    *CONNECTIONS.edits(
        (
            "H22: Produce answers show limited clients another log start",
            "        if self._settings.history.is_full:\n            return self._shared\n",
            "        if self._settings.history.listener:\n            return self._shared\n",
        ),
    ),
    *POSITIONS.edits(
        (
            "`earliest` is that of the connection's first request",
            "        if tier is not self._tier:\n            self._use(tier)\n",
            "",
        ),
    ),
    *WINDOWS.edits(
        (
            "a window stands still until the segments change",
            "return self.until_ms is None or now_ms <= self.until_ms",
            "return True",
        ),
        (
            "H16: a clock that is ahead hides data",
            "min(now_ms, brokers_ms)",
            "max(now_ms, brokers_ms)",
        ),
    ),
    *COVER.edits(
        (
            "a window begins behind a segment that is just young enough",
            "            if chunk.newest_ms >= newest_ms:\n",
            "            if chunk.newest_ms > newest_ms:\n",
        ),
        (
            "a window begins at the first group with a young segment behind one of old ones",
            "tuple(accumulate((one.newest_ms for one in self._chunks), max))",
            "tuple(one.newest_ms for one in self._chunks)",
        ),
        (
            "H38: a segment of unknown age is hidden among old ones",
            "_ENDLESS_MS if min(known) < 0 else max(known)",
            "max(known)",
        ),
        (
            "every segment is looked at with every snapshot",
            "            if chunk.newest_ms >= newest_ms:\n",
            "            if True:\n",
        ),
    ),
    *LEADER.edits(
        (
            "timestamps are looked up from the remote log start on",
            "start=max(self._settings.view.remote_log_start(key) or 0, start_offset),",
            "start=self._settings.view.remote_log_start(key) or 0,",
        ),
    ),
    *MESSAGES.edits(
        (
            "workers are not shown where windows begin",
            "            for window_ms, offset in view.window_starts\n",
            "            for window_ms, offset in ()\n",
        ),
    ),
)
