"""Whether the processes of a sandbox answer. Each probe is one short request, never a wait."""

import http.client
import json
import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from kafka_protocol.apis import METADATA
from kafka_protocol.primitives import WireError
from rlm.plans.problems import ProblemKind
from rlm_sandbox.security.broker_calls import broker_calls
from rlm_sandbox.security.clients import ClientIdentity

_TIMEOUT_S = 5.0
_METADATA_VERSION = 1
_NOT_YET = {
    kind.value
    for kind in (ProblemKind.STARTING, ProblemKind.METADATA, ProblemKind.STORE_UNAVAILABLE)
}
"""Kinds of problems that pass while a sandbox comes up."""
HEARD = "rlm_heartbeat_age_seconds"
_HEARD_NODE = re.compile(rf'^{HEARD}{{node="(\d+)"}}', re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The cluster as a broker knows it: unfenced brokers and the controller's id."""

    broker_ids: frozenset[int]
    controller_id: int


def cluster_view(port: int, identity: ClientIdentity | None = None) -> ClusterView | None:
    """Ask the broker on a loopback port; None when it does not answer (yet). `identity`: who asks,
    where the listener wants to know.
    """
    try:
        with broker_calls(port, identity, timeout_s=_TIMEOUT_S) as calls:
            answer = calls.call(METADATA, _METADATA_VERSION, {"topics": []})
    except (OSError, EOFError, WireError):
        return None
    return ClusterView(
        broker_ids=frozenset(broker["node_id"] for broker in answer["brokers"]),
        controller_id=answer["controller_id"],
    )


def http_status(port: int, path: str) -> int | None:
    """Status of a GET on a loopback port; None without an answer."""
    answer = _get(port, path)
    return None if answer is None else answer[0]


def service_is_ready(port: int) -> bool:
    """Whether /healthz says that settings and ledger are read and every store is there."""
    answer = _get(port, "/healthz")
    if answer is None or answer[0] != http.client.OK:
        return False
    try:
        health = json.loads(answer[1])
    except ValueError:
        return False
    kinds = {problem["kind"] for problem in health.get("problems", ())}
    return health.get("ready") is True and not kinds & _NOT_YET


def has_heard(port: int, nodes: AbstractSet[int]) -> bool:
    """Whether a service has received a heartbeat of the service of each node, as its metrics say.
    True too where these need a token, and of a version that has no such metric: then nobody knows.
    """
    answer = _get(port, "/metrics")
    if answer is None:
        return False
    if answer[0] == http.client.UNAUTHORIZED:
        return True
    text = answer[1].decode()
    heard = {int(node) for node in _HEARD_NODE.findall(text)}
    return nodes <= heard or HEARD not in text


def _get(port: int, path: str) -> tuple[int, bytes] | None:
    """Status and body; None without an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def plugin_answers(port: int) -> bool:
    """Whether a gRPC server answers behind a loopback port."""
    import grpc

    from rsm_plugins.contract.liveness import answers

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        return answers(channel, _TIMEOUT_S)
