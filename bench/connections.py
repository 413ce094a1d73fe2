"""`python -m bench.connections`: many connections at a time, by the proxy and directly by turns.

Part `tails`: so many connections wait at the ends of logs, and each gets one record of 1 KiB a
second. Part `places`: one reader, or fifty at different places of the same partitions, read remote
records; their direct turn reads the untrimmed twin. Readers are `bench.raw_readers`; a process that
speaks the protocol in Python is no fast client, so compare turns, not with other benchmarks.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any

from confluent_kafka import Producer

from bench.command import document, measure, parser, say, words
from bench.machine import load_in_words
from bench.plan import DIRECT, MIB, PROXY, RECORD_BYTES, order_of
from bench.processes import BenchError, CpuMark, resident_bytes, wait_idle
from bench.production import production_sandbox, workers_override
from bench.raw_readers import Work
from bench.topics import enable, make_filled, make_topic, wait_remote
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import Override

TAILS = "tails"
PLACES = "places"
PARTS = (TAILS, PLACES)
_TAIL_PARTITIONS = 50
_PLACES_PARTITIONS = 8
_SEGMENT_MIB = 16
_MANY = 50
_LEAST_ROOM = 1_000
_OPTIONS = ("rounds", "connections", "seconds", "size_mib", "parts", "workers")
_CPU = "user + system seconds of service, workers and plugin, and of the broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionsRun:
    """One turn. CPU in seconds; memory is what the service took more for the connections."""

    part: str
    readers: int
    variant: str
    round_number: int
    messages: int
    mb_s: float
    p50_ms: float
    p99_ms: float
    service_cpu_s: float
    broker_cpu_s: float
    client_cpu_s: float
    wall_s: float
    kib_a_connection: float
    load: str

    @property
    def service_cpu_s_gb(self) -> float:
        gigabytes = self.mb_s * self.wall_s / 1000
        return self.service_cpu_s / gigabytes if gigabytes else float("nan")


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers are."""
    given = _parser().parse_args(arguments)

    def run() -> tuple[list[str], dict[str, Any]]:
        runs = _run(given, say)
        return list(summary(runs)), document(given, "connections", _OPTIONS, runs, cpu=_CPU)

    return measure(given, "connections", run)


def summary(runs: Sequence[ConnectionsRun]) -> Iterator[str]:
    """A line for each case: medians of ours by those of the direct turns."""
    for part, readers in dict.fromkeys((run.part, run.readers) for run in runs):
        ours, direct = (
            [run for run in runs if (run.part, run.readers, run.variant) == (part, readers, one)]
            for one in (PROXY, DIRECT)
        )

        def middle(name: str, chosen: Sequence[ConnectionsRun]) -> float:
            return float(median(getattr(run, name) for run in chosen))

        pairs = ", ".join(
            f"{name} {middle(name, ours):.1f} by {middle(name, direct):.1f}"
            for name in ("mb_s", "p50_ms", "p99_ms", "broker_cpu_s")
        )
        yield (
            f"{part}, {readers} readers: {pairs}; service "
            f"{middle('service_cpu_s', ours) / middle('wall_s', ours):.2f} cores, "
            f"{middle('service_cpu_s_gb', ours):.2f} CPU s/GB, "
            f"{middle('kib_a_connection', ours):.1f} KiB a connection"
        )


def _run(given: argparse.Namespace, progress: Callable[[str], None]) -> list[ConnectionsRun]:
    if given.quick:
        given.rounds, given.connections, given.seconds, given.size_mib = 1, 100, 5, 512
    overrides = (
        workers_override(given.workers),
        Override.parse(f"rlm.proxy.max.connections={2 * max(given.connections, _LEAST_ROOM)}"),
    )
    runs: list[ConnectionsRun] = []
    with production_sandbox(progress, overrides=overrides) as sandbox:
        _prepare(sandbox, given, progress)
        for number in range(given.rounds):
            for part, readers in _cases(given):
                for variant in order_of((PROXY, DIRECT), number):
                    work = _work(sandbox, given, part, readers, variant)
                    runs.append(_measured(sandbox, part, work, variant, number))
                    progress(_line(runs[-1]))
    return runs


def _cases(given: argparse.Namespace) -> Iterator[tuple[str, int]]:
    if TAILS in given.parts:
        yield TAILS, given.connections
    if PLACES in given.parts:
        yield PLACES, 1
        yield PLACES, _MANY


def _prepare(sandbox: Sandbox, given: argparse.Namespace, progress: Callable[[str], None]) -> None:
    if TAILS in given.parts:
        make_topic(sandbox, TAILS, _TAIL_PARTITIONS, _SEGMENT_MIB)
    if PLACES in given.parts:
        for variant in (DIRECT, PROXY):
            progress(f"producing {given.size_mib} MiB for the {variant} turns")
            topic = f"{PLACES}-{variant}"
            make_filled(sandbox, topic, _PLACES_PARTITIONS, _SEGMENT_MIB, given.size_mib)
        progress("waiting until all closed segments are remote only")
        remote = f"{PLACES}-{PROXY}"
        enable(sandbox, remote, "--trim", "--local-retention-ms", "0")
        wait_remote(sandbox, remote, _PLACES_PARTITIONS)


def _work(
    sandbox: Sandbox, given: argparse.Namespace, part: str, readers: int, variant: str
) -> Work:
    """Readers at different places begin at different records of what is remote."""
    host, _, port = (
        sandbox.bootstrap if variant == PROXY else sandbox.direct_bootstrap
    ).rpartition(":")
    is_tail = part == TAILS
    whole = given.size_mib * MIB // RECORD_BYTES // _PLACES_PARTITIONS
    each = whole // (2 if readers == 1 else 8)
    starts = tuple(int(whole / 2 * (7 * n % readers) / readers) for n in range(readers))
    return Work(
        host=host,
        port=int(port),
        topic=TAILS if is_tail else f"{PLACES}-{variant}",
        partitions=_TAIL_PARTITIONS if is_tail else _PLACES_PARTITIONS,
        readers=readers,
        seconds=given.seconds if is_tail else None,
        bytes_each=each * RECORD_BYTES,
        offsets=() if is_tail else starts,
        fetch_bytes=MIB,
        max_wait_ms=5_000 if is_tail else 500,
    )


def _measured(sandbox: Sandbox, part: str, work: Work, variant: str, number: int) -> ConnectionsRun:
    broker = sandbox.json["brokers"][0]
    wait_idle(broker["rlm_pid"])
    resident = resident_bytes(broker["rlm_pid"])
    pids = {"service": broker["rlm_pid"], "plugin": broker["plugin_pid"]}
    pids["broker"] = broker["broker_pid"]
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "bench.raw_readers"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        _say(child, json.dumps(asdict(work)))
        _said(child)
        wait_idle(broker["rlm_pid"])
        grown = resident_bytes(broker["rlm_pid"]) - resident
        before = CpuMark.now(pids)
        with _records_each_second(sandbox, part):
            _say(child, "go")
            result = json.loads(_said(child))
        after = CpuMark.now(pids)
    finally:
        child.kill()
        child.communicate()
    used = {role: after.roles[role] - before.roles[role] for role in pids}
    times = result["latencies_ms"]
    centiles = quantiles(times, n=100) if len(times) > 1 else [float("nan")] * 99
    return ConnectionsRun(
        part=part,
        readers=work.readers,
        variant=variant,
        round_number=number,
        messages=result["messages"],
        mb_s=round(result["size_bytes"] / result["wall_s"] / 1e6, 2),
        p50_ms=round(centiles[49], 1) if part == TAILS else 0.0,
        p99_ms=round(centiles[98], 1) if part == TAILS else 0.0,
        service_cpu_s=round(used["service"] + used["plugin"], 2),
        broker_cpu_s=round(used["broker"], 2),
        client_cpu_s=round(result["cpu_s"], 2),
        wall_s=round(result["wall_s"], 2),
        kib_a_connection=round(grown / work.readers / 1024, 1),
        load=load_in_words(),
    )


def _say(child: "subprocess.Popen[str]", line: str) -> None:
    assert child.stdin is not None
    child.stdin.write(line + "\n")
    child.stdin.flush()


def _said(child: "subprocess.Popen[str]") -> str:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise BenchError(f"the readers ended with {child.wait()}")
    return line


@contextmanager
def _records_each_second(sandbox: Sandbox, part: str) -> Iterator[None]:
    """While the block runs, each partition of the tails gets one record a second, one by one."""
    if part != TAILS:
        yield
        return
    argv = [sys.executable, "-P", "-m", "bench.connections", "--produce-to"]
    child = subprocess.Popen([*argv, sandbox.direct_bootstrap], stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        child.terminate()
        child.wait()


def _produce_each_second(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    value, began_s, sent = bytes(RECORD_BYTES), time.monotonic(), 0
    while True:
        producer.produce(TAILS, value=value, partition=sent % _TAIL_PARTITIONS)
        sent += 1
        producer.poll(0)
        time.sleep(max(began_s + sent / _TAIL_PARTITIONS - time.monotonic(), 0))


def _line(run: ConnectionsRun) -> str:
    latency = f", p50 {run.p50_ms} ms, p99 {run.p99_ms} ms" if run.part == TAILS else ""
    return (
        f"{run.round_number} {run.part}, {run.readers:5} readers, {run.variant:6} "
        f"{run.mb_s:7.1f} MB/s, {run.messages} records, service {run.service_cpu_s} CPU s, broker "
        f"{run.broker_cpu_s} CPU s in {run.wall_s} s, {run.kib_a_connection} KiB a connection"
        f"{latency}, load {run.load}"
    )


def _parser() -> argparse.ArgumentParser:
    made = parser("python -m bench.connections", __doc__)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--connections", type=int, default=2_000, help="of the tails")
    made.add_argument("--seconds", type=int, default=20, help="of one turn of the tails")
    made.add_argument("--size-mib", type=int, default=1024, help="values of the remote topic")
    made.add_argument("--parts", type=words(PARTS), default=PARTS, help=",".join(PARTS))
    made.add_argument("--workers", type=int, default=0, help="proxy.workers of the service")
    return made


if __name__ == "__main__":
    if sys.argv[1:2] == ["--produce-to"]:
        _produce_each_second(sys.argv[2])
    raise SystemExit(main())
