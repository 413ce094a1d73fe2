"""Clients of a secured sandbox: sandbox.json in, arguments of the Python libraries out."""

import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiokafka.abc import AbstractTokenProvider

_TOKEN_IS_FRESH_S = 3600


def librdkafka(
    document: Mapping[str, Any], name: str, *, mechanism: str | None = None
) -> dict[str, Any]:
    """Settings of confluent-kafka for a principal on the direct listener."""
    security = document["security"]
    principal = security[name]
    config: dict[str, Any] = {
        "bootstrap.servers": document["direct_bootstrap"],
        "security.protocol": security["protocol"],
    }
    chosen = mechanism or security["mechanism"]
    if chosen == "OAUTHBEARER":
        token = Path(principal["token_file"]).read_text("ascii")
        config["oauth_cb"] = lambda _: (token, time.time() + _TOKEN_IS_FRESH_S)
    elif chosen:
        config |= {"sasl.username": name, "sasl.password": principal["password"]}
    if chosen:
        config["sasl.mechanism"] = chosen
    if security["ca"]:
        config["ssl.ca.location"] = security["ca"]
    if "certificate" in principal:
        config["ssl.certificate.location"] = principal["certificate"]
        config["ssl.key.location"] = principal["key"]
    return config


class _FileToken(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, path: str) -> None:
        self._path = Path(path)

    async def token(self) -> str:
        return self._path.read_text("ascii")


def aiokafka(
    document: Mapping[str, Any], name: str, *, mechanism: str | None = None
) -> dict[str, Any]:
    """Keyword arguments of aiokafka's clients for a principal on the direct listener."""
    security = document["security"]
    principal = security[name]
    arguments: dict[str, Any] = {
        "bootstrap_servers": document["direct_bootstrap"],
        "security_protocol": security["protocol"],
    }
    chosen = mechanism or security["mechanism"]
    if chosen:
        arguments["sasl_mechanism"] = chosen
        arguments |= (
            {"sasl_oauth_token_provider": _FileToken(principal["token_file"])}
            if chosen == "OAUTHBEARER"
            else {
                "sasl_plain_username": name,
                "sasl_plain_password": principal["password"],
            }
        )
    if security["ca"]:
        context = ssl.create_default_context(cafile=security["ca"])
        if "certificate" in principal:
            context.load_cert_chain(principal["certificate"], principal["key"])
        arguments["ssl_context"] = context
    return arguments
