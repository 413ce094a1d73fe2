"""Planted bugs in who may do what at the API: somebody sees or does what is not theirs."""

from tests.mutants.edits import Edit, Target

_RIGHTS = Target("rlm/plans/api_rights.py", ("tests/rlm/plans/test_api_rights.py",))
_TABLE = Target(
    "rlm/api/method_rights.py",
    ("tests/rlm/api/test_method_rights.py", "tests/rlm/api/test_authorization.py"),
)
_AUTHORIZATION = Target("rlm/api/authorization.py", ("tests/rlm/api/test_authorization.py",))
_CALLERS = Target(
    "rlm/api/calls.py", ("tests/rlm/api/test_known_callers.py", "tests/rlm/api/test_tokens.py")
)
_PRINCIPALS = Target("rlm/api/principals.py", ("tests/rlm/api/test_principals.py",))
_KAFKA = Target("rlm/api/authorizers.py", ("tests/rlm/api/test_kafka_authorizer.py",))
_PEERS = Target("rlm/api/peers.py", ("tests/rlm/api/test_known_callers.py",))
_HTTP = Target("rlm/service/listeners.py", ("tests/rlm/http/test_http_access.py",))
_CONFIG = Target("rlm/config/rules.py", ("tests/rlm/config/test_authorization.py",))
_FILES = Target("rsm_plugins/process/yaml_text.py", ("tests/rlm/api/test_principals.py",))
_PLUGIN_FILES = Target("rsm_plugins/process/yaml_text.py", ("tests/rsm_plugins/test_config.py",))
_SPARK = Target("tiered_reads/service_calls.py", ("tests/tiered_reads/test_fetch_client.py",))

_STRANGERS = Target("rlm/api/strangers.py", ("tests/rlm/api/test_strangers.py",))
_GATE = Target("rlm/api/calls.py", ("tests/rlm/api/test_strangers.py",))

EDITS: tuple[Edit, ...] = (
    *_STRANGERS.edits(
        (
            "H36: strangers take all calls by streams that never end",
            "            async with self._watching.one(context):\n",
            "            async with contextlib.nullcontext():\n",
        ),
        (
            "H36: strangers take all calls by sending no message",
            "        if self._gate is None:\n",
            "        if self._gate is not handler:\n",
        ),
        (
            "slots of health and reflection never come back",
            "            self._taken[host] -= 1\n",
            "            self._taken[host] -= 0\n",
        ),
        (
            "H36: one host takes all calls that watch",
            "or self._taken[host] >= self._of_a_host:",
            "or self._taken[host] < 0:",
        ),
        (
            "H36: calls without a message are as many as may be from hosts together",
            "self._taken.total() >= self._most or",
            "self._taken.total() < 0 or",
        ),
        (
            "H36: health checks without a message take the slots of those with one",
            "            async with self._waiting.one(context):\n",
            "            async with self._answered.one(context):\n",
        ),
        (
            "H36: a certificate that is nobody's keeps slots by sending no message",
            "        async with Answering(gate, context, operation):\n            pass\n",
            "",
        ),
        (
            "H36: whoever shows a certificate need not be anybody to have a slot",
            "        if not self._gate.needs_certificate(shown):\n",
            "        if shown is None:\n",
        ),
    ),
    *_GATE.edits(
        (
            "whoever shows a certificate must show a token too",
            "        elif not knows_certificates:\n",
            "        else:\n",
        ),
    ),
    *_RIGHTS.edits(
        (
            "whoever gives commands reads records",
            "{ApiRight.DESCRIBE, ApiRight.OPERATE, ApiRight.CONFIGURE, ApiRight.DELETE}",
            "set(ApiRight)",
        ),
        ("a name is taken for a prefix", "topic.startswith(prefix)", "prefix.startswith(topic)"),
        ("the caller's address is not looked at", ", host=self.host)", ")"),
    ),
    *_TABLE.edits(
        (
            "who may configure a topic may delete its remote data",
            "(_C, _X) if request.delete_remote else (_C,)",
            "(_C,) if request.delete_remote else (_C,)",
        ),
        (
            "whoever may operate an id may freeze the topic",
            "yield Need(right=right, topic=EVERY_TOPIC)\n            return\n"
            "        for topic in names.meant_by(request.topic):",
            "yield Need(right=right, topic=EVERY_TOPIC)\n            return\n"
            "        for topic in (request.topic,):",
        ),
        (
            "whoever may configure an id may disable the topic",
            "(_C, _X) if request.delete_remote else (_C,)\n"
            "    for topic in names.meant_by(request.topic):",
            "(_C, _X) if request.delete_remote else (_C,)\n    for topic in (request.topic,):",
        ),
        (
            "a topic that is named by its id needs no right",
            "        yield Need(right=_C, topic=topic, named=request.topic)",
            "        yield Need(right=_C, topic=request.topic or topic)",
        ),
        (
            "problems of every topic are shown",
            "answer.problems, answer.deletions",
            "answer.deletions,",
        ),
        (
            "services, stores and hosts are shown to everybody",
            "        del answer.services[:]\n",
            "",
        ),
    ),
    *_AUTHORIZATION.edits(
        (
            "a right that is taken away counts at the next call only",
            "                            await self._authorise_again(call, context)\n",
            "",
        ),
        (
            "a read goes on with a token that was taken back",
            "if self._gate.admit(context) != call.caller:",
            "if not call.caller:",
        ),
        (
            "a read goes on with a token that is another's by now",
            "if self._gate.admit(context) != call.caller:",
            "if not self._gate.admit(context):",
        ),
        (
            "the name of a hidden topic is said by its id",
            "_is_by_id(call) and rights.lacks(",
            "not lacks and rights.lacks(",
        ),
        (
            "a refused call makes a line of megabytes in the log",
            "str(lacking)[:LACKS_SHOWN_MAX]",
            "str(lacking)",
        ),
        (
            "a right that a call needs a thousand times is looked up a thousand times",
            "dict.fromkeys(await needs_of(call.rule, call.request, self._names))",
            "await needs_of(call.rule, call.request, self._names)",
        ),
        (
            "a command without a line in the audit log is carried out",
            "is_needed = self._authorizer is not None and not call.rule.never_waits",
            "is_needed = self._authorizer is None and call.rule.never_waits",
        ),
        (
            "a freeze waits for a disk that hangs",
            "asyncio.timeout(None if is_needed else AUDIT_WAIT_MS / 1000)",
            "asyncio.timeout(None)",
        ),
        ("lists show every topic", "        if sees(EVERY_TOPIC):\n", "        if rights:\n"),
        (
            "a forwarded command is written down twice",
            "        if call.caller.is_forwarded and self._authorizer is not None:\n",
            "        if not call.caller:\n",
        ),
        (
            "whoever says that a service forwards the command leaves no line",
            "        if call.caller.is_forwarded and self._authorizer is not None:\n",
            "        if call.caller.is_forwarded:\n",
        ),
    ),
    *_CALLERS.edits(
        (
            "a certificate that nobody names is let in",
            "principal = principals.of_certificate(subject, _certificate_of(context))",
            "principal = principals.of_certificate(subject, _certificate_of(context)) or subject",
        ),
        (
            "the rules are asked with the subject as gRPC writes it, which is not as brokers do",
            "principal = principals.of_certificate(subject, _certificate_of(context))",
            "principal = principals.of_certificate(subject, None and _certificate_of(context))",
        ),
        (
            "a caller is let in whose commands cannot be forwarded",
            "    if not can_be_named(principal):\n",
            "    if not principal:\n",
        ),
        (
            "a token of a principal and of the services has every right",
            "if is_service and principal is not None:",
            "if is_service and principal is None and shown is None:",
        ),
        (
            "an unknown token is taken for that of the services",
            "if principal is None and not is_service:",
            "if principal is None and not shown:",
        ),
    ),
    *_PRINCIPALS.edits(
        (
            "a principal is taken whom no call between services can name",
            "    if not can_be_named(name):\n",
            "    if not name or not name.isprintable():\n",
        ),
        (
            "two principals have one token",
            "                if key in known:\n",
            "                if key in known and not word:\n",
        ),
        (
            "a file with rights is taken although ACLs decide",
            'if not has_rights and (entry.get("topics") or entry.get("prefixes")):',
            'if not has_rights and entry.get("topics") and entry.get("prefixes"):',
        ),
    ),
    *_KAFKA.edits(
        (
            "what the brokers once said counts for ever",
            "        return self._clock.monotonic_ms() - known.at_ms < limit_ms\n",
            "        return limit_ms > 0\n",
        ),
        (
            "old ACLs count while the brokers are away",
            "        if known.failure is not None:\n            raise",
            "        if known.failure is not None and not known.at_ms:\n            raise",
        ),
    ),
    *_PEERS.edits(
        (
            "a token is sent in plain to wherever a heartbeat says",
            "if token is not None and not self._sends_anywhere and not _is_private(address):",
            "if token is not None and not self._sends_anywhere and not address:",
        ),
    ),
    *_HTTP.edits(
        (
            "metrics are shown without the token",
            "        return not tokens or shows_one(",
            "        return bool(tokens) or shows_one(",
        ),
        (
            "problems are shown without the token",
            "shown = _body(state) if self._knows(request) else _status(state)\n",
            "shown = _body(state)\n",
        ),
        (
            "a renewed certificate is not shown",
            "        connection.context = contexts.current()\n",
            "        connection.context = of\n",
        ),
    ),
    *_CONFIG.edits(
        (
            "any public authority vouches for a peer that gets the token",
            "if config.api_token_file and config.grpc_tls and config.grpc_tls_ca_file is None:",
            "if config.api_token_file and not config.grpc_tls and config.grpc_tls_ca_file:",
        ),
    ),
    *_FILES.edits(
        (
            "a template that is not rendered ends the renewal of principals",
            "if not isinstance(key_node, yaml.ScalarNode):",
            "if key_node is None:",
        ),
        (
            "a date that does not exist ends the renewal of principals",
            "(ValueError, TypeError, AttributeError, LookupError, OverflowError, RecursionError)",
            "(AttributeError,)",
        ),
    ),
    *_PLUGIN_FILES.edits(
        (
            "of a key that is given twice one is in force that nobody sees",
            "            if key_node.value in lines:\n",
            "            if line in lines:\n",
        ),
    ),
    *_SPARK.edits(
        (
            "a long query sends its first token for ever",
            "            self._token = token\n        self._stamp",
            "            self._token = self._token or token\n        self._stamp",
        ),
    ),
)
