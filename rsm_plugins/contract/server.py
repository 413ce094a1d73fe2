"""A plugin as a listening gRPC server: Identity, Storage, health and reflection on one address.

The address is checked: loopback or a unix socket only, unless clients show certificates or
`allow_insecure` is set. This module must not know which store is behind the manager.
"""

import os
import socket
from contextlib import suppress
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from kip405.addresses import Address
from kip405.errors import Invalid
from rsm_plugins.contract.messages import MESSAGE_MAX_BYTES
from rsm_plugins.contract.server_tls import ServerTls
from rsm_plugins.contract.services import Dependencies, IdentityService, StorageService
from rsm_plugins.v1 import identity_pb2, identity_pb2_grpc, storage_pb2, storage_pb2_grpc

CONCURRENT_CALLS_MAX = 2048
STOP_GRACE_SECONDS = 3.0
HANDSHAKE_TIMEOUT_MS = 10_000
"""A connection that is not a gRPC connection by then is closed (H36)."""

_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_MAX_BYTES),
    ("grpc.max_send_message_length", MESSAGE_MAX_BYTES),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
    ("grpc.so_reuseport", 0),  # a port that is in use is an error, not a second listener
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ("grpc.http2.max_ping_strikes", 0),
)


class PluginServer:
    """Serves the services until stopped; their creator closes them."""

    def __init__(
        self,
        dependencies: Dependencies,
        listen: str,
        *,
        allow_insecure: bool = False,
        tls: ServerTls | None = None,
    ) -> None:
        self._dependencies = dependencies
        self._listen = Address.parse_listening(listen)
        self._listen.require_private(
            allow_insecure or (tls is not None and tls.client_ca_file is not None)
        )
        self._credentials = None if tls is None else tls.credentials()
        self._server = grpc.aio.server(
            options=_OPTIONS, maximum_concurrent_rpcs=CONCURRENT_CALLS_MAX
        )
        self._health = health.aio.HealthServicer()

    async def start(self) -> Address:
        """Listen; returns the address with its port. Invalid if that fails."""
        identity_pb2_grpc.add_IdentityServicer_to_server(
            IdentityService(self._dependencies), self._server
        )
        storage_pb2_grpc.add_StorageServicer_to_server(
            StorageService(self._dependencies), self._server
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = [
            file.services_by_name[service].full_name
            for file, service in (
                (identity_pb2.DESCRIPTOR, "Identity"),
                (storage_pb2.DESCRIPTOR, "Storage"),
            )
        ]
        reflection.enable_server_reflection(
            (*names, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )
        address = self._bind()
        await self._server.start()
        for name in ("", *names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return address

    def _bind(self) -> Address:
        if self._listen.unix_path:
            _remove_dead_socket(Path(self._listen.unix_path))
        else:
            _check_bindable(self._listen)
        try:
            port = (
                self._server.add_insecure_port(str(self._listen))
                if self._credentials is None
                else self._server.add_secure_port(str(self._listen), self._credentials)
            )
        except RuntimeError as error:
            raise Invalid(
                f"cannot listen on {self._listen}: the address is taken or not of this machine"
            ) from error
        return self._listen.with_port(port)

    async def wait(self) -> None:
        """Until the server has stopped."""
        await self._server.wait_for_termination()

    async def stop(self) -> None:
        """Inform health checks, accept no new calls, let running calls end within the grace period,
        then cancel them.
        """
        await self._health.enter_graceful_shutdown()
        await self._server.stop(STOP_GRACE_SECONDS)
        if self._listen.unix_path:
            with suppress(FileNotFoundError):
                os.unlink(self._listen.unix_path)


def new_instance() -> str:
    """An id that differs at each start of the plugin."""
    return os.urandom(16).hex()


def _check_bindable(address: Address) -> None:
    """Invalid says why not; gRPC would write the reason to standard error only."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        family, kind, _, _, address_of_host = found[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address_of_host)
    except OSError as error:
        raise Invalid(f"cannot listen on {address}: {error.strerror or error}") from error


def _remove_dead_socket(path: Path) -> None:
    """Remove a socket on which no process listens any more, because it would block the next start;
    Invalid if a process listens on it.
    """
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise Invalid(f"cannot listen on unix:{path}: another process does")
