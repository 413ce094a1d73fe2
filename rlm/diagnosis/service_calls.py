"""Asks the service beside the broker what only running services know, over the gRPC API.

One that has never published a heartbeat is not asked: before the first start there is nothing to
know. It shows the token and the certificate that the services show each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rlm.api.calls import token_source
from rlm.api.peers import Peers, Sent, Stubs
from rlm.clock import Clock
from rlm.config import ServiceConfig
from rlm.diagnosis.observed import ObservedService, ServiceProblem, Unasked
from rlm.plans.problems import Severity
from rlm.v1 import admin_pb2 as pb
from rlmm.settings_view import SettingsView

_WORDS = {severity.value: severity for severity in Severity}


@dataclass(frozen=True, slots=True)
class _Found:
    """Settings that are not read on."""

    view: SettingsView


async def ask_service(
    config: ServiceConfig, clock: Clock, answer_ms: int, view: SettingsView, trimmed: Sequence[str]
) -> ObservedService | None:
    """`trimmed`: names of topics whose readers are asked for. Unavailable: it does not answer."""
    peers = Peers(
        node_id=config.node_id,
        principal=config.principal,
        tokens=token_source(config.api_token_file, clock),
        settings=_Found(view),
        clock=clock,
        timeout_ms=answer_ms,
        tls=config.peer_tls,
        allow_insecure=config.allow_insecure,
    )
    try:
        address = peers.address_of(config.node_id)
        return None if not address else await _asked(peers, address, trimmed)
    finally:
        await peers.close()


async def _asked(peers: Peers, address: str, trimmed: Sequence[str]) -> ObservedService:
    status = await peers.ask(address, _status)
    groups = {topic: await _direct_groups(peers, address, topic) for topic in trimmed}
    rates = [
        one.copying.bytes_per_second
        for one in status.services
        if one.copying.HasField("bytes_per_second")
    ]
    return ObservedService(
        problems=tuple(map(_problem, status.problems)),
        direct_groups=groups,
        copy_bytes_per_second=sum(rates),
    )


async def _status(stubs: Stubs, sent: Sent, timeout_s: float) -> pb.StatusResponse:
    return await stubs.admin.Status(pb.StatusRequest(), metadata=sent, timeout=timeout_s)


async def _direct_groups(peers: Peers, address: str, topic: str) -> tuple[str, ...] | Unasked:
    """Groups that have committed offsets, and that no proxy has seen; all proxies must answer."""
    request = pb.ListClientsRequest(topic=topic)
    answer = await peers.ask(
        address,
        lambda stubs, sent, timeout_s: stubs.admin.ListClients(
            request, metadata=sent, timeout=timeout_s
        ),
    )
    if answer.direct_problem:
        return Unasked(reason=f"groups of {topic}: {answer.direct_problem}")
    for one in answer.problems:
        return Unasked(reason=f"clients of the proxy of node {one.node_id}: {one.problem}")
    return tuple(one.group for one in answer.direct_groups)


def _problem(row: pb.Problem) -> ServiceProblem:
    """A severity of a later version counts as an alarm."""
    return ServiceProblem(
        severity=_WORDS.get(row.severity, Severity.ALARM),
        kind=row.kind,
        subject=row.subject,
        text=row.text,
    )
