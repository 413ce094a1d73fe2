"""Planted bugs in how connections to brokers are secured."""

from tests.mutants.edits import Edit, Target

_SASL = Target("kafka_protocol/sasl.py", ("tests/kafka_protocol/test_sasl.py",))
_CHANNEL = Target(
    "kafka_clients/channel_security.py", ("tests/kafka_clients/test_channel_security.py",)
)
_WIRE = Target("rlm/broker/connection.py", ("tests/kafka_clients/test_channel_security.py",))
_WIRE_END = Target("rlm/broker/connection.py", ("tests/kafka_clients/test_tls.py",))
_TLS = Target("kafka_clients/tls_context.py", ("tests/kafka_clients/test_tls.py",))
_ENDPOINT = Target(
    "kafka_clients/token_endpoint.py", ("tests/kafka_clients/test_token_endpoint.py",)
)
_BEARER = Target("kafka_clients/bearer_tokens.py", ("tests/kafka_clients/test_token_endpoint.py",))
_CLIENT = Target(
    "kafka_clients/broker_client.py",
    ("tests/kafka_clients/test_channel_security.py",),
)
_CONFIG = Target("rlm/config/secured.py", ("tests/rlm/config/test_secured.py",))
_VARIABLES = Target("rlm/config/environment.py", ("tests/rlm/config/test_environment.py",))
_TABLE = Target("kip405/settings.py", ("tests/rlm/config/test_environment.py",))
_SPAWNED = Target("rsm_plugins/process/spawned.py", ("tests/rsm_plugins/test_spawned.py",))
_CHILDREN = Target("rlm/workers/children.py", ("tests/rlm/workers/test_h24_supervisor.py",))

_DIAGNOSIS = Target("rlm/service/diagnosis.py", ("tests/rlm/service/test_diagnosis.py",))
_MASKED_STATUS = Target("rlm/api/cluster_status.py", ("tests/rlm/cli/test_diagnose.py",))
_MASKED_EVENTS = Target("rlm/api/task_events.py", ("tests/rlm/cli/test_diagnose.py",))

EDITS: tuple[Edit, ...] = (
    *_DIAGNOSIS.edits(
        (
            "a secret that an error text repeats is in a diagnosis",
            "_fit(masked(text, secrets).encode())",
            "_fit(text.encode())",
        ),
        (
            "a secret of a store is no secret to a diagnosis",
            'if shown.get(f"{store.where}{key}") == MASK',
            'if shown.get(key) == ""',
        ),
        (
            "tokens of the API are no secret to a diagnosis",
            "        yield from tokens()\n",
            "",
        ),
        (
            "secrets in lists of texts of an answer are in a diagnosis",
            "                value[:] = [without(one, spellings) for one in value]\n",
            "                continue\n",
        ),
    ),
    *_MASKED_STATUS.edits(
        (
            "status masks the secrets of the asked service alone",
            "local_only=True, mask_secrets=asked.mask_secrets",
            "local_only=True",
        ),
    ),
    *_MASKED_EVENTS.edits(
        (
            "events are masked by the asked service alone",
            "            mask_secrets=request.mask_secrets,\n",
            "",
        ),
    ),
    *_BEARER.edits(
        (
            "a token endpoint that repeats the secret has it in the log",
            "{masked(said, secrets)[:_MOST_WORDS]}",
            "{said[:_MOST_WORDS]}",
        ),
        (
            "the rest of a secret that is cut off is not seen as one",
            "{masked(said, secrets)[:_MOST_WORDS]}",
            "{masked(said[:_MOST_WORDS], secrets)}",
        ),
    ),
    *_SASL.edits(
        (
            "SCRAM: a server need not know the password",
            'not hmac.compare_digest(_base64(given, "v"), self._signature)',
            "False",
        ),
        (
            "SCRAM: a server may replay another client's nonce",
            "if not nonce.startswith(self._nonce) or nonce == self._nonce:",
            "if not nonce:",
        ),
        (
            "SCRAM: a server may ask for any number of iterations",
            "if not LEAST_ITERATIONS <= int(text) <= MOST_ITERATIONS:",
            "if not LEAST_ITERATIONS <= int(text):",
        ),
        (
            "SCRAM: a password that is cheap to guess is proven",
            "if not LEAST_ITERATIONS <= int(text) <= MOST_ITERATIONS:",
            "if not int(text) <= MOST_ITERATIONS:",
        ),
    ),
    *_CHANNEL.edits(
        (
            "KIP-368: a session is used to its end",
            "_RENEW_AT = 0.85",
            "_RENEW_AT = 2.0",
        ),
        (
            "a wrong password is tried by every client at once",
            "if known is not None and loop.time() < known.until:",
            "if known is None and False:",
        ),
        (
            "a refusal is shown after it has ended",
            "        self._refusals.pop(where, None)\n",
            "",
        ),
        (
            "a token is asked for at every connection",
            "if self._kept is None or loop.time() >= self._kept[1]:",
            "if True:",
        ),
        (
            "a token that a broker refused is used again",
            "                self._tokens.forget()\n",
            "",
        ),
        (
            "what a broker says may have the password",
            'said = masked(answer["error_message"] or "", [secret])',
            'said = answer["error_message"] or ""',
        ),
    ),
    *_WIRE.edits(
        (
            "KIP-368: the wire layer does not authenticate again",
            "if channel.session is None or channel.session.is_due(_now()):",
            "if channel.session is None:",
        ),
        (
            "a session that is half begun is used",
            'channel.close(ConnectionResetError(f"it was not authenticated: {error}"))',
            "channel.session = Session()",
        ),
    ),
    *_WIRE_END.edits(
        (
            "a closed connection of the wire layer outlives its client where a broker hangs",
            "            self._writer.transport.abort()  # one that has ended takes no notice\n",
            "            return\n",
        ),
    ),
    *_CLIENT.edits(
        (
            "KIP-368: aiokafka's connections do not authenticate again",
            "if not self._session.is_due(asyncio.get_running_loop().time()):",
            "if True:",
        ),
        (
            "SASL's messages are in aiokafka's log",
            "return _Hidden(decode_response(api, version, frame)[1])",
            "return decode_response(api, version, frame)[1]",
        ),
    ),
    *_TLS.edits(
        (
            "a certificate of another host is taken",
            "context.check_hostname = files.checks_host_name",
            "context.check_hostname = False",
        ),
    ),
    *_ENDPOINT.edits(
        (
            "a token endpoint may send without end",
            "if len(received) > _MOST_ANSWER_BYTES:",
            "if False:",
        ),
        (
            "the name of a token endpoint is checked only if brokers' are",
            "TlsFiles(ca_file=tls.ca_file, ca_text=tls.ca_text)",
            "tls",
        ),
    ),
    *_CONFIG.edits(
        (
            "a password without a protocol that uses it is taken silently",
            "if key in _ROWS and key != PROTOCOL_KEY and not _has_effect(key, protocol):",
            "if False:",
        ),
    ),
    *_VARIABLES.edits(
        (
            "children get the secrets of all stores in RLM_STORES",
            "return frozenset(variables())",
            "return frozenset(name for name, row in variables().items() if row.secret)",
        ),
        (
            "a variable with a slip is passed over, and the file's value stays",
            "elif name not in COMMAND_VARIABLES and",
            "elif False and",
        ),
        (
            "a port that was meant for a setting is taken for a variable of Kubernetes",
            "_PORT=(tcp|udp|sctp)://",
            "_PORT=",
        ),
        (
            "a refusal does not name the variable that gives the setting",
            "if name not in text and names_setting(text, row)",
            "if False",
        ),
        (
            "the file wins over the environment",
            "given[key] = value",
            "given.setdefault(key, value)",
        ),
        (
            "the file of a secret wins over the secret in the environment",
            "given.pop(other, None)",
            "given.get(other)",
        ),
    ),
    *_TABLE.edits(
        (
            "a password that is given for its file is in the refusal",
            "if self.kind is PATH and names_secret_file(self.key):",
            "if False:",
        ),
    ),
    *_SPAWNED.edits(
        (
            "a plugin gets the password of the Kafka clients",
            "for name, one in os.environ.items() if name not in self._withheld",
            "for name, one in os.environ.items()",
        ),
    ),
    *_CHILDREN.edits(
        (
            "a proxy worker gets the password of the Kafka clients",
            "for name, one in os.environ.items() if name not in plan.withheld",
            "for name, one in os.environ.items()",
        ),
    ),
)
