"""How a client dials a plugin: keepalive, quick reconnects, no retries of gRPC's own, TLS; and how
it asks whether one is alive.
"""

from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rsm_plugins.addresses import Address
from rsm_plugins.messages import MESSAGE_MAX_BYTES
from rsm_plugins.tls import Tls

KEEPALIVE_TIME_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 5_000
RECONNECT_MAX_MS = 1_000

_NO_ANSWER = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
_OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.max_receive_message_length", MESSAGE_MAX_BYTES),
    ("grpc.max_send_message_length", MESSAGE_MAX_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", RECONNECT_MAX_MS),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_MAX_MS),
    ("grpc.use_local_subchannel_pool", 1),  # one client's back-off is not another's
    ("grpc.enable_retries", 0),  # who retries is the caller's decision
    ("grpc.enable_http_proxy", 0),
)


def open_channel(address: Address, tls: Tls | None) -> grpc.aio.Channel:
    """A channel that dials when first used; Invalid where a file of `tls` cannot be used."""
    if tls is None:
        return grpc.aio.insecure_channel(str(address), options=_OPTIONS)
    name = (("grpc.ssl_target_name_override", tls.server_name),) if tls.server_name else ()
    return grpc.aio.secure_channel(str(address), tls.credentials(), options=(*_OPTIONS, *name))


async def is_alive(target: str, seconds: float) -> bool:
    """Whether a server at the address answers in time, whatever it answers; of the health service,
    which waits for no store.
    """
    async with open_channel(Address.parse(target), None) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        try:
            await health.Check(health_pb2.HealthCheckRequest(), timeout=seconds)
        except grpc.aio.AioRpcError as error:
            return error.code() not in _NO_ANSWER
    return True
