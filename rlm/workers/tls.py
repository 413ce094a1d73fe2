"""The TLS contexts of a process that serves Kafka clients, renewed with their files.

The proxy must not import what renews them, which belongs to the plugins' side (G6). Each worker has
its own: it looks at the files before a handshake, so that a new certificate needs no restart.
"""

from rlm.proxy.tls_files import PLAIN, ProxyTls, TlsContexts
from rsm_plugins.renewed import Renewed


def tls_contexts(tls: ProxyTls) -> TlsContexts:
    """Invalid: the files cannot be used as they are now. Later the former contexts stay."""
    listener, upstream = tls.listener, tls.upstream
    if listener is None and upstream is None:
        return PLAIN
    return TlsContexts(
        listener=None if listener is None else Renewed(listener.files, listener.context),
        upstream=None if upstream is None else Renewed(upstream.files, upstream.context),
        upstream_name="" if upstream is None else upstream.server_name,
    )
