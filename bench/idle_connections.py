"""`python -m bench.idle_connections`: what a client that is silent costs the memory of a service.

So many clients connect with the proxy, with TLS and SASL where the cluster wants them, make a topic
known by a Fetch, and say nothing more. The proxy has a connection with the broker for each, by TLS
too where clients have it. Memory is what all processes of the service have resident more than
before the first client. Each turn has a cluster of its own. The clients are of one process and
connect a few at a time.
"""

import argparse
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

from bench.command import document, measure, parser, say, words
from bench.machine import load_in_words
from bench.plan import order_of
from bench.processes import BenchError, cpu_seconds, resident_bytes, wait_idle
from bench.production import production_sandbox, workers_override
from kafka_clients.security import TlsFiles
from kafka_clients.tls_context import make_tls_context
from kafka_protocol.apis import CREATE_TOPICS, FETCH
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.security.broker_calls import BrokerCalls, broker_calls
from rlm_sandbox.security.cluster_security import security_of
from rlm_sandbox.spec import PLAINTEXT, Override

SASL_SSL = "sasl_ssl"
SECURITIES = (PLAINTEXT, SASL_SSL)
_TOPIC = "idle"
_HOST = "127.0.0.1"
_CREATE_VERSION, _FETCH_VERSION = 5, 12
_AT_A_TIME = 4
_CALL_S = 60
_LEADER_S = 60
_LEAST_ROOM = 1_000
_HEAP_MIB = 1_024
_BROKER_KIB_EACH = 256
"""Java's buffers for TLS."""
_OPTIONS = ("rounds", "connections", "securities", "workers")


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleConnectionsRun:
    """One turn. Memory is resident, of all processes of the service; `cpu_s` is what it took of
    their processor time until all were connected.
    """

    security: str
    round_number: int
    connections: int
    mib_before: float
    mib_after: float
    kib_a_connection: float
    connected_s: float
    cpu_s: float
    load: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """What the process that holds them needs to know. No name: without SASL; no `ca`: plain."""

    port: int
    count: int
    ca: str = ""
    username: str = ""
    password: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers are."""
    given = _parser().parse_args(arguments)

    def run() -> tuple[list[str], dict[str, Any]]:
        runs = _runs(given, say)
        return list(summary(runs)), document(given, "idle-connections", _OPTIONS, runs)

    return measure(given, "idle-connections", run)


def summary(runs: Sequence[IdleConnectionsRun]) -> Iterator[str]:
    """A line for each security."""
    for security in dict.fromkeys(one.security for one in runs):
        of = [one for one in runs if one.security == security]
        each, cpu_s, count = (
            median(getattr(one, name) for one in of)
            for name in ("kib_a_connection", "cpu_s", "connections")
        )
        yield f"{security}: {each:.1f} KiB and {1_000 * cpu_s / count:.1f} CPU ms a connection"


def _runs(given: argparse.Namespace, progress: Callable[[str], None]) -> list[IdleConnectionsRun]:
    if given.quick:
        given.rounds, given.connections = 1, 50
    runs: list[IdleConnectionsRun] = []
    for number in range(given.rounds):
        for security in order_of(given.securities, number):
            runs.append(_turn(given, security, number, progress))
            progress(f"{number} {runs[-1]}")
    return runs


def _turn(
    given: argparse.Namespace, security: str, number: int, progress: Callable[[str], None]
) -> IdleConnectionsRun:
    count = given.connections
    overrides = (
        workers_override(given.workers),
        Override.parse(f"rlm.proxy.max.connections={2 * max(count, _LEAST_ROOM)}"),
    )
    heap_mib = _HEAP_MIB + count * _BROKER_KIB_EACH // 1_024
    with production_sandbox(
        progress, overrides=overrides, security=security, heap_mib=heap_mib
    ) as sandbox:
        _make_topic(sandbox)
        pid = sandbox.json["brokers"][0]["rlm_pid"]
        _say_hello(sandbox)
        wait_idle(pid)
        before, cpu_s, began_s = resident_bytes(pid), cpu_seconds(pid), time.monotonic()
        with _held(_clients(sandbox, count)):
            connected_s, cpu_s = time.monotonic() - began_s, cpu_seconds(pid) - cpu_s
            wait_idle(pid)
            after = resident_bytes(pid)
    return IdleConnectionsRun(
        security=security,
        round_number=number,
        connections=count,
        mib_before=round(before / 2**20, 1),
        mib_after=round(after / 2**20, 1),
        kib_a_connection=round((after - before) / count / 1_024, 1),
        connected_s=round(connected_s, 1),
        cpu_s=round(cpu_s, 1),
        load=load_in_words(),
    )


def _make_topic(sandbox: Sandbox) -> None:
    security = security_of(sandbox.layout, sandbox.state.spec)
    port = sandbox.state.ports[1].direct
    topic = {"name": _TOPIC, "num_partitions": 1, "replication_factor": 1}
    identity = None if security is None else security.admin
    with broker_calls(port, identity, timeout_s=_CALL_S) as calls:
        answer = calls.call(CREATE_TOPICS, _CREATE_VERSION, {"topics": [topic]})
    [made] = answer["topics"]
    if made["error_code"]:
        raise BenchError(f"{_TOPIC} was not made: error {made['error_code']}")


def _clients(sandbox: Sandbox, count: int) -> Clients:
    """They are `admin`, who may do everything."""
    port, security = sandbox.state.ports[1].proxy, security_of(sandbox.layout, sandbox.state.spec)
    if security is None:
        return Clients(port=port, count=count)
    identity = security.identity("admin", proxy=True)
    return Clients(
        port=port,
        count=count,
        ca=str(identity.ca or ""),
        username=identity.username or "",
        password=identity.password or "",
    )


def _say_hello(sandbox: Sandbox) -> None:
    """What a first client makes a service load is no part of a connection. Until the topic has a
    leader.
    """
    deadline_s = time.monotonic() + _LEADER_S
    while True:
        with _held(_clients(sandbox, _AT_A_TIME)) as error_code:
            if not error_code:
                return
        if time.monotonic() > deadline_s:
            raise BenchError(f"{_TOPIC}: error {error_code} after {_LEADER_S} s")


@contextmanager
def _held(clients: Clients) -> Iterator[int]:
    """While the block runs, all are connected; the error that they were answered, or 0."""
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "bench.idle_connections", "--hold"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(json.dumps(asdict(clients)) + "\n")
        child.stdin.flush()
        said = child.stdout.readline()
        if not said:
            raise BenchError(f"the clients ended with {child.wait()}")
        yield int(said)
    finally:
        child.kill()
        child.communicate()


def _hold() -> None:
    """Connect those of whom stdin speaks, say so, and hold them until stdin ends."""
    clients = Clients(**json.loads(sys.stdin.readline()))
    context = make_tls_context(TlsFiles(ca_file=clients.ca)) if clients.ca else None
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        held = list(pool.map(partial(_connected, clients, context), range(clients.count)))
    say(str(max(error_code for _, error_code in held)))
    sys.stdin.read()


def _connected(
    clients: Clients, context: ssl.SSLContext | None, number: int
) -> tuple[BrokerCalls, int]:
    """One that has fetched, and what error it was answered; `number` says nothing to it."""
    connection = socket.create_connection((_HOST, clients.port), _CALL_S)
    if context is not None:
        connection = context.wrap_socket(connection, server_hostname=_HOST)
    calls = BrokerCalls(connection)
    if clients.username:
        calls.authenticate(clients.username, clients.password)
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
    topic = {"topic": _TOPIC, "partitions": [asked]}
    fetch = {"max_wait_ms": 0, "min_bytes": 0, "topics": [topic]}
    [answered] = calls.call(FETCH, _FETCH_VERSION, fetch)["responses"]
    [partition] = answered["partitions"]
    return calls, int(partition["error_code"])


def _parser() -> argparse.ArgumentParser:
    made = parser("python -m bench.idle_connections", __doc__)
    made.add_argument("--rounds", type=int, default=1)
    made.add_argument("--connections", type=int, default=10_000)
    made.add_argument(
        "--securities", type=words(SECURITIES), default=SECURITIES, help=",".join(SECURITIES)
    )
    made.add_argument("--workers", type=int, default=2, help="proxy.workers of the service")
    return made


if __name__ == "__main__":
    if sys.argv[1:] == ["--hold"]:
        _hold()
        raise SystemExit(0)
    raise SystemExit(main())
