"""The other services of the cluster: found by their heartbeats, called over cached channels.

A peer that does not answer is shown and never fails a call. A call that was forwarded once is not
forwarded again: its caller learns which service to ask. `PeerServicesAccess` is rlm.topics.access
over gRPC: it asks the services of other brokers which ACLs they lack (H40).
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import grpc
from grpc.aio import UnaryStreamCall

from kip405.acls import Acl
from kip405.addresses import Address
from kip405.errors import Elsewhere, Invalid, Unavailable
from rlm.api.call_metadata import call_metadata
from rlm.api.calls import Caller, TokenSource
from rlm.api.messages import acl_of
from rlm.clock import Clock
from rlm.v1 import admin_pb2 as pb
from rlm.v1.admin_pb2_grpc import AdminServiceStub
from rlm.v1.fetch_pb2_grpc import FetchServiceStub
from rlmm.settings_view import SettingsView
from rsm_plugins.contract.client_channel import RenewedChannel
from rsm_plugins.contract.status import error_of_call
from rsm_plugins.contract.tls import Tls

if TYPE_CHECKING:  # the async shapes of the stubs exist for the type checker only
    from rlm.v1.admin_pb2_grpc import AdminServiceAsyncStub
    from rlm.v1.fetch_pb2_grpc import FetchServiceAsyncStub

T = TypeVar("T")
Sent = tuple[tuple[str, str], ...]

_OPTIONS = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One service as its last heartbeat describes it, with the least age of that heartbeat (None =
    unknown).
    """

    node_id: int
    grpc_address: str
    proxy_address: str
    version: str
    heartbeat_age_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stubs:
    """The API of one peer."""

    admin: "AdminServiceAsyncStub"
    fetch: "FetchServiceAsyncStub"


class ViewSource(Protocol):
    """The source of heartbeats (rlmm.settings.Settings)."""

    @property
    def view(self) -> SettingsView: ...


class Peers:
    """The owner closes it. `timeout_ms` is the deadline of one call to one peer. With `tls`, all
    peers are called with TLS: the services of a cluster are configured alike. Without it a token is
    sent to this machine only, unless `allow_insecure`: whoever writes heartbeats names addresses.
    """

    def __init__(
        self,
        *,
        node_id: int,
        principal: str,
        tokens: TokenSource,
        settings: ViewSource,
        clock: Clock,
        timeout_ms: int,
        tls: Tls | None = None,
        allow_insecure: bool = False,
    ) -> None:
        self.node_id = node_id
        self._principal = principal
        self._tokens = tokens
        self._tls = tls
        self._sends_anywhere = tls is not None or allow_insecure
        self._settings = settings
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._channels: dict[str, RenewedChannel[Stubs]] = {}

    def known(self) -> tuple[Peer, ...]:
        """Every service that ever published a heartbeat, this one too, by node id."""
        view, now_ms = self._settings.view, self._clock.monotonic_ms()
        found = [
            Peer(
                node_id=record.node_id,
                grpc_address=_address(record.advertised, record.listen, "grpc"),
                proxy_address=_address(record.advertised, record.listen, "proxy"),
                version=record.version,
                heartbeat_age_ms=view.least_age_ms(record.key, now_ms),
            )
            for record, _ in view.services()
        ]
        return tuple(sorted(found, key=lambda peer: peer.node_id))

    def others(self) -> Sequence[Peer]:
        return [peer for peer in self.known() if peer.node_id != self.node_id]

    def address_of(self, node_id: int) -> str:
        """gRPC address of a node's service, empty if it never published a heartbeat."""
        return next((peer.grpc_address for peer in self.known() if peer.node_id == node_id), "")

    async def forward(
        self, node_id: int, caller: Caller, call: Callable[[Stubs, Sent, float], Awaitable[T]]
    ) -> T:
        """Ask the service of `node_id` on behalf of the caller; its errors pass.

        Elsewhere (with the address) if the call was forwarded already. Unavailable if the service
        is not known or not reachable.
        """
        address = self.address_of(node_id)
        if caller.is_forwarded:
            raise Elsewhere(f"broker {node_id} leads: ask its service", address)
        if not address:
            raise Unavailable(f"the service of broker {node_id} has never said that it lives")
        return await self.ask(address, call, principal=caller.principal)

    async def ask(
        self,
        address: str,
        call: Callable[[Stubs, Sent, float], Awaitable[T]],
        *,
        principal: str = "",
    ) -> T:
        """One call of one peer; `call` gets stubs, metadata and the deadline in seconds."""
        sent = self._metadata(address, principal or self._principal)
        try:
            return await call(self._stubs(address), sent, self._timeout_ms / 1000)
        except grpc.aio.AioRpcError as error:
            raise error_of_call(error, f"service at {address}") from error

    async def stream(
        self,
        address: str,
        call: Callable[[Stubs, Sent], "UnaryStreamCall[Any, T]"],
        *,
        principal: str,
        idle_ms: int,
    ) -> AsyncGenerator[T, None]:
        """The rows of one peer's stream. Unavailable: none came for `idle_ms`."""
        rows = call(self._stubs(address), self._metadata(address, principal))
        iterator = aiter(rows)
        try:
            while True:
                async with asyncio.timeout(idle_ms / 1000):
                    row = await anext(iterator, None)
                if row is None:
                    return
                yield row
        except TimeoutError as error:
            raise Unavailable(f"service at {address}: it sent nothing for {idle_ms} ms") from error
        except grpc.aio.AioRpcError as error:
            raise error_of_call(error, f"service at {address}") from error
        finally:
            rows.cancel()

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    def _metadata(self, address: str, principal: str) -> Sent:
        token = next(iter(self._tokens()), None)
        if token is not None and not self._sends_anywhere and not _is_private(address):
            raise Unavailable(
                f"service at {address}: it is on another machine by its heartbeat, and this "
                "service has no TLS, so it does not send its token there; give grpc.tls.cert.file "
                "on all services, or set allow_insecure: true"
            )
        return call_metadata(principal, token, self._principal)

    def _stubs(self, address: str) -> Stubs:
        channel = self._channels.get(address)
        if channel is None:
            channel = RenewedChannel(address, self._tls, _OPTIONS, _stubs)
            self._channels[address] = channel
        return channel.stubs()


def _is_private(address: str) -> bool:
    try:
        return Address.parse(address).is_private
    except Invalid:
        return False


def _stubs(channel: grpc.aio.Channel) -> Stubs:
    return Stubs(admin=AdminServiceStub(channel), fetch=FetchServiceStub(channel))


def _address(advertised: Mapping[str, str], listen: Mapping[str, str], name: str) -> str:
    return advertised.get(name) or listen.get(name) or ""


class PeerServicesAccess:
    """Implements rlm.topics.access.PeerAccess."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def missing(self, node_id: int, topic: str, *, tier: bool) -> tuple[Acl, ...]:
        address = self._peers.address_of(node_id)
        if not address:
            raise Unavailable("it has never said that it lives")
        request = pb.ProveAccessRequest(topic=topic, tier=tier)
        answer = await self._peers.ask(
            address,
            lambda stubs, sent, timeout: stubs.admin.ProveAccess(
                request, metadata=sent, timeout=timeout
            ),
        )
        return tuple(acl_of(one) for one in answer.missing)
