"""Wires the console of a broker's service: who may read it, and where its data comes from."""

from typing import Protocol

from aiohttp import web

from kip405.process import software_version
from rlm.api.authorization import Authorization
from rlm.api.calls import HTTP_TOKENS, token_source
from rlm.api.local_calls import AdminReads, FetchReads, LocalCalls
from rlm.api.local_commands import AdminCommands, LocalCommands
from rlm.config import ServiceConfig
from rlm.config.common import NOBODY_ASKS
from rlm.console.access import ConsoleAccess
from rlm.console.actions import ConsoleActions
from rlm.console.answers import ConsoleAnswers
from rlm.console.routes import ConsoleRoutes
from rlm.service.authorization import ApiCallers
from rlm.service.dependencies import Dependencies


class Admin(AdminReads, AdminCommands, Protocol):
    """What the console calls of rlm.v1.AdminService."""


def build_console(
    dependencies: Dependencies,
    callers: ApiCallers,
    *,
    admin: Admin,
    fetch: FetchReads,
    authorization: Authorization | None,
) -> list[web.RouteDef]:
    """Routes of the HTTP server; none where the console is switched off. Invalid: the token file of
    HTTP cannot be used.
    """
    config, clock = dependencies.config, dependencies.clock
    if not config.console_enabled:
        return []
    actions = (
        ConsoleActions(LocalCommands(admin, authorization)) if config.console_actions else None
    )
    answers = ConsoleAnswers(
        LocalCalls(admin=admin, fetch=fetch, authorization=authorization),
        node_id=config.node_id,
        version=software_version(),
        threads=dependencies.threads.other,
        clock=clock,
        actions=() if actions is None else actions.names,
    )
    access = ConsoleAccess(
        gate=callers.gate,
        api_asks=_api_asks(config),
        http_tokens=token_source(config.http_token_file, clock, HTTP_TOKENS),
        api_is_closed=config.grpc_listen.is_unix or config.grpc_tls_client_ca_file is not None,
        allows_all=config.allow_insecure,
    )
    return ConsoleRoutes(answers, access, actions).routes()


def _api_asks(config: ServiceConfig) -> bool:
    """Whether callers of the API show who they are by more than a client certificate."""
    return config.api_token_file is not None or config.authorization != NOBODY_ASKS
