"""Planted bugs in the identity of clients with certificates: somebody is somebody else, or a token
outlives its use.
"""

from tests.mutants.edits import Edit, Target

_LOGIN = ("tests/rlm/proxy/test_client_login.py",)
_TOKENS = ("tests/rlm/service/test_client_tokens.py",)
NAMES = Target(
    "kafka_clients/distinguished_names.py", ("tests/kafka_clients/test_distinguished_names.py",)
)
MAPPING = Target(
    "kafka_clients/principal_mapping.py", ("tests/kafka_clients/test_principal_mapping.py",)
)
LOGIN = Target("rlm/proxy/client_login.py", _LOGIN)
SESSION = Target("rlm/proxy/session.py", _LOGIN)
CONNECTION = Target("rlm/proxy/connection.py", _LOGIN)
UPSTREAM = Target("rlm/proxy/upstream.py", _LOGIN)
CONNECTIONS = Target("rlm/proxy/client_connections.py", _LOGIN)
POOL = Target("rlm/proxy/client_tokens.py", _TOKENS)
ISSUED = Target("rlm/service/client_tokens.py", _TOKENS)
CALLS = Target("rlm/broker/delegation_tokens.py", ("tests/rlm/broker/test_delegation_tokens.py",))
CORE = Target("rlm/workers/core_tokens.py", ("tests/rlm/workers/test_tokens.py",))
REMOTE = Target("rlm/workers/remote_tokens.py", ("tests/rlm/workers/test_tokens.py",))
SASL = Target("kafka_protocol/sasl.py", ("tests/kafka_protocol/test_sasl.py",))

_ENDS = ("tests/rlm/proxy/test_sessions.py",)
HELD = Target("rlm/proxy/fetch.py", _ENDS)
ENDS = Target("rlm/proxy/sasl.py", _ENDS)
ENDS_OF_LOGIN = Target("rlm/proxy/client_login.py", _ENDS)

EDITS: tuple[Edit, ...] = (
    *NAMES.edits(
        (
            "a comma in a name ends it",
            "_ESCAPED = frozenset(',=",
            "_ESCAPED = frozenset('=",
        ),
        (
            "an attribute that Java writes as bytes is text",
            "keyword is None or tag not in _STRINGS",
            "tag not in _STRINGS",
        ),
        (
            "the order of the parts is that of the certificate",
            'return ",".join(reversed(rows))',
            'return ",".join(rows)',
        ),
    ),
    *MAPPING.edits(
        (
            "a rule applies where it matches a part of the subject",
            "self.pattern.fullmatch(name) is None",
            "self.pattern.search(name) is None",
        ),
        (
            "letters are those of every script",
            '"".join(_translated(pattern)), re.ASCII)',
            '"".join(_translated(pattern)))',
        ),
        (
            "words end where Python says, not Java",
            '_SAME_ESCAPES = frozenset("',
            '_SAME_ESCAPES = frozenset("bB',
        ),
        (
            "a subject with a line end is read as Python does",
            "        if not _LINE_ENDS.isdisjoint(subject):\n            return None",
            "        if not subject:\n            return None",
        ),
        (
            "an end before a line end is Python's",
            "sign not in _SAME_ESCAPES and not is_reference",
            'sign not in _SAME_ESCAPES | {"Z"} and not is_reference',
        ),
        (
            "a reference to no group is an error",
            "            text = f",
            "            _ = f",
        ),
    ),
    *SASL.edits(
        (
            "a token is taken for a user",
            "{_BY_TOKEN if is_token else ''}",
            "",
        ),
    ),
    *LOGIN.edits(
        (
            "a refused token is used once more",
            "            self._refused = token.token_id\n",
            "",
        ),
        (
            "refused tokens are replaced without end",
            "            self._is_retried = True\n",
            "",
        ),
        (
            "limits do not know the principal",
            "        self._known(token.principal)\n",
            "",
        ),
        (
            "the tokens of a connection that has ended stay in use",
            "            self._lease.close()\n",
            "            pass\n",
        ),
    ),
    *SESSION.edits(
        (
            "a login comes in the middle of a request",
            "            elif self._is_to_stop:\n",
            "            elif self._is_to_stop and position == 0:\n",
        ),
    ),
    *CONNECTION.edits(
        (
            "a session ends under its connection",
            "        if self._login is not None and self._login.is_due():\n",
            "        if self._login is None and self.is_over:\n",
        ),
        (
            "a client that sends while its session is renewed has it renewed twice, and is cut",
            "        self.requests.stop(wanted=False)\n",
            "",
        ),
    ),
    *UPSTREAM.edits(
        (
            "a client without a token costs the broker a connection",
            "            await login.prepare()  # without a token no broker is connected\n",
            "            pass\n",
        ),
    ),
    *CONNECTIONS.edits(
        (
            "a client's own SASL goes over the connection of its certificate",
            "watch.handle if login is None else _refuse_sasl",
            "watch.handle",
        ),
    ),
    *HELD.edits(
        (
            "KIP-368: a fetch is repeated after the session, and its client is cut off",
            "min(max(request.max_wait_ms, 0), left_ms)",
            "max(request.max_wait_ms, 0)",
        ),
    ),
    *ENDS.edits(
        (
            "KIP-368: when the session of a client's own login ends is not known",
            "if lifetime_ms > 0 else math.inf\n",
            "if lifetime_ms < 0 else math.inf\n",
        ),
    ),
    *ENDS_OF_LOGIN.edits(
        (
            "KIP-368: a fetch is repeated after the session of the proxy's login",
            "        if renew_at is None:\n",
            "        if renew_at is not None:\n",
        ),
    ),
    *POOL.edits(
        (
            "a token is used to its end",
            "known is not None and known.is_fresh(now_ms):",
            "known is not None and not known.is_over(now_ms):",
        ),
        (
            "a refused client may ask for tokens without a pause",
            "now_ms - at_ms >= _REFUSED_MS",
            "now_ms >= at_ms",
        ),
        (
            "a token whose life is over is used because there is no other",
            "known is None or known.is_over(self._clock.monotonic_ms())",
            "known is None",
        ),
        (
            "a token that nobody waits for any more stays",
            "                self._unused(key, (made,))\n",
            "                pass\n",
        ),
    ),
    *ISSUED.edits(
        (
            "a token is used before the broker knows it",
            "            await self._until_known(made)\n",
            "            pass\n",
        ),
        (
            "rules of another listener count",
            'config.get(f"{own}{RULES_KEY}") or config.get(RULES_KEY)',
            "config.get(RULES_KEY)",
        ),
        (
            "names of another builder are guessed",
            "    if builder not in _BUILDERS:\n",
            "    if builder is config:\n",
        ),
        (
            "an empty name is a principal",
            "        if not found:\n",
            "        if found is None:\n",
        ),
        (
            "the core ends tokens that workers use",
            "        if ends_used:\n",
            "        if self._tokens:\n",
        ),
        (
            "tokens whose last connection has ended stay",
            "            if now_ms >= until_ms:\n",
            "            if now_ms < 0:\n",
        ),
    ),
    *CALLS.edits(
        (
            "a service with another certificate makes tokens that it cannot find",
            "        if _requester(answer) == renewer:\n",
            "        if answer:\n",
        ),
        (
            "a token is ended later",
            "_AT_ONCE = -1\n",
            "_AT_ONCE = 1\n",
        ),
        (
            "an older broker is asked for tokens of others",
            "< _WITH_OWNER:\n",
            "< 0:\n",
        ),
    ),
    *CORE.edits(
        (
            "a worker that has gone uses its tokens for ever",
            "        for subject in tuple(self._leases):\n",
            "        for subject in ():\n",
        ),
    ),
    *REMOTE.edits(
        (
            "the core never hears that the last connection has ended",
            "        self._left(subject)\n",
            "        pass\n",
        ),
    ),
)
