"""Planted bugs in who may read the console, and in what its data leaves out."""

from tests.mutants.edits import Edit, Target

_ACCESS_TESTS = ("tests/rlm/console/test_console_access.py",)
_DATA_TESTS = ("tests/rlm/console/test_console_data.py",)
_ACCESS = Target("rlm/console/access.py", _ACCESS_TESTS)
_CALLS = Target("rlm/api/local_calls.py", _ACCESS_TESTS)
_ROUTES = Target("rlm/console/routes.py", _ACCESS_TESTS)
_ACTION_TESTS = ("tests/rlm/console/test_console_actions.py",)
_ACTION_ACCESS = Target("rlm/console/access.py", _ACTION_TESTS)
_ACTION_ROUTES = Target("rlm/console/routes.py", _ACTION_TESTS)
_LISTENERS = Target("rlm/service/listeners.py", _ACTION_TESTS)
_ACTIONS = Target("rlm/console/actions.py", _ACTION_TESTS)
_ANSWERS = Target("rlm/console/answers.py", (*_ACCESS_TESTS, *_DATA_TESTS))
_COSTS = Target("rlm/console/costs.py", _DATA_TESTS)
_PAGING = Target("rlm/console/paging.py", _DATA_TESTS)
_ROWS = Target("rlm/console/rows.py", _DATA_TESTS)

EDITS: tuple[Edit, ...] = (
    *_ACCESS.edits(
        (
            "the console needs no token of the API",
            "self.gate.refuse_token(shown, knows_certificates=False)",
            "pass",
        ),
        (
            "the console needs no token of HTTP",
            "if not shows_one(shown, tokens):",
            "if False:",
        ),
        (
            "the console is open although the API asks for certificates",
            "elif self.api_is_closed:",
            "elif False:",
        ),
        (
            "a web page elsewhere makes the console work",
            'if site not in (None, "same-origin", "none"):',
            "if False:",
        ),
        (
            "a web page elsewhere reads the console by a name that leads here",
            "elif not self.allows_all and not _is_local(host):",
            "elif False:",
        ),
        (
            "allow_insecure opens the console of an API that asks for certificates",
            "elif self.api_is_closed:",
            "elif self.api_is_closed and not self.allows_all:",
        ),
    ),
    *_CALLS.edits(
        (
            "the console's calls pass the authorization by",
            "        if self._authorization is None:\n            return handler",
            "        return handler",
        ),
    ),
    *_ROUTES.edits(
        (
            "the console asks nobody who he is",
            'self._access.check(shown, sent.get("Host", ""), sent.get("Sec-Fetch-Site"))',
            "pass",
        ),
        (
            "every invented token makes the services collect a status of its own",
            "shown=shown if self._access.api_asks else None,",
            "shown=shown,",
        ),
    ),
    *_ACTION_ACCESS.edits(
        (
            "a page of another origin acts here",
            'if site not in (None, "same-origin") or not _is_of(origin, host):',
            "if False:",
        ),
        (
            "a request that names no origin acts here",
            "return is_page and found.netloc.lower() == host.lower()",
            "return not origin or found.netloc.lower() == host.lower()",
        ),
        (
            "the token of HTTP acts where the API asks for certificates",
            "if self.api_is_closed and not self.api_asks:",
            "if False:",
        ),
        (
            "allow_insecure lets a name elsewhere that leads here act",
            "if not self.asks_token and not _is_local(host):",
            "if False:",
        ),
    ),
    *_ACTION_ROUTES.edits(
        (
            "the console acts although it is only to read",
            "*([] if self._actions is None else [acting]),",
            "acting,",
        ),
        (
            "a form of another page is an action",
            'if request.content_type != "application/json":',
            "if False:",
        ),
        (
            "a client that reads nothing holds its action for ever",
            "async with asyncio.timeout(LINE_SECONDS):",
            "async with asyncio.timeout(None):",
        ),
    ),
    *_LISTENERS.edits(
        (
            "an action goes on although its page is closed",
            "handler_cancellation=True,",
            "handler_cancellation=False,",
        ),
    ),
    *_ACTIONS.edits(
        (
            "actions run without a limit",
            "if self._running[is_long] >= RUNNING_MAX:",
            "if False:",
        ),
        (
            "copies keep a freeze waiting",
            "is_long = name in _LONG",
            "is_long = True",
        ),
        (
            "a copy limit that JSON has no number for ends the limit",
            "if name not in self._values:",
            "if self._values.get(name) is None:",
        ),
    ),
    *_ANSWERS.edits(
        (
            "a status that was collected for one caller is given to another",
            "self._kept.pop((caller, topic), None)",
            "self._kept.pop(next(iter(self._kept), (caller, topic)), None)",
        ),
    ),
    *_ANSWERS.edits(
        (
            "a partition's segments hold the event loop until all are listed",
            "if seen % SEGMENTS_A_TURN == 0:",
            "if False:",
        ),
        (
            "the console lists segments without a limit",
            "if seen > SEGMENTS_MAX:",
            "if False:",
        ),
    ),
    *_COSTS.edits(
        (
            "H38: a service that does not say what it reads reads nothing",
            "None if problems or None in rates or not rates else ",
            "",
        ),
    ),
    *_PAGING.edits(
        (
            "a number that the API has no room for breaks the console",
            "if (found := int(text)) > most:",
            "if (found := int(text)) > most * most:",
        ),
    ),
    *_ROWS.edits(
        (
            "H38: a topic whose tasks fail is shown as well",
            "bool(row.last_error) and row.log_end_offset >= 0",
            "False",
        ),
        (
            "H38: an offset that is not known is shown as one",
            "return None if value < 0 else value",
            "return value",
        ),
        (
            "H38: nothing is remote and nothing lost where no service reports a partition",
            "return row.log_end_offset >= 0 or row.remote_segments > 0 or row.holes > 0",
            "return True",
        ),
        (
            "H38: a sum of what is remote leaves a partition out and does not say so",
            'known["remote_unknown"] += not _is_remote_known(row)',
            'known["remote_unknown"] += False',
        ),
        (
            "H38: a lag that is not known is no lag",
            'known["lag_unknown"] += 1',
            'known["lag_unknown"] += 0',
        ),
    ),
)
