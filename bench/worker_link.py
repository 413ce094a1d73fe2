"""`python -m bench.worker_link`: records on the socket between core and worker, beside plain sends.

One process answers with chunks from warm memory, another one asks for the next answer and drops
what it got. Variant `link` is what core and worker use (rlm.workers.frames); `plain` is the least
that two processes can do with such a socket: `sendmsg`, and `recv_into` one buffer that is used
again. Processor time and page faults are those of both ends, of what comes after the first answers.
"""

import argparse
import asyncio
import json
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.command import document, measure, numbers, parser, say
from bench.machine import load_in_words
from bench.plan import order_of
from kip405.process import KEPT_BY_A_SERVICE_BYTES, KEPT_BY_A_TASK_BYTES, keep_freed_memory
from rlm.reading.chunk_memory import SLOT_BYTES, ChunkMemory, view_of
from rlm.workers.frames import FrameLink, RawBytes
from rlm.workers.records_memory import RecordsMemory

LINK, PLAIN = "link", "plain"
VARIANTS = (LINK, PLAIN)
_OPTIONS = ("rounds", "size_mib", "in_flight")
_CPU = "seconds of each end per 1e9 bytes of records, user and system"
_MESSAGE = bytes(60)
_REQUEST = bytes(60)
_CHUNKS = 16
_WARM_ANSWERS = 64
_RECORDS_BYTES = 64 << 20

Answer = tuple[memoryview, memoryview]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRun:
    """One turn. `in_flight`: answers that the worker has asked for at a time."""

    variant: str
    in_flight: int
    round_number: int
    core_cpu_s_gb: float
    worker_cpu_s_gb: float
    core_faults_gb: int
    worker_faults_gb: int
    mb_s: float
    load: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Used:
    """What this process has used since its start."""

    cpu_s: float
    faults: int
    clock_s: float

    @classmethod
    def now(cls) -> "_Used":
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = used.ru_utime + used.ru_stime
        return cls(cpu_s=cpu_s, faults=used.ru_minflt, clock_s=time.perf_counter())

    def line(self, size_bytes: int) -> str:
        """For each 1e9 bytes, as JSON: processor time, faults, and MB/s."""
        now, gb = _Used.now(), size_bytes / 1e9
        faults = round((now.faults - self.faults) / gb)
        mb_s = gb * 1_000 / (now.clock_s - self.clock_s)
        return json.dumps([round((now.cpu_s - self.cpu_s) / gb, 4), faults, round(mb_s, 1)])


def _answers() -> tuple[Answer, ...]:
    """Each of the size of a chunk, and of parts of two, as records are."""
    memory, half = ChunkMemory(), SLOT_BYTES // 2
    views = [view_of(memory.buffer(SLOT_BYTES)) for _ in range(_CHUNKS)]
    for view in views:
        memoryview(view.obj).cast("B")[:] = b"r" * SLOT_BYTES
    return tuple(
        (view[half:], after[:half])
        for view, after in zip(views, (*views[1:], views[0]), strict=True)
    )


async def _answer_by_link(used: socket.socket, count: int) -> str:
    """The core: what it used for the answers after the first ones."""
    answers, over, sent = _answers(), asyncio.Event(), 0
    began = _Used.now()

    def asked(message: bytes, _: RawBytes) -> None:
        nonlocal sent, began
        if sent == _WARM_ANSWERS:
            began = _Used.now()
        link.send(_MESSAGE, answers[sent % _CHUNKS])
        sent += 1

    link = FrameLink(asked, over.set)
    await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=used)
    await over.wait()
    return began.line(count * SLOT_BYTES)


async def _ask_by_link(used: socket.socket, count: int, in_flight: int) -> str:
    """The worker, likewise."""
    over, got = asyncio.Event(), 0
    began, line = _Used.now(), ""

    def answered(message: bytes, raw: RawBytes) -> None:
        nonlocal got, began, line
        got += 1
        if got == _WARM_ANSWERS:
            began = _Used.now()
        if got == _WARM_ANSWERS + count:
            line = began.line(count * SLOT_BYTES)
            link.close()
        elif got + in_flight <= _WARM_ANSWERS + count:
            link.send(_REQUEST)

    link = FrameLink(answered, over.set, RecordsMemory(_RECORDS_BYTES).take)
    await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=used)
    for _ in range(in_flight):
        link.send(_REQUEST)
    await over.wait()
    return line


def _answer_plainly(used: socket.socket, count: int) -> str:
    answers, began = _answers(), _Used.now()
    for number in range(_WARM_ANSWERS + count):
        if number == _WARM_ANSWERS:
            began = _Used.now()
        used.recv(len(_REQUEST), socket.MSG_WAITALL)
        left: list[memoryview] = [memoryview(_MESSAGE), *answers[number % _CHUNKS]]
        while left:
            sent_bytes = used.sendmsg(left)
            while left and sent_bytes >= len(left[0]):
                sent_bytes -= len(left.pop(0))
            if left:
                left[0] = left[0][sent_bytes:]
    return began.line(count * SLOT_BYTES)


def _ask_plainly(used: socket.socket, count: int, in_flight: int) -> str:
    room = memoryview(bytearray(len(_MESSAGE) + SLOT_BYTES))
    used.sendall(_REQUEST * in_flight)
    began = _Used.now()
    for number in range(_WARM_ANSWERS + count):
        if number == _WARM_ANSWERS:
            began = _Used.now()
        filled_bytes = 0
        while filled_bytes < len(room):
            filled_bytes += used.recv_into(room[filled_bytes:])
        if number + in_flight < _WARM_ANSWERS + count:
            used.sendall(_REQUEST)
    return began.line(count * SLOT_BYTES)


def _end(role: str, variant: str, number: int, count: int, in_flight: int) -> str:
    """One end of a turn, in a process of its own."""
    is_core = role == "core"
    keep_freed_memory(KEPT_BY_A_SERVICE_BYTES if is_core else KEPT_BY_A_TASK_BYTES)
    with socket.socket(fileno=number) as used:
        if variant == PLAIN:
            return _answer_plainly(used, count) if is_core else _ask_plainly(used, count, in_flight)
        used.setblocking(False)
        if is_core:
            return asyncio.run(_answer_by_link(used, count))
        return asyncio.run(_ask_by_link(used, count, in_flight))


def _measured(variant: str, in_flight: int, number: int, size_mib: int) -> LinkRun:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ends = []
    with ours, theirs:
        for role, used in (("core", ours), ("worker", theirs)):
            end = f"{role},{variant},{used.fileno()},{size_mib},{in_flight}"
            argv = [sys.executable, "-P", "-m", "bench.worker_link", "--end", end]
            passed = (used.fileno(),)
            ends.append(subprocess.Popen(argv, pass_fds=passed, stdout=subprocess.PIPE))
    core, worker = (json.loads(one.communicate()[0]) for one in ends)
    return LinkRun(
        variant=variant,
        in_flight=in_flight,
        round_number=number,
        core_cpu_s_gb=core[0],
        worker_cpu_s_gb=worker[0],
        core_faults_gb=core[1],
        worker_faults_gb=worker[1],
        mb_s=worker[2],
        load=load_in_words(),
    )


def summary(runs: Sequence[LinkRun]) -> Iterator[str]:
    """A line for each variant and number in flight: medians, with the lowest and the highest."""
    for kind in dict.fromkeys((run.variant, run.in_flight) for run in runs):
        found = [run for run in runs if (run.variant, run.in_flight) == kind]
        cpu = sorted(run.core_cpu_s_gb + run.worker_cpu_s_gb for run in found)
        yield (
            f"{kind[0]:6} {kind[1]:2} in flight: {median(cpu):.3f} CPU s/GB "
            f"({cpu[0]:.3f} to {cpu[-1]:.3f}): "
            f"core {median(run.core_cpu_s_gb for run in found):.3f}, "
            f"worker {median(run.worker_cpu_s_gb for run in found):.3f}; "
            f"faults a GB {median(run.core_faults_gb for run in found):.0f} and "
            f"{median(run.worker_faults_gb for run in found):.0f}; "
            f"{median(run.mb_s for run in found):.0f} MB/s"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured."""
    given = _parser().parse_args(arguments)
    if given.end:
        role, variant, *rest = given.end.split(",")
        say(_end(role, variant, *map(int, rest)))
        return 0
    if given.quick:
        given.rounds, given.size_mib = 1, 16

    def run() -> tuple[list[str], dict[str, Any]]:
        runs = []
        for number in range(given.rounds):
            for in_flight in given.in_flight:
                for variant in order_of(VARIANTS, number):
                    runs.append(_measured(variant, in_flight, number, given.size_mib))
                    say(str(runs[-1]))
        return list(summary(runs)), document(given, "worker-link", _OPTIONS, runs, cpu=_CPU)

    return measure(given, "worker-link", run)


def _parser() -> argparse.ArgumentParser:
    made = parser("python -m bench.worker_link", __doc__)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--size-mib", type=int, default=1_024)
    made.add_argument("--in-flight", type=numbers(), default=(1, 8))
    made.add_argument("--end", help=argparse.SUPPRESS)
    return made


if __name__ == "__main__":
    raise SystemExit(main())
