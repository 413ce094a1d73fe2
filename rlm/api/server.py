"""The API as a listening gRPC server: both services, health and reflection on one checked address.

The address is loopback or a unix socket, unless callers are authenticated by TLS with a token or
client certificates, or `allow_insecure` admits everyone. This module must not know what the
services do.
"""

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from kip405.addresses import Address
from kip405.errors import Invalid
from rlm.api.authorization import Authorization
from rlm.api.calls import Gate
from rlm.api.strangers import Strangers
from rlm.v1 import admin_pb2, admin_pb2_grpc, fetch_pb2, fetch_pb2_grpc
from rsm_plugins.contract.server_tls import ServerTls

CONCURRENT_CALLS_MAX = 1024
CALLS_OF_A_CONNECTION_MAX = 256
REQUEST_MAX_BYTES = 512 << 10
"""Size limit of a request, also of an unauthenticated one (H36); the largest names topics."""
METADATA_MAX_BYTES = 16 << 10
HANDSHAKE_TIMEOUT_MS = 10_000
CONNECTION_IDLE_MS = 600_000
"""A connection without a call is closed; gRPC's clients dial again when they need one."""
MESSAGE_MAX_BYTES = 128 << 20
STOP_GRACE_SECONDS = 2.0

_OPTIONS = (
    ("grpc.max_receive_message_length", REQUEST_MAX_BYTES),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
    ("grpc.max_connection_idle_ms", CONNECTION_IDLE_MS),
    ("grpc.max_concurrent_streams", CALLS_OF_A_CONNECTION_MAX),
    ("grpc.absolute_max_metadata_size", METADATA_MAX_BYTES),
    ("grpc.max_send_message_length", MESSAGE_MAX_BYTES),
    ("grpc.so_reuseport", 0),  # a port that is in use is an error, not a second listener
    ("grpc.keepalive_permit_without_calls", 1),
)
_ADMIN = admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name
_FETCH = fetch_pb2.DESCRIPTOR.services_by_name["FetchService"].full_name


class ApiServer:
    """Serves until stopped; the creator of the services closes them. A reader has no `admin`.

    `asks_tokens`: the services admit only callers that show a token. `gate`: whom they admit, None
    = everybody. `authorization` decides about every call, None = there are no rights and no
    commands. Raises Invalid if a file of TLS cannot be used, and for an address that other machines
    reach without TLS.
    """

    def __init__(
        self,
        *,
        admin: admin_pb2_grpc.AdminServiceServicer | None,
        fetch: fetch_pb2_grpc.FetchServiceServicer,
        listen: str,
        tls: ServerTls | None = None,
        asks_tokens: bool = False,
        gate: Gate | None = None,
        allow_insecure: bool = False,
        authorization: Authorization | None = None,
    ) -> None:
        self._admin = admin
        self._fetch = fetch
        self._names = (_FETCH,) if admin is None else (_ADMIN, _FETCH)
        self._listen = Address.parse_listening(listen)
        knows_certificates = tls is not None and tls.client_ca_file is not None
        knows_callers = asks_tokens or knows_certificates
        strangers = Strangers(gate, knows_certificates=knows_certificates)
        self._listen.require_private(allow_insecure or (tls is not None and knows_callers))
        self._credentials = None if tls is None else tls.credentials()
        self._server = grpc.aio.server(
            options=_OPTIONS,
            maximum_concurrent_rpcs=CONCURRENT_CALLS_MAX,
            interceptors=(strangers, *(() if authorization is None else (authorization,))),
        )
        self._health = health.aio.HealthServicer()

    async def start(self) -> str:
        """Listen; answers the address with the port taken. Invalid where that fails."""
        if self._admin is not None:
            admin_pb2_grpc.add_AdminServiceServicer_to_server(self._admin, self._server)
            self._server.add_registered_method_handlers(_ADMIN, {"Status": _status_of(self._admin)})
        fetch_pb2_grpc.add_FetchServiceServicer_to_server(self._fetch, self._server)
        self._server.add_registered_method_handlers(_FETCH, {"Fetch": _fetch_of(self._fetch)})
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )
        address = self._bind()
        await self._server.start()
        await self.report_health(ready=True)
        return str(address)

    async def report_health(self, *, ready: bool) -> None:
        """Set what gRPC health checks report from now on."""
        status = (
            health_pb2.HealthCheckResponse.SERVING
            if ready
            else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for name in ("", *self._names):
            await self._health.set(name, status)

    def _bind(self) -> Address:
        try:
            port = (
                self._server.add_insecure_port(str(self._listen))
                if self._credentials is None
                else self._server.add_secure_port(str(self._listen), self._credentials)
            )
        except RuntimeError as error:
            raise Invalid(
                f"grpc.listen: cannot listen on {self._listen}: "
                "the address is taken or not of this machine"
            ) from error
        return self._listen.with_port(port)

    async def stop(self, within_ms: int | None = None) -> None:
        """Report NOT_SERVING, refuse new calls, and give running calls the grace to end."""
        await self._health.enter_graceful_shutdown()
        grace_s = STOP_GRACE_SECONDS if within_ms is None else within_ms / 1_000
        await self._server.stop(min(STOP_GRACE_SECONDS, grace_s))


def _status_of(
    service: admin_pb2_grpc.AdminServiceServicer,
) -> "grpc.RpcMethodHandler[admin_pb2.StatusRequest, bytes]":
    """Replaces the generated handler, as `_fetch_of` does."""
    return grpc.unary_unary_rpc_method_handler(
        service.Status, request_deserializer=admin_pb2.StatusRequest.FromString
    )


def _fetch_of(
    service: fetch_pb2_grpc.FetchServiceServicer,
) -> "grpc.RpcMethodHandler[fetch_pb2.FetchRequest, bytes]":
    """Replaces the generated handler: this one takes answers that are bytes already."""
    return grpc.unary_stream_rpc_method_handler(
        service.Fetch, request_deserializer=fetch_pb2.FetchRequest.FromString
    )
