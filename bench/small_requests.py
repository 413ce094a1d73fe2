"""`python -m bench.small_requests`: how many small requests a second one proxy worker passes.

Producers of 100 bytes a request, with requests in flight on several connections, through one worker
(`rlm/workers/worker.py`, without a core) and directly, by turns, to a broker that only answers.
Clients and broker share one process and do next to nothing for a request, so the worker is the
slower part. A machine with other work on its cores gives fewer requests a second for the same
processor time: that of a request is the better figure, and says how many a whole core would pass.
"""

import argparse
import asyncio
import os
import tempfile
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.command import document, measure, parser, say
from bench.machine import load_in_words
from bench.plan import DIRECT, PROXY, order_of
from bench.processes import BenchError, TreeMark
from kafka_protocol.apis import PRODUCE
from kafka_protocol.frames import encode_request, encode_response
from rlm.proxy.listening import listen
from rlm.proxy.settings import ProxySettings
from rlm.workers.supervisor import WORKER_COMMAND
from rlm.workers.worker import WorkerSettings

_ROOT = Path(__file__).resolve().parents[1]
_HOST = "127.0.0.1"
_VERSION = 9
_RECORD_BYTES = 100
BATCH_BYTES = _RECORD_BYTES + 61 + 9
"""With the header of a batch and that of its record."""
_WARM_S = 1.0
_READY_S = 30.0
_OPTIONS = ("rounds", "seconds", "connections", "in_flight")
_CPU = "user + system seconds of the worker, in microseconds a request"


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallRun:
    """One turn; the worker's time is None where it had no part."""

    variant: str
    round_number: int
    requests_s: float
    worker_user_us: float | None
    worker_system_us: float | None
    worker_cores: float | None
    load: str

    @property
    def worker_us(self) -> float:
        """Of one request and its answer."""
        return (self.worker_user_us or 0.0) + (self.worker_system_us or 0.0)


class _Frames(asyncio.Protocol):
    """Hands over the correlation ids of all frames that are whole, each from byte `at` on."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # a stream, as asked for
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        held = self._held + data if self._held else data
        position, found = 0, []
        while len(held) - position >= 4:
            end = position + 4 + int.from_bytes(held[position : position + 4], "big")
            if end > len(held):
                break
            found.append(held[position + self._at : position + self._at + 4])
            position = end
        self._held = held[position:]
        if found:
            self.whole(found)

    @abstractmethod
    def whole(self, ids: list[bytes]) -> None:
        """Take the ids of frames that are whole now."""


class Broker(_Frames):
    """Answers each produce request with the same offset."""

    _head, _tail = b"", b""

    def __init__(self) -> None:
        super().__init__(8)
        row = {"index": 0, "error_code": 0, "base_offset": 7}
        answers = [{"name": "small", "partition_responses": [row]}]
        frame = encode_response(PRODUCE, _VERSION, 0, {"responses": answers})
        self._head, self._tail = frame[:4], frame[8:]

    def whole(self, ids: list[bytes]) -> None:
        self.transport.write(b"".join(self._head + one + self._tail for one in ids))


class Client(_Frames):
    """Keeps so many requests in flight; counts answers, which have to come in order."""

    def __init__(self, in_flight: int, batch_bytes: int = BATCH_BYTES) -> None:
        super().__init__(4)
        rows = [{"index": 0, "records": bytes(batch_bytes)}]
        topics = [{"name": "small", "partition_data": rows}]
        value = {"acks": -1, "timeout_ms": 1_000, "topic_data": topics}
        frame = encode_request(PRODUCE, _VERSION, 0, "bench", value)
        self._head, self._tail = frame[:8], frame[12:]
        self._in_flight = in_flight
        self._next = 0
        self.answered = 0
        self.problem = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._ask(self._in_flight)

    def connection_lost(self, exc: Exception | None) -> None:
        self.problem = self.problem or f"the connection ended: {exc}"

    def whole(self, ids: list[bytes]) -> None:
        for one in ids:
            if int.from_bytes(one, "big") != self.answered:
                self.problem = f"answer {int.from_bytes(one, 'big')} instead of {self.answered}"
                return self.transport.close()
            self.answered += 1
        return self._ask(len(ids))

    def _ask(self, count: int) -> None:
        ids = range(self._next, self._next + count)
        self._next += count
        frames = (self._head + one.to_bytes(4, "big") + self._tail for one in ids)
        self.transport.write(b"".join(frames))


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers are."""
    given = _parser().parse_args(arguments)

    def run() -> tuple[list[str], dict[str, Any]]:
        runs = asyncio.run(_run(given, say))
        return list(summary(runs)), document(given, "small-requests", _OPTIONS, runs, cpu=_CPU)

    return measure(given, "small-requests", run)


def summary(runs: Sequence[SmallRun]) -> Iterator[str]:
    """Medians of both ways."""
    ours = [run for run in runs if run.variant == PROXY]
    direct = [run for run in runs if run.variant == DIRECT]
    cost_us = median(run.worker_us for run in ours)
    yield (
        f"{median(run.requests_s for run in ours):.0f} requests a second through one worker, "
        f"{median(run.requests_s for run in direct):.0f} directly; {cost_us:.1f} us of processor "
        f"time of the worker each, so {1e6 / cost_us:.0f} in a second of a whole core"
    )


async def _run(given: argparse.Namespace, progress: Callable[[str], None]) -> list[SmallRun]:
    if given.quick:
        given.rounds, given.seconds = 1, 1.0
    broker = await asyncio.get_running_loop().create_server(Broker, _HOST, 0)
    broker_port = int(broker.sockets[0].getsockname()[1])
    runs: list[SmallRun] = []
    async with broker, _worker(broker_port) as (pid, port):
        for number in range(given.rounds):
            for variant in order_of((PROXY, DIRECT), number):
                asked = port if variant == PROXY else broker_port
                runs.append(await _measured(given, variant, number, asked, pid))
                progress(_line(runs[-1]))
    return runs


@asynccontextmanager
async def _worker(broker_port: int) -> AsyncIterator[tuple[int, int]]:
    """Its pid and port; without a core, as what is produced needs none."""
    with tempfile.TemporaryDirectory(prefix="rlm-bench-") as folder, listen(_HOST, 0) as (one,):
        proxy = ProxySettings(
            listen_host=_HOST, listen_port=0, upstream_host=_HOST, upstream_port=broker_port
        )
        settings = WorkerSettings(
            worker=0,
            core_socket=str(Path(folder) / "core.sock"),
            records_memory_bytes=1 << 20,
            log_level="warning",
            log_format="json",
            proxy=proxy,
        )
        process = await asyncio.create_subprocess_exec(
            *(*WORKER_COMMAND, str(one.fileno())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=(one.fileno(),),
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
        )
        assert process.stdin is not None and process.stdout is not None  # pipes, as asked for
        try:
            process.stdin.write(settings.line())
            async with asyncio.timeout(_READY_S):
                if not await process.stdout.readline():
                    raise BenchError(f"the worker ended with {await process.wait()}")
            yield process.pid, int(one.getsockname()[1])
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _measured(
    given: argparse.Namespace, variant: str, number: int, port: int, pid: int
) -> SmallRun:
    loop = asyncio.get_running_loop()
    clients: list[Client] = []
    try:
        for _ in range(given.connections):
            _, client = await loop.create_connection(lambda: Client(given.in_flight), _HOST, port)
            clients.append(client)
        await asyncio.sleep(_WARM_S)
        began_s, mark, answered = loop.time(), TreeMark.of(pid), answers(clients)
        await asyncio.sleep(given.seconds)
        took_s, after = loop.time() - began_s, TreeMark.of(pid)
        answered = answers(clients) - answered
    finally:
        for client in clients:
            client.transport.close()
    user_s, system_s = after.user_s - mark.user_s, after.system_s - mark.system_s
    is_ours = variant == PROXY
    return SmallRun(
        variant=variant,
        round_number=number,
        requests_s=round(answered / took_s),
        worker_user_us=round(1e6 * user_s / answered, 2) if is_ours else None,
        worker_system_us=round(1e6 * system_s / answered, 2) if is_ours else None,
        worker_cores=round((user_s + system_s) / took_s, 2) if is_ours else None,
        load=load_in_words(),
    )


def answers(clients: Sequence[Client]) -> int:
    """Requests so far; BenchError where one was answered out of order."""
    for one in clients:
        if one.problem:
            raise BenchError(one.problem)
    return sum(one.answered for one in clients)


def _line(run: SmallRun) -> str:
    cost = (
        ""
        if run.worker_user_us is None
        else f", worker {run.worker_user_us:.1f} + {run.worker_system_us:.1f} us each, "
        f"{run.worker_cores} cores"
    )
    return (
        f"{run.round_number} {run.variant:6} {run.requests_s:8.0f} requests/s{cost}, "
        f"load {run.load}"
    )


def _parser() -> argparse.ArgumentParser:
    made = parser("python -m bench.small_requests", __doc__)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--seconds", type=float, default=10.0, help="of one turn")
    made.add_argument("--connections", type=int, default=50)
    made.add_argument("--in-flight", type=int, default=5, help="requests of one connection")
    return made


if __name__ == "__main__":
    raise SystemExit(main())
