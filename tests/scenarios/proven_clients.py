"""Raw connections to the proxies of a secured sandbox: by TLS, and by each mechanism of SASL.

A connection proves again who it is before the session that the broker has granted ends (KIP-368).
"""

import asyncio
import hashlib
import math
import os
import random
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from kafka_clients.security import TlsFiles
from kafka_clients.tls_context import make_tls_context
from kafka_protocol.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafka_protocol.sasl import (
    OauthBearerExchange,
    PlainExchange,
    SaslError,
    SaslExchange,
    ScramExchange,
)
from kafka_protocol.schema import Api, Value
from tests.rlm.proxy.raw_client import RawClient

_AT_A_TIME = 20
"""Connections to a service that are being made."""
_HANDSHAKE_S = 20.0
_EARLIEST, _LATEST = 0.4, 0.7
"""Parts of a session: between them a client proves itself again."""

Login = Callable[[], SaslExchange]


class ProvenClient(RawClient):
    """One that proves who it is, and again in time."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, login: Login
    ) -> None:
        super().__init__(reader, writer)
        self.proofs = 0
        self._login = login
        self._renew_s = math.inf

    async def call(self, api: Api, version: int, value: Value) -> Value:
        if asyncio.get_running_loop().time() >= self._renew_s:
            await self.prove()
        return await super().call(api, version, value)

    async def prove(self) -> None:
        """ConnectionError where the broker refuses."""
        exchange, lifetime_ms = self._login(), 0
        asked = {"mechanism": exchange.mechanism}
        shaken = await super().call(SASL_HANDSHAKE, 1, asked)
        if shaken["error_code"]:
            raise ConnectionError(f"{exchange.mechanism}: error {shaken['error_code']}")
        token: bytes | None = exchange.first()
        while token is not None:
            answer = await super().call(SASL_AUTHENTICATE, 2, {"auth_bytes": token})
            if answer["error_code"]:
                raise ConnectionError(f"{exchange.mechanism}: {answer['error_message']}")
            lifetime_ms = answer["session_lifetime_ms"]
            try:
                token = exchange.answer(answer["auth_bytes"])
            except SaslError as error:
                raise ConnectionError(str(error)) from error
        self.proofs += 1
        self._renew_s = math.inf
        if lifetime_ms:
            part = random.uniform(_EARLIEST, _LATEST)
            self._renew_s = asyncio.get_running_loop().time() + part * lifetime_ms / 1_000


class Entrance:
    """Connects as `admin` by the mechanisms in turn, a few clients of a service at a time."""

    def __init__(self, document: dict[str, Any]) -> None:
        """`document`: sandbox.json."""
        found = document["security"]
        self._context = make_tls_context(TlsFiles(ca_file=found["ca"]))
        self._logins = _logins(found["admin"])
        self._turn = 0
        self._doors: dict[int, asyncio.Semaphore] = {}

    async def connect(self, host: str, port: int) -> RawClient:
        """A `Connect` of counted clients."""
        self._turn += 1
        login = self._logins[self._turn % len(self._logins)]
        async with self._doors.setdefault(port, asyncio.Semaphore(_AT_A_TIME)):
            streams = await asyncio.open_connection(
                host, port, ssl=self._context, ssl_handshake_timeout=_HANDSHAKE_S
            )
            client = ProvenClient(*streams, login)
            try:
                await client.prove()
            except BaseException:
                client.writer.transport.abort()
                raise
        return client


def _logins(admin: dict[str, str]) -> list[Login]:
    name, password = admin["username"], admin["password"]
    token = Path(admin["token_file"]).read_text("ascii")

    def scram() -> SaslExchange:
        return ScramExchange(
            "SCRAM-SHA-512", name, password, nonce=os.urandom(16).hex(), salted_password=_salted
        )

    def plain() -> SaslExchange:
        return PlainExchange(name, password)

    def bearer() -> SaslExchange:
        return OauthBearerExchange(token)

    return [scram, plain, bearer]


@lru_cache
def _salted(hash_name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Once for all clients, as it takes milliseconds."""
    return hashlib.pbkdf2_hmac(hash_name, password, salt, iterations)
