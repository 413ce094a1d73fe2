"""TLS on both sides of a proxy under test, with throwaway certificates.

Tests that make a proxy run with it where their module asks for it (conftest.py): clients speak TLS
to the proxy, and the proxy speaks TLS to the fake broker.
"""

import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlm.proxy.tls_files import PLAIN, ListenerTls, ProxyTls, TlsContexts, UpstreamTls
from rlm.workers.tls import tls_contexts
from tests.builders.certificates import Authority, Certificate

PROXY_NAME, BROKER_NAME = "proxy.test", "broker.test"


@dataclass(kw_only=True)
class Secured:
    """What each of the three shows and trusts. `tls` may be changed before a proxy is made of
    it.
    """

    authority: Authority
    tls: ProxyTls
    broker: ssl.SSLContext
    client: ssl.SSLContext
    contexts: list[TlsContexts] = field(default_factory=list)

    @classmethod
    def of(cls, folder: Path) -> "Secured":
        """All certificates are of one authority."""
        authority = Authority(folder)
        proxy, broker = authority.issue(PROXY_NAME), authority.issue(BROKER_NAME)
        tls = ProxyTls(
            listener=ListenerTls(cert_file=str(proxy.cert_file), key_file=str(proxy.key_file)),
            upstream=UpstreamTls(ca_file=str(authority.ca_file), server_name=BROKER_NAME),
        )
        return cls(authority=authority, tls=tls, broker=serving(broker), client=trusting(authority))

    def listener(self, **changes: str) -> None:
        """Change what the proxy shows to clients and asks of them."""
        assert self.tls.listener is not None
        self.tls = replace(self.tls, listener=replace(self.tls.listener, **changes))

    def made(self) -> TlsContexts:
        """Of a proxy."""
        self.contexts.append(tls_contexts(self.tls))
        return self.contexts[-1]


def serving(shown: Certificate) -> ssl.SSLContext:
    """Of a server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.cert_file, shown.key_file)
    return context


def trusting(authority: Authority, shown: Certificate | None = None) -> ssl.SSLContext:
    """Of a client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.ca_file)
    if shown is not None:
        context.load_cert_chain(shown.cert_file, shown.key_file)
    return context


_current: list[Secured] = []


@contextlib.contextmanager
def secure(secured: Secured) -> Iterator[Secured]:
    """Every proxy that is made meanwhile speaks TLS on both sides."""
    _current.append(secured)
    try:
        yield secured
    finally:
        _current.remove(secured)


def proxy_contexts() -> TlsContexts:
    """Of a proxy that is made now."""
    return _current[-1].made() if _current else PLAIN


def broker_context() -> ssl.SSLContext | None:
    """Of a fake broker that is made now; None = plain."""
    return _current[-1].broker if _current and _current[-1].tls.upstream else None


def client_tls() -> dict[str, Any]:
    """For asyncio.open_connection to a proxy that was made now."""
    if not _current or not _current[-1].tls.listener:
        return {}
    return {"ssl": _current[-1].client, "server_hostname": PROXY_NAME}
