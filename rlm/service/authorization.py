"""Wires who may call the API, and what each caller may do.

Without `api.authorization` whoever shows the token may do everything, as before there were rights;
only commands are written down then.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from kafka_clients.channel_security import ChannelSecurity
from rlm.api.authorization import Authorization, SettingsTopicNames
from rlm.api.authorizers import Authorizer, FileAuthorizer, KafkaAuthorizer
from rlm.api.calls import Gate, TokenSource
from rlm.api.ports import CommandAudit
from rlm.api.principals import (
    BY_SUBJECT,
    Principals,
    PrincipalsFile,
    PrincipalSource,
    read_principals,
)
from rlm.broker.acls import acls_of_principal
from rlm.clock import Clock
from rlm.config import CommonConfig
from rlm.config.common import BY_KAFKA, NOBODY_ASKS
from rlm.service.certificates import FilesTogether
from rlm.service.metadata import BARRIER_DEADLINE_MS
from rlm.topics.ports import Settings
from rsm_plugins.threads import Threads

_CLIENT_ID = "rlm-api"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCallers:
    """The gate of the API with the principals behind it, if callers have rights of their own."""

    gate: Gate
    principals: PrincipalSource | None = None
    file: PrincipalsFile | None = None

    def background_tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What keeps the principals up to date."""
        return {} if self.file is None else {"principals": self.file.run}


def build_callers(
    config: CommonConfig, tokens: TokenSource, clock: Clock, threads: Threads
) -> ApiCallers:
    """Invalid: the principals file cannot be used."""
    if config.authorization == NOBODY_ASKS:
        return ApiCallers(gate=Gate(tokens))
    by_kafka = config.authorization == BY_KAFKA
    mapping = config.principal_mapping()
    if config.api_principals_file is None:
        known = Principals(mapping=mapping or BY_SUBJECT)
        return ApiCallers(gate=Gate(tokens, lambda: known), principals=lambda: known)
    file = PrincipalsFile(
        config.api_principals_file,
        clock,
        threads=threads,
        has_rights=not by_kafka,
        mapping=mapping,
    )
    return ApiCallers(gate=Gate(tokens, file), principals=file, file=file)


def principals_together(config: CommonConfig) -> tuple[FilesTogether, ...]:
    """The principals file, as one to be tried: a bad one is a problem, and not in use."""
    path = config.api_principals_file
    if path is None:
        return ()
    use_them = partial(read_principals, path, has_rights=config.authorization != BY_KAFKA)
    return (FilesTogether(path=path, use="principals of the API", use_them=use_them),)


def build_authorization(
    config: CommonConfig,
    callers: ApiCallers,
    *,
    settings: Settings,
    security: ChannelSecurity,
    audit: CommandAudit | None,
    clock: Clock,
) -> Authorization | None:
    """None: there are neither rights nor commands. `security`: of the service's Kafka clients."""
    authorizer = _authorizer(config, callers, security, clock)
    if authorizer is None and audit is None:
        return None
    return Authorization(
        gate=callers.gate,
        authorizer=authorizer,
        names=SettingsTopicNames(settings, BARRIER_DEADLINE_MS),
        audit=audit,
        clock=clock,
    )


def _authorizer(
    config: CommonConfig, callers: ApiCallers, security: ChannelSecurity, clock: Clock
) -> Authorizer | None:
    if callers.principals is None:
        return None
    if config.authorization == BY_KAFKA:
        servers = config.kafka_bootstrap_servers
        return KafkaAuthorizer(
            partial(acls_of_principal, servers, security, client_id=_CLIENT_ID), clock
        )
    return FileAuthorizer(callers.principals)
