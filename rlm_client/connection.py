"""The arguments that say how the fetch API is reached."""

from collections.abc import Sequence
from pathlib import Path

from tiered_reads.values import ServiceConnection, is_fit, token_of

PRINCIPAL = "rlm-client"
"""What services count this caller as, where the user gives no name and no token."""


def service_connection(
    endpoints: str | Sequence[str],
    *,
    principal: str = PRINCIPAL,
    token_file: str | None = None,
    tls_ca_file: str | None = None,
    tls_cert_file: str | None = None,
    tls_key_file: str | None = None,
    tls_server_name: str | None = None,
    call_timeout_ms: int = 30_000,
) -> ServiceConnection:
    """ValueError for endpoints that are none, or a principal that no call can carry. OSError: the
    token file cannot be read.
    """
    given = endpoints.split(",") if isinstance(endpoints, str) else endpoints
    addresses = tuple(one.strip() for one in given if one.strip())
    if not addresses or not all(_is_address(one) for one in addresses):
        raise ValueError(f"rlm_endpoints must be host:port, one or several: {endpoints!r}")
    if not is_fit(principal):
        raise ValueError("rlm_principal must be printable ASCII")
    return ServiceConnection(
        endpoints=addresses,
        principal=principal,
        token=None if token_file is None else token_of(Path(token_file).read_text()),
        token_file=token_file,
        tls_ca_file=tls_ca_file,
        tls_cert_file=tls_cert_file,
        tls_key_file=tls_key_file,
        tls_server_name=tls_server_name,
        call_timeout_ms=call_timeout_ms,
    )


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdigit()
