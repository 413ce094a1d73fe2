"""An API server whose callers have principals and rights of their own, and an audit in memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from grpc import aio

from kip405.errors import Unavailable
from rlm.api.authorization import Authorization, SettingsTopicNames
from rlm.api.authorizers import Authorizer, FileAuthorizer
from rlm.api.call_metadata import call_metadata
from rlm.api.calls import Gate
from rlm.api.principals import Principals, principals_of, token_hash
from rlm.api.server import ApiServer
from rlm.topics.verbs import EnableOptions
from rlm.v1.admin_pb2_grpc import AdminServiceStub
from rlm.v1.fetch_pb2_grpc import FetchServiceStub
from rsm_plugins.contract.server_tls import ServerTls
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.builders.throttle import NO_LIMITS
from tests.rlm.api.harness import (
    Fakes,
    Log,
    channel_to,
)
from tests.rlm.api.node_fakes import no_remote_logs, say_alive
from tests.rlm.topics.cluster import Cluster

SERVICES = "the-token-of-all-services"
READER, OPERATOR, ADMIN, STRANGER = "reader", "operator", "admin", "stranger"


def principals(**topics: Mapping[str, list[str]]) -> Principals:
    """Principals by name, each with a token `NAME-token` and these rights on topics."""
    return principals_of(
        {
            name: {"tokens": [token_hash(f"{name}-token")], "topics": dict(rights)}
            for name, rights in topics.items()
        }
    )


USUAL = principals(
    reader={TOPIC: ["read"]},
    operator={TOPIC: ["operate"]},
    admin={"*": ["admin"]},
    stranger={"payments": ["read", "operate", "admin"]},
)


@dataclass(slots=True)
class MemoryCommands:
    """Implements CommandAudit."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    is_full: bool = False
    hangs: bool = False

    async def command_given(self, **line: Any) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.is_full:
            raise Unavailable("the audit log cannot be written")
        self.lines.append(line)


@dataclass(kw_only=True)
class Site:
    """One service; `principals` may be replaced, like the file."""

    principals: Principals
    fakes: Fakes
    audit: MemoryCommands
    address: str = ""

    async def call(
        self, name: str, request: Any, who: str | None, *, says: str = "me", **more: Any
    ) -> Any:
        """The answer of a method to a principal, or to the services, by their token; the rows of a
        stream. AioRpcError.
        """
        token = SERVICES if who == SERVICES else who and f"{who}-token"
        async with channel_to(self.address) as channel:
            admin, fetch = AdminServiceStub(channel), FetchServiceStub(channel)
            stub = admin if hasattr(admin, name) else fetch
            called = getattr(stub, name)(
                request, metadata=call_metadata(says, token, **more), timeout=60
            )
            if isinstance(called, aio.UnaryStreamCall):
                return [row async for row in called]
            return await called


@contextlib.asynccontextmanager
async def authorised_node(
    cluster: Cluster,
    *,
    known: Principals = USUAL,
    authorizer: Authorizer | None = None,
    tls: ServerTls | None = None,
    is_authorised: bool = True,
    node_id: int = 1,
) -> AsyncIterator[Site]:
    """A service whose topic is enabled. `authorizer` None: by the principals."""
    fakes = Fakes(
        cluster=cluster,
        node_id=node_id,
        log=Log(),
        tokens=lambda: (SERVICES,),
        peer_tls=None,
        limits=NO_LIMITS,
        remote_logs=no_remote_logs(),
    )
    site = Site(principals=known, fakes=fakes, audit=MemoryCommands())
    if is_authorised:
        fakes.gate = Gate(fakes.tokens, lambda: site.principals)
    by_file = FileAuthorizer(lambda: site.principals) if is_authorised else None
    server = ApiServer(
        admin=fakes.admin(),
        fetch=fakes.fetch(),
        listen="127.0.0.1:0",
        tls=tls,
        gate=fakes.gate,
        authorization=Authorization(
            gate=fakes.gate,
            authorizer=authorizer or by_file,
            names=SettingsTopicNames(fakes.service.settings, 1_000),
            audit=site.audit,
            clock=fakes.service.clock,
        ),
    )
    with structlog.testing.capture_logs():
        site.address = await server.start()
        await say_alive(fakes.service, node_id, site.address)
        await fakes.service.settings.barrier(1)
        if fakes.service.settings.view.topic(TOPIC_ID) is None:
            await fakes.service.verbs.enable(TOPIC, EnableOptions())
        try:
            yield site
        finally:
            await server.stop()
            await fakes.peers.close()
