"""`python -m bench.floors`: the least processor time that this machine takes for the same bytes.

What a service does with bytes, done by one process that knows no protocol: a relay through one
buffer, the same within the kernel (`splice`), chunks of a file that are read into memory, checked
and sent, the same without looking at them (`sendfile`), and requests with answers through a relay
of asyncio. It stands between ends that do next to nothing, and counts its own processor time, not
theirs. A figure of the product that is missed is missed beside these.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.command import document, measure, parser, say, words
from bench.floor_turns import ASYNCIO, BULK, FILES
from bench.machine import load_in_words
from bench.plan import MIB
from bench.processes import BenchError
from bench.small_requests import BATCH_BYTES, Broker, Client, answers

_HOST = "127.0.0.1"
_KIB = 1024
_JOIN_S = 60.0
_WARM_S = 0.5
_OPTIONS = ("rounds", "size_mib", "file_mib", "seconds", "floors")
_CPU = (
    "seconds of the one process in the middle per 1e9 bytes that it passed, its start not counted; "
    "of requests those of their batches, as a producer counts them"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Batches of so many bytes, each a request with a short answer."""

    batch_bytes: int
    connections: int
    in_flight: int


REQUESTS = {
    "requests-16k-single": Requests(batch_bytes=16 * _KIB, connections=1, in_flight=1),
    "requests-16k": Requests(batch_bytes=16 * _KIB, connections=1, in_flight=5),
    "requests-100b": Requests(batch_bytes=BATCH_BYTES, connections=50, in_flight=5),
}
"""One at a time; as many in flight as Java's producer has; and as bench.small_requests does it."""
FLOORS = (*BULK, *REQUESTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorRun:
    """One turn. What counts requests is None where there are none."""

    floor: str
    round_number: int
    mb_s: float
    user_s_gb: float
    system_s_gb: float
    faults_gb: int
    requests_s: int | None
    us_a_request: float | None
    load: str

    @property
    def cpu_s_gb(self) -> float:
        return self.user_s_gb + self.system_s_gb


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers are."""
    given = _parser().parse_args(arguments)
    if given.quick:
        given.rounds, given.size_mib, given.file_mib, given.seconds = 1, 8, 4, 0.2

    def run() -> tuple[list[str], dict[str, Any]]:
        runs = list(_runs(given, say))
        return list(summary(runs)), document(given, "floors", _OPTIONS, runs, cpu=_CPU)

    return measure(given, "floors", run)


def summary(runs: Sequence[FloorRun]) -> Iterator[str]:
    """A line for each floor: medians, with the lowest and the highest."""
    for floor in dict.fromkeys(run.floor for run in runs):
        found = [run for run in runs if run.floor == floor]
        cpu = sorted(run.cpu_s_gb for run in found)
        line = (
            f"{floor:22} {median(cpu):7.2f} CPU s/GB ({cpu[0]:.2f} to {cpu[-1]:.2f}): "
            f"user {median(run.user_s_gb for run in found):.2f}, "
            f"system {median(run.system_s_gb for run in found):.2f}; "
            f"{median(run.mb_s for run in found):.0f} MB/s"
        )
        each = [run.us_a_request for run in found if run.us_a_request is not None]
        yield line + (f"; {median(each):.1f} us a request" if each else "")


def _runs(given: argparse.Namespace, progress: Callable[[str], None]) -> Iterator[FloorRun]:
    """Each floor is first equally often."""
    with tempfile.TemporaryDirectory(prefix="rlm-bench-") as folder:
        file = Path(folder) / "segment"
        if set(given.floors) & set(FILES):
            with file.open("wb") as made:
                for _ in range(given.file_mib):
                    made.write(os.urandom(MIB))
        for number in range(given.rounds):
            first = number % len(given.floors)
            for floor in (*given.floors[first:], *given.floors[:first]):
                run = _measured(floor, number, given, file)
                progress(_line(run))
                yield run


def _measured(floor: str, number: int, given: argparse.Namespace, file: Path) -> FloorRun:
    requests = REQUESTS.get(floor)
    if requests is None:
        used, count = _passed(floor, given.size_mib, file), None
        size_bytes = given.size_mib * MIB
    else:
        used, count = asyncio.run(_asked(requests, given.seconds))
        size_bytes = count * requests.batch_bytes
    cpu_s, gigabytes = used["user_s"] + used["system_s"], size_bytes / 1e9
    return FloorRun(
        floor=floor,
        round_number=number,
        mb_s=round(size_bytes / used["wall_s"] / 1e6, 1),
        user_s_gb=round(used["user_s"] / gigabytes, 3),
        system_s_gb=round(used["system_s"] / gigabytes, 3),
        faults_gb=round(used["faults"] / gigabytes),
        requests_s=None if count is None else round(count / used["wall_s"]),
        us_a_request=None if count is None else round(1e6 * cpu_s / count, 2),
        load=load_in_words(),
    )


class _Turn:
    """The process in the middle; `port` is the one that it listens on."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "bench.floor_turns", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[1],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        )
        self.port = 0

    def begin(self) -> None:
        """Once it listens."""
        self.port = int(self._read())

    def mark(self) -> None:
        """Let it count from now on, or until now."""
        assert self._process.stdin is not None  # a pipe, as asked for
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def used(self) -> dict[str, float]:
        """What it has counted."""
        found: dict[str, float] = json.loads(self._read())
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for one in (self._process.stdin, self._process.stdout):
            if one is not None:
                one.close()

    def _read(self) -> str:
        assert self._process.stdout is not None  # a pipe, as asked for
        line = self._process.stdout.readline()
        if not line:
            raise BenchError(f"the process in the middle ended with {self._process.wait()}")
        return line


@contextmanager
def _turn(*arguments: str) -> Iterator[_Turn]:
    turn = _Turn(*arguments)
    try:
        turn.begin()
        yield turn
    finally:
        turn.close()


def _passed(floor: str, size_mib: int, file: Path) -> dict[str, float]:
    """A source and a sink in threads of this process, both of which hold no lock while they wait
    for the kernel; of what comes from a file there is only the sink.
    """
    with _turn(floor, str(size_mib), str(file)) as turn:
        taken = [0]
        with socket.create_connection((_HOST, turn.port)) as sink:
            ends = [threading.Thread(target=_take, args=(sink, taken))]
            with socket.create_connection((_HOST, turn.port)) as source:
                if floor not in FILES:
                    ends.append(threading.Thread(target=_give, args=(source, size_mib)))
                for one in ends:
                    one.start()
                used = turn.used()
                for one in ends:
                    one.join(_JOIN_S)
        if taken != [size_mib * MIB]:
            raise BenchError(f"{floor}: {taken[0]} of {size_mib * MIB} bytes came")
        return used


def _give(source: socket.socket, size_mib: int) -> None:
    piece = os.urandom(MIB)
    with suppress(OSError):  # the count of the sink says so
        for _ in range(size_mib):
            source.sendall(piece)
        source.shutdown(socket.SHUT_WR)


def _take(sink: socket.socket, taken: list[int]) -> None:
    room = bytearray(MIB)
    with suppress(OSError):  # the count says so
        while count := sink.recv_into(room):
            taken[0] += count


async def _asked(asked: Requests, seconds: float) -> tuple[dict[str, float], int]:
    """What the relay used, and how many requests were answered meanwhile."""
    loop = asyncio.get_running_loop()
    broker = await loop.create_server(Broker, _HOST, 0)
    async with broker:
        with _turn(ASYNCIO, str(broker.sockets[0].getsockname()[1])) as turn:
            clients: list[Client] = []
            try:
                for _ in range(asked.connections):
                    _, client = await loop.create_connection(
                        lambda: Client(asked.in_flight, asked.batch_bytes), _HOST, turn.port
                    )
                    clients.append(client)
                await asyncio.sleep(min(_WARM_S, seconds))
                turn.mark()
                before = answers(clients)
                await asyncio.sleep(seconds)
                turn.mark()
                count = answers(clients) - before
                return await asyncio.to_thread(turn.used), count
            finally:
                for client in clients:
                    client.transport.abort()


def _line(run: FloorRun) -> str:
    each = "" if run.us_a_request is None else f", {run.us_a_request:.1f} us a request"
    return (
        f"{run.round_number} {run.floor:22} {run.mb_s:8.1f} MB/s, {run.user_s_gb:.2f} + "
        f"{run.system_s_gb:.2f} CPU s/GB, {run.faults_gb} faults/GB{each}, load {run.load}"
    )


def _parser() -> argparse.ArgumentParser:
    made = parser("python -m bench.floors", __doc__)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--size-mib", type=int, default=1024, help="bytes of one turn")
    made.add_argument("--file-mib", type=int, default=256, help="of the file, read again and again")
    made.add_argument("--seconds", type=float, default=3.0, help="of one turn with requests")
    made.add_argument("--floors", type=words(FLOORS), default=FLOORS, help=",".join(FLOORS))
    return made


if __name__ == "__main__":
    raise SystemExit(main())
