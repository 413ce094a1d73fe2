"""Whether the processes of a sandbox answer. Each probe is one short request, never a wait.

The broker is asked by one hand-made Metadata request: a client library would retry, log and cache.
"""

import http.client
import json
import socket
import struct
from dataclasses import dataclass

from rlm.plans.problems import ProblemKind

_TIMEOUT_S = 1.0
_METADATA_KEY = 3
_METADATA_VERSION = 1
_CLIENT_ID = b"rlm-sandbox"
_MAX_ANSWER_BYTES = 1 << 20
_NOT_YET = {
    kind.value
    for kind in (ProblemKind.STARTING, ProblemKind.METADATA, ProblemKind.STORE_UNAVAILABLE)
}
"""Kinds of problems that pass while a sandbox comes up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The cluster as a broker knows it: unfenced brokers and the controller's id."""

    broker_ids: frozenset[int]
    controller_id: int


def cluster_view(port: int) -> ClusterView | None:
    """Ask the broker on a loopback port; None when it does not answer (yet)."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.sendall(_metadata_request())
            (size_bytes,) = struct.unpack(">i", _receive(connection, 4))
            if not 0 < size_bytes <= _MAX_ANSWER_BYTES:
                return None
            return _parse_metadata(_receive(connection, size_bytes))
    except (OSError, struct.error, EOFError):
        return None


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

    from rsm_plugins.contract.client_channel import answers

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        return answers(channel, _TIMEOUT_S)


def _metadata_request() -> bytes:
    """Metadata v1 for no topics: header v1 (key, version, correlation id, client id), int32 0."""
    header = struct.pack(">hhih", _METADATA_KEY, _METADATA_VERSION, 1, len(_CLIENT_ID))
    body = header + _CLIENT_ID + struct.pack(">i", 0)
    return struct.pack(">i", len(body)) + body


def _parse_metadata(answer: bytes) -> ClusterView:
    (_correlation, count) = struct.unpack_from(">ii", answer)
    position = 8
    ids = set()
    for _ in range(count):
        (node_id, host_bytes) = struct.unpack_from(">ih", answer, position)
        position += 6 + host_bytes + 4
        (rack_bytes,) = struct.unpack_from(">h", answer, position)
        position += 2 + max(0, rack_bytes)
        ids.add(node_id)
    (controller_id,) = struct.unpack_from(">i", answer, position)
    return ClusterView(broker_ids=frozenset(ids), controller_id=controller_id)


def _receive(connection: socket.socket, size_bytes: int) -> bytes:
    received = bytearray()
    while len(received) < size_bytes:
        piece = connection.recv(size_bytes - len(received))
        if not piece:
            raise EOFError
        received += piece
    return bytes(received)
