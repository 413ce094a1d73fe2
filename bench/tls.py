"""TLS between clients and the proxy of a benchmark's sandbox, switched on and off by turns.

The certificate is made for the run. A turn with it and a turn without it are of the same service,
which is restarted in between with other settings.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml

from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.security.certificates import Authority, write_issued

_LIFETIME = timedelta(days=1)
_NAMES = ("localhost", "127.0.0.1")


class ProxyTls:
    """The files of one sandbox, beside it."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        folder = sandbox.layout.root / "bench-tls"
        folder.mkdir()
        self._cert, self._key = folder / "proxy.pem", folder / "proxy.key"
        self._ca = folder / "ca.pem"
        now = datetime.now(UTC)
        authority = Authority.make(now=now)
        ends = now + _LIFETIME
        issued = authority.issue("proxy", begin=now - _LIFETIME, end=ends, server_names=_NAMES)
        write_issued(issued, self._cert, self._key)
        self._ca.write_text(authority.pem, encoding="ascii")

    def client_properties(self) -> Path:
        """A properties file for Java's tools."""
        path = self._ca.with_name("client.properties")
        path.write_text(
            f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={self._ca}\n",
            encoding="ascii",
        )
        return path

    def switch(self, *, on: bool) -> bool:
        """Change the settings of the service for its next start; whether they were others."""
        path = self._sandbox.layout.rlm_config(1)
        before = yaml.safe_load(path.read_text(encoding="utf-8"))
        kept = {key: value for key, value in before.items() if not key.startswith("proxy.tls.")}
        ours = {"proxy.tls.cert.file": str(self._cert), "proxy.tls.key.file": str(self._key)}
        after = kept | ours if on else kept
        path.write_text(yaml.safe_dump(after), encoding="utf-8")
        return bool(after != before)
