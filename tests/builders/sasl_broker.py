"""A fake broker that takes SASL: mechanisms, sessions and refusals as a test wants them."""

import asyncio
from collections.abc import Callable
from typing import Any

from kafka_protocol.apis import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafka_protocol.error_codes import SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM
from kafka_protocol.schema import Value
from tests.builders.fake_broker import FakeBroker


class SaslBroker(FakeBroker):
    """PLAIN and OAUTHBEARER. `accepts` decides about the client's message; `session_ms` is what the
    broker grants, 0 = no end. While `gate` is not set, authentications wait.
    """

    def __init__(self, accepts: Callable[[bytes], bool], *, session_ms: int = 0) -> None:
        super().__init__()
        self.accepts = accepts
        self.session_ms = session_ms
        self.mechanisms = ["PLAIN", "OAUTHBEARER"]
        self.gate = asyncio.Event()
        self.gate.set()
        self.refusal = "Authentication failed: Invalid username or password"
        served = [
            {"api_key": api.key, "min_version": api.versions.low, "max_version": api.versions.high}
            for api in (API_VERSIONS, METADATA, SASL_HANDSHAKE, SASL_AUTHENTICATE)
        ]
        self.on(API_VERSIONS, {"error_code": 0, "api_keys": served})
        self.on(SASL_HANDSHAKE, self._handshake)
        self.on(SASL_AUTHENTICATE, self._authenticate)

    @property
    def authentications(self) -> list[bytes]:
        """What clients have sent, in order."""
        return [bytes(body["auth_bytes"]) for body in self.asked(SASL_AUTHENTICATE)]

    def _handshake(self, body: Value) -> dict[str, Any]:
        is_known = body["mechanism"] in self.mechanisms
        code = 0 if is_known else UNSUPPORTED_SASL_MECHANISM
        return {"error_code": code, "mechanisms": self.mechanisms}

    async def _authenticate(self, body: Value) -> dict[str, Any]:
        await self.gate.wait()
        if self.accepts(bytes(body["auth_bytes"])):
            code, message = 0, None
        else:
            code = SASL_AUTHENTICATION_FAILED
            message = f"{self.refusal} for {bytes(body['auth_bytes'])!r}"
        return {
            "error_code": code,
            "error_message": message,
            "auth_bytes": b"",
            "session_lifetime_ms": self.session_ms,
        }
