"""The API as a listening gRPC server: both services, health and reflection on one checked address.

Loopback or a unix socket only, unless `allow_insecure` (there is no TLS yet). Must not know what
the services do.
"""

import asyncio
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from kip405.errors import Invalid
from rlm.v1 import admin_pb2, admin_pb2_grpc, fetch_pb2, fetch_pb2_grpc
from rsm_plugins.addresses import Address

CONCURRENT_CALLS_MAX = 1024
MESSAGE_MAX_BYTES = 128 << 20
STOP_GRACE_SECONDS = 2.0

_OPTIONS = (
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.max_send_message_length", MESSAGE_MAX_BYTES),
    ("grpc.so_reuseport", 0),  # a port that is taken is an error, not a second listener
    ("grpc.keepalive_permit_without_calls", 1),
)
_SERVICES = (
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name,
    fetch_pb2.DESCRIPTOR.services_by_name["FetchService"].full_name,
)


class ApiServer:
    """Serves until stopped; the services are closed by the one who made them."""

    def __init__(
        self,
        *,
        admin: admin_pb2_grpc.AdminServiceServicer,
        fetch: fetch_pb2_grpc.FetchServiceServicer,
        listen: str,
        allow_insecure: bool = False,
    ) -> None:
        self._admin = admin
        self._fetch = fetch
        self._listen = Address.parse(listen)
        self._listen.require_private(allow_insecure)
        self._server = grpc.aio.server(
            options=_OPTIONS, maximum_concurrent_rpcs=CONCURRENT_CALLS_MAX
        )
        self._health = health.aio.HealthServicer()

    async def start(self) -> str:
        """Listen; answers the address with the port taken. Invalid where that fails."""
        admin_pb2_grpc.add_AdminServiceServicer_to_server(self._admin, self._server)
        fetch_pb2_grpc.add_FetchServiceServicer_to_server(self._fetch, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )
        address = self._bind()
        await self._server.start()
        await self.tell_health(ready=True)
        return str(address)

    async def tell_health(self, *, ready: bool) -> None:
        """What gRPC health checks hear from now on."""
        status = (
            health_pb2.HealthCheckResponse.SERVING
            if ready
            else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for name in ("", *_SERVICES):
            await self._health.set(name, status)

    def _bind(self) -> Address:
        try:
            port = self._server.add_insecure_port(str(self._listen))
        except RuntimeError as error:
            raise Invalid(
                f"grpc.listen: cannot listen on {self._listen}: "
                "the address is taken or not of this machine"
            ) from error
        return self._listen.with_port(port)

    async def stop(self) -> None:
        """Tell health checks, take no new calls, let those running end within the grace."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(STOP_GRACE_SECONDS)


async def read_token(path: Path | None) -> str | None:
    """The token of `api.token.file`; Invalid where it is empty or not readable."""
    if path is None:
        return None
    try:
        token = (await asyncio.to_thread(path.read_text, encoding="utf-8")).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"api.token.file: {path} cannot be read") from error
    if not token or not token.isascii() or not token.isprintable():
        raise Invalid(f"api.token.file: {path} must hold one line of printable ASCII")
    return token
