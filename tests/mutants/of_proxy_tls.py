"""Planted bugs in TLS at the proxy: who gets in, what passes by, what is kept."""

from tests.mutants.edits import Edit, Target

_TLS = ("tests/rlm/proxy/test_tls.py",)
_TRANSPORT = ("tests/rlm/proxy/test_tls_transport.py",)
FILES = Target("rlm/proxy/tls_files.py", _TLS)
CLIENTS = Target("kafka_clients/tls_context.py", _TLS)
HANDSHAKES = Target("rlm/proxy/handshakes.py", _TLS)
UPSTREAM = Target("rlm/proxy/upstream.py", _TLS)
SERVER = Target("rlm/proxy/server.py", _TLS)
RENEWED = Target("rsm_plugins/renewed.py", _TLS)
WRITER = Target("rlm/proxy/writer.py", _TLS)
TRANSPORT = Target("rlm/proxy/tls_transport.py", _TRANSPORT)
SESSION = Target("rlm/proxy/session.py", ("tests/rlm/proxy/test_session.py",))
CERTIFICATES = Target("rlm/service/certificates.py", ("tests/rlm/test_certificates.py",))
LISTENERS = Target("rlm/plans/broker_listeners.py", ("tests/rlm/test_startup.py",))
SETTINGS = Target("rlm/config/proxy_tls.py", ("tests/rlm/config/test_proxy_clients.py",))

EDITS: tuple[Edit, ...] = (
    *FILES.edits(
        (
            "a client of an issuing authority is refused that brokers take",
            "    context.verify_flags |= TRUSTS_EACH\n",
            "",
        ),
        (
            "clients without the certificate that is required get in",
            "        context.verify_mode = CLIENT_AUTH[self.client_auth]\n",
            "",
        ),
        (
            "an older version of TLS is spoken",
            "        context.minimum_version = VERSIONS[self.min_version]\n",
            "",
        ),
        (
            "a broker of any name is trusted",
            "            checks_host_name=self.checks_name,\n",
            "            checks_host_name=False,\n",
        ),
        (
            "a client may renegotiate as often as it likes",
            "ssl.OP_NO_RENEGOTIATION | ",
            "",
        ),
        (
            "the text of a wrong password is kept as the cause of its refusal",
            '"; a key with a password needs its password file")\n        ) from None',
            "password)\n        ) from error",
        ),
    ),
    *CLIENTS.edits(
        (
            "a broker of an issuing authority is refused that other clients take",
            "    context.verify_flags |= TRUSTS_EACH\n",
            "",
        ),
    ),
    *HANDSHAKES.edits(
        (
            "an expired certificate connects on by resumed sessions",
            "    if shown and now_ms >=",
            "    if shown and 0 >=",
        ),
        (
            "H36: a handshake has no deadline",
            "asyncio.timeout(timeout_ms / 1000)",
            "asyncio.timeout(None)",
        ),
        (
            "a client without TLS cannot be told from a broken one",
            "            await _require_hello(client)\n",
            "",
        ),
    ),
    *UPSTREAM.edits(
        (
            "the name of the broker is not the one that is set",
            "    name = tls.upstream_name or host\n",
            "    name = host\n",
        ),
    ),
    *SERVER.edits(
        (
            "clients in their handshake are not counted",
            "        open_count = len(self._connections) + len(self._handshakes)\n",
            "        open_count = len(self._connections)\n",
        ),
    ),
    *RENEWED.edits(
        (
            "a renewed certificate is never shown",
            "        if stamp == self._stamp:\n",
            "        if self._stamp:\n",
        ),
    ),
    *WRITER.edits(
        (
            "bytes go past TLS in plain",
            ' or transport.get_extra_info("sslcontext") is not None:\n',
            ":\n",
        ),
    ),
    *TRANSPORT.edits(
        (
            "G6: a socket whose other side sends no more is read for ever",
            "self._is_closing or self._has_ended)",
            "self._is_closing)",
        ),
        (
            "what OpenSSL has decrypted is forgotten when reading resumes",
            "self._secured.pending():  # of these no selector knows\n",
            "self._is_closing:\n",
        ),
        (
            "a record that the socket did not take is not offered again",
            "            self._pending = bytes(part)\n",
            "            self._pending = bytes(len(part))\n            self._secured.send(b'')\n",
        ),
        (
            "a close drops what the socket has not taken",
            "        if not self._pending:\n            self._say_goodbye()\n",
            "        self._say_goodbye()\n",
        ),
        (
            "the end comes without close_notify",
            "            self._secured.unwrap()  # does not wait",
            "            self._secured.fileno()  # does not wait",
        ),
        (
            "an error behind good records is not seen",
            "        if failed is not None:\n",
            "        if failed is not None and not filled:\n",
        ),
    ),
    *SESSION.edits(
        (
            "TLS on a plain port has no name of its own",
            "    if bytes(head[:2]) == _TLS_HELLO:\n",
            "    if not head:\n",
        ),
    ),
    *CERTIFICATES.edits(
        (
            "files that do not fit each other are no problem",
            "        tried = [await self._threads.run(try_files, one) for one in self._together]\n",
            "        tried = [None for one in self._together]\n",
        ),
        (
            "the end of the proxy's certificate comes as a surprise",
            "        rows += _of_listener(config)\n",
            "        pass\n",
        ),
    ),
    *LISTENERS.edits(
        (
            "a service with TLS to a plain listener starts and lets nobody in",
            "    if protocol in _PLAIN and config.dials_tls:\n",
            "    if not config:\n",
        ),
    ),
    *SETTINGS.edits(
        (
            "authorities are given, and no certificate is asked for",
            '    if auth == "none" and has_authority:\n',
            "    if not auth:\n",
        ),
    ),
)
