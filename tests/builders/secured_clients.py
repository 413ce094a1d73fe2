"""Clients of a secured sandbox: sandbox.json in, arguments of the Python libraries out."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka.abc import AbstractTokenProvider

from kafka_clients.security import TlsFiles
from kafka_clients.tls_context import make_tls_context
from kafka_protocol.apis import METADATA
from kafka_protocol.primitives import WireError
from kafka_protocol.sasl import OAUTHBEARER
from rlm_sandbox.security.broker_calls import broker_calls
from rlm_sandbox.security.clients import ClientIdentity
from rlm_sandbox.security.listeners import has_tls

_TOKEN_IS_FRESH_S = 3600
_TIMEOUT_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Client:
    """A principal of sandbox.json at one listener; `mechanism` None = it needs no SASL there."""

    bootstrap: str
    protocol: str
    mechanism: str | None
    name: str
    password: str
    token_file: Path
    ca: str | None
    certificate: str | None
    key: str | None


def _client(
    document: Mapping[str, Any], name: str, mechanism: str | None, *, proxy: bool
) -> _Client:
    """`mechanism` None = the one that is usual there."""
    security = document["security"]
    principal, listener = security[name], security["proxy"] if proxy else security
    return _Client(
        bootstrap=document["bootstrap" if proxy else "direct_bootstrap"],
        protocol=listener["protocol"],
        mechanism=mechanism or listener["mechanism"],
        name=name,
        password=principal["password"],
        token_file=Path(principal["token_file"]),
        ca=security["ca"] if has_tls(listener["protocol"]) else None,
        certificate=principal.get("certificate"),
        key=principal.get("key"),
    )


def librdkafka(
    document: Mapping[str, Any], name: str, *, mechanism: str | None = None, proxy: bool = False
) -> dict[str, Any]:
    """Settings of confluent-kafka for a principal on the direct listener, or at the proxy."""
    client = _client(document, name, mechanism, proxy=proxy)
    config: dict[str, Any] = {
        "bootstrap.servers": client.bootstrap,
        "security.protocol": client.protocol,
    }
    if client.mechanism:
        config["sasl.mechanism"] = client.mechanism
    if client.mechanism == OAUTHBEARER:
        token = client.token_file.read_text("ascii")
        config["oauth_cb"] = lambda _: (token, time.time() + _TOKEN_IS_FRESH_S)
    elif client.mechanism:
        config |= {"sasl.username": client.name, "sasl.password": client.password}
    if client.ca is not None:
        config["ssl.ca.location"] = client.ca
    if client.certificate is not None:
        config["ssl.certificate.location"] = client.certificate
        config["ssl.key.location"] = client.key
    return config


class _FileToken(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, path: Path) -> None:
        self._path = path

    async def token(self) -> str:
        return self._path.read_text("ascii")


def aiokafka(
    document: Mapping[str, Any], name: str, *, mechanism: str | None = None, proxy: bool = False
) -> dict[str, Any]:
    """Keyword arguments of aiokafka's clients for a principal, as `librdkafka`."""
    client = _client(document, name, mechanism, proxy=proxy)
    arguments: dict[str, Any] = {
        "bootstrap_servers": client.bootstrap,
        "security_protocol": client.protocol,
    }
    if client.mechanism:
        arguments["sasl_mechanism"] = client.mechanism
    if client.mechanism == OAUTHBEARER:
        arguments["sasl_oauth_token_provider"] = _FileToken(client.token_file)
    elif client.mechanism:
        arguments |= {"sasl_plain_username": client.name, "sasl_plain_password": client.password}
    if client.ca is not None:
        files = TlsFiles(ca_file=client.ca, cert_file=client.certificate, key_file=client.key)
        arguments["ssl_context"] = make_tls_context(files)
    return arguments


def connects(port: int, identity: ClientIdentity | None) -> bool:
    """Whether a loopback port answers Metadata to that client, or to one that says nothing."""
    try:
        with broker_calls(port, identity, timeout_s=_TIMEOUT_S) as calls:
            return bool(calls.call(METADATA, 1, {"topics": []})["brokers"])
    except (OSError, EOFError, WireError):
        return False
