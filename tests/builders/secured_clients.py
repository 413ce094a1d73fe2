"""Clients of a secured sandbox: sandbox.json in, arguments of the Python libraries out."""

import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiokafka.abc import AbstractTokenProvider

from kafka_protocol.apis import METADATA
from rlm_sandbox.security.broker_calls import broker_calls
from rlm_sandbox.security.clients import ClientIdentity
from rlm_sandbox.security.listeners import has_tls

_TOKEN_IS_FRESH_S = 3600
_TIMEOUT_S = 20


def librdkafka(
    document: Mapping[str, Any], name: str, *, mechanism: str | None = None, proxy: bool = False
) -> dict[str, Any]:
    """Settings of confluent-kafka for a principal on the direct listener, or at the proxy."""
    principal = document["security"][name]
    listener = _listener(document, proxy)
    chosen = mechanism or listener["mechanism"]
    config: dict[str, Any] = {
        "bootstrap.servers": listener["bootstrap"],
        "security.protocol": listener["protocol"],
    }
    if chosen == "OAUTHBEARER":
        token = Path(principal["token_file"]).read_text("ascii")
        config["oauth_cb"] = lambda _: (token, time.time() + _TOKEN_IS_FRESH_S)
    elif chosen:
        config |= {"sasl.username": name, "sasl.password": principal["password"]}
    if chosen:
        config["sasl.mechanism"] = chosen
    if has_tls(listener["protocol"]):
        config["ssl.ca.location"] = document["security"]["ca"]
    if "certificate" in principal:
        config["ssl.certificate.location"] = principal["certificate"]
        config["ssl.key.location"] = principal["key"]
    return config


def _listener(document: Mapping[str, Any], proxy: bool) -> dict[str, Any]:
    """Where a client connects, and how."""
    security = document["security"]
    found = security["proxy"] if proxy else security
    bootstrap = document["bootstrap"] if proxy else document["direct_bootstrap"]
    return {
        "bootstrap": bootstrap,
        "protocol": found["protocol"],
        "mechanism": found["mechanism"],
    }


class _FileToken(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, path: str) -> None:
        self._path = Path(path)

    async def token(self) -> str:
        return self._path.read_text("ascii")


def aiokafka(
    document: Mapping[str, Any], name: str, *, mechanism: str | None = None, proxy: bool = False
) -> dict[str, Any]:
    """Keyword arguments of aiokafka's clients for a principal, as `librdkafka`."""
    principal = document["security"][name]
    listener = _listener(document, proxy)
    chosen = mechanism or listener["mechanism"]
    arguments: dict[str, Any] = {
        "bootstrap_servers": listener["bootstrap"],
        "security_protocol": listener["protocol"],
    }
    if chosen == "OAUTHBEARER":
        arguments["sasl_oauth_token_provider"] = _FileToken(principal["token_file"])
    elif chosen:
        arguments |= {"sasl_plain_username": name, "sasl_plain_password": principal["password"]}
    if chosen:
        arguments["sasl_mechanism"] = chosen
    if has_tls(listener["protocol"]):
        context = ssl.create_default_context(cafile=document["security"]["ca"])
        if "certificate" in principal:
            context.load_cert_chain(principal["certificate"], principal["key"])
        arguments["ssl_context"] = context
    return arguments


def connects(port: int, identity: ClientIdentity | None) -> bool:
    """Whether a loopback port answers Metadata to that client, or to one that says nothing."""
    try:
        with broker_calls(port, identity, timeout_s=_TIMEOUT_S) as calls:
            return bool(calls.call(METADATA, 1, {"topics": []})["brokers"])
    except (OSError, EOFError):
        return False
