"""Dials gRPC servers, with TLS files that may be renewed; dials plugins, and checks that they live.

A plugin is dialled with keepalive, quick reconnects, and without gRPC's own retries.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kip405.addresses import Address
from rsm_plugins.contract.liveness import NO_ANSWER
from rsm_plugins.contract.messages import MESSAGE_MAX_BYTES
from rsm_plugins.contract.tls import Tls
from rsm_plugins.renewed import Renewed
from rsm_plugins.v1 import identity_pb2_grpc, storage_pb2_grpc

if TYPE_CHECKING:
    from rsm_plugins.v1.identity_pb2_grpc import IdentityAsyncStub
    from rsm_plugins.v1.storage_pb2_grpc import StorageAsyncStub

S = TypeVar("S")
KEEPALIVE_TIME_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 5_000
RECONNECT_MAX_MS = 1_000

_CHANNELS_KEPT = 3  # calls may still run on earlier channels
Options = Sequence[tuple[str, int | str]]
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
    ("grpc.use_local_subchannel_pool", 1),  # each client has a back-off of its own
    ("grpc.enable_retries", 0),  # the caller decides about retries
    ("grpc.enable_http_proxy", 0),
)


class RenewedChannel(Generic[S]):
    """Stubs on a channel that is dialled again when a file of its TLS has changed; calls on the
    former channel end there. The owner closes it.
    """

    def __init__(
        self,
        address: str,
        tls: Tls | None,
        options: Options,
        make_stubs: Callable[[grpc.aio.Channel], S],
    ) -> None:
        """Dials when first used; Invalid where a file of `tls` cannot be used."""
        self._address = address
        self._tls = tls
        self._options = options
        self._make_stubs = make_stubs
        self._renewed = None if tls is None else Renewed(tls.files, tls.credentials)
        self._channels: deque[grpc.aio.Channel] = deque(maxlen=_CHANNELS_KEPT)
        self._dial()

    def stubs(self) -> S:
        """The stubs for the next call; other objects after a renewal."""
        if self._renewed is not None and self._renewed.current() is not self._credentials:
            self._dial()
        return self._stubs

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()

    def _dial(self) -> None:
        self._credentials = None if self._renewed is None else self._renewed.current()
        if self._tls is None or self._credentials is None:
            channel = grpc.aio.insecure_channel(self._address, options=self._options)
        else:
            channel = grpc.aio.secure_channel(
                self._address, self._credentials, options=(*self._options, *self._tls.options)
            )
        self._channels.append(channel)
        self._stubs = self._make_stubs(channel)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginStubs:
    """The services of a plugin; the async shapes of the stubs exist only for the type checker."""

    identity: "IdentityAsyncStub"
    storage: "StorageAsyncStub"


def open_plugin(address: Address, tls: Tls | None) -> RenewedChannel[PluginStubs]:
    """Dials when first used. Invalid where a file of `tls` cannot be used."""
    return RenewedChannel(str(address), tls, _OPTIONS, _plugin_stubs)


def _plugin_stubs(channel: grpc.aio.Channel) -> PluginStubs:
    return PluginStubs(
        identity=identity_pb2_grpc.IdentityStub(channel),
        storage=storage_pb2_grpc.StorageStub(channel),
    )


async def is_alive(target: str, seconds: float) -> bool:
    """Whether a server at the address answers in time, with any answer. The health service is
    asked, which waits for no store.
    """
    async with grpc.aio.insecure_channel(str(Address.parse(target)), options=_OPTIONS) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        try:
            await health.Check(health_pb2.HealthCheckRequest(), timeout=seconds)
        except grpc.aio.AioRpcError as error:
            return error.code() not in NO_ANSWER
    return True
