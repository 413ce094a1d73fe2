"""SIGKILL and SIGSTOP of worker, core and plugin while twenty clients produce and consume (H24),
and the core replaced by one of the next version, and that by one of ours again.

Only the clients of a killed worker may reconnect, and they have their next answer within a second;
the 99th percentile of what the others' produce requests take at most doubles, by kind of round too:
there in most rounds, as a neighbour of this machine slows down single ones. What the broker itself
takes meanwhile, a producer that goes past the proxies shows. Every record that was acknowledged is
read once, in order, by the consumers that followed and by librdkafka from the first offset on,
mostly from the store by then.

SEED= runs the same rounds again, KILLS= so many. The long one keeps its raw numbers under
bench/results/.
"""

import asyncio
import contextlib
import json
import os
import random
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from signal import Signals
from statistics import median
from typing import Any

import pytest

from tests.busy import busy_factor
from tests.kept_results import keep_result
from tests.scenarios.cluster import WORKERS, Cluster, fresh
from tests.scenarios.counted_clients import (
    Acknowledged,
    CountedClient,
    CountedConsumer,
    CountedProducer,
)
from tests.scenarios.next_core import InstalledCore
from tests.scenarios.service_processes import ServiceProcesses

pytestmark = [
    pytest.mark.integration,
    pytest.mark.parametrize("one_broker", [WORKERS], indirect=True),
]

_PARTITIONS = 10
_TARGETS = ("worker", "core", "plugin")
_NEXT_CORE, _OUR_CORE = "core by the next version", "core by ours again"
_KILL, _STOP, _REPLACE = "SIGKILL", "SIGSTOP", "SIGTERM"
_FEW = 3
_CALM_S = 2.0
_FAULT_S = 3.0
_LEAST_PRODUCERS = 3
"""Of each worker before a round."""
_BACK_S, _LONGEST_BACK_S = 1.0, 3.0
"""In most rounds, and in any, where the machine has free cores."""
_ENOUGH_ROUNDS = 20
"""For quantiles of what the others wait."""
_MOST_P99_RATIO = 2
_PATIENCE_S = 120.0
_LONGEST_WAIT_S = 2.0
"""Of an acknowledgement that does not come by the process that was hit, besides what the broker
takes, where the machine has free cores.
"""

Fault = tuple[str, str]
"""A signal and its target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """`clients`: of the worker that was hit. `back_s`: until the last of them had an answer.
    Times in ms are those of produce requests of all other clients; `direct_ms`: of one that goes
    past the proxies, before and after.
    """

    signal: str
    target: str
    stopped_s: float
    clients: int
    reconnected: int
    others_reconnected: tuple[str, ...]
    back_s: float | None
    calm_ms: tuple[float, ...]
    fault_ms: tuple[float, ...]
    direct_ms: tuple[float, ...]


class Load:
    """A producer and a consumer of each partition of one topic, and for a last one a producer that
    goes past the proxies.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        address = cluster.bootstrap
        self.producers = [CountedProducer(address, topic, one) for one in range(_PARTITIONS)]
        self.consumers = [CountedConsumer(address, topic, one) for one in range(_PARTITIONS)]
        self.direct = CountedProducer(cluster.direct, topic, _PARTITIONS)

    @property
    def clients(self) -> list[CountedClient]:
        """Of the proxies."""
        return [*self.producers, *self.consumers]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """At the end, consumers have all that was acknowledged."""
        async with contextlib.AsyncExitStack() as stack:
            for client in (*self.clients, self.direct):
                stack.callback(client.close)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            for consumer in self.consumers:
                group.create_task(consumer.run())
            async with asyncio.TaskGroup() as producing:
                for producer in (*self.producers, self.direct):
                    producing.create_task(producer.run())
                try:
                    yield
                finally:
                    for producer in (*self.producers, self.direct):
                        producer.is_ending = True
            for producer, consumer in zip(self.producers, self.consumers, strict=True):
                consumer.end = len(producer.written)

    def check(self) -> None:
        assert not [one.problems for one in (*self.clients, self.direct) if one.problems]
        for producer, consumer in zip(self.producers, self.consumers, strict=True):
            assert consumer.written == producer.written
            offsets = [offset for offset, _ in producer.written]
            assert offsets == list(range(len(offsets)))

    def values(self) -> dict[tuple[int, int], int]:
        """Checksums of the values by partition and offset."""
        return {
            (one.partition, offset): value
            for one in (*self.producers, self.direct)
            for (offset, _), value in zip(one.written, one.values, strict=True)
        }


class Rounds:
    """Hits one process after another."""

    def __init__(
        self, cluster: Cluster, load: Load, chance: random.Random, core: InstalledCore
    ) -> None:
        self._core = core
        self._service = ServiceProcesses(cluster)
        self._sandbox = cluster.sandbox
        self._load = load
        self._chance = chance

    async def run(self, fault: Fault) -> Round:
        loop = asyncio.get_running_loop()
        signal, target = fault
        await self._until(self._is_whole, "the service is whole")
        await self._balance()
        before = {one: len(one.reconnects) for one in self._load.clients}
        calm_s = loop.time()
        await asyncio.sleep(_CALM_S)
        stopped_s = round(self._chance.uniform(2.0, 5.0), 2) if signal == _STOP else 0.0
        hit, began_s = await self._hit(signal, target, stopped_s)
        await asyncio.sleep(max(0.0, began_s + _FAULT_S - loop.time()))
        ended_s = loop.time()
        await self._until(lambda: not any(one.is_lost for one in hit), "all are back")
        await self._until(
            lambda: all(
                one.acknowledged[-1].due_s >= ended_s
                for one in (*self._load.producers, self._load.direct)
            ),
            "all that was sent meanwhile is acknowledged",
        )
        others = [one for one in self._load.clients if one not in hit]
        back = [one.reconnects[-1].back_s for one in hit if len(one.reconnects) > before[one]]
        producers = [one for one in others if isinstance(one, CountedProducer)]
        rows = [row for one in producers for row in one.acknowledged]
        return Round(
            signal=signal,
            target=target,
            stopped_s=stopped_s,
            clients=len(hit),
            reconnected=len(back),
            others_reconnected=tuple(
                f"{type(one).__name__} {one.partition}: {row.cause}, {row.lost_s - began_s:.3f} s"
                for one in others
                for row in one.reconnects[before[one] :]
            ),
            back_s=round(max(back) - began_s, 3) if back else None,
            calm_ms=_between(rows, calm_s, began_s),
            fault_ms=_between(rows, began_s, ended_s),
            direct_ms=_between(self._load.direct.acknowledged, calm_s, ended_s),
        )

    async def _hit(
        self, signal: str, target: str, stopped_s: float
    ) -> tuple[Sequence[CountedClient], float]:
        """The clients of the process, and when it was hit; it is well again, or will be."""
        loop = asyncio.get_running_loop()
        if target == "plugin":
            return (), await self._hit_plugin(signal, stopped_s)
        clients: Sequence[CountedClient] = ()
        process = self._service.core
        if target == "worker":
            process = self._chance.choice(self._service.workers)
            ports = (await asyncio.to_thread(self._service.clients))[process.pid]
            clients = [one for one in self._load.clients if one.port in ports]
        began_s = loop.time()
        if signal != _STOP:
            if signal == _REPLACE:
                self._core.install(is_next=target == _NEXT_CORE)
            process.send_signal(Signals[signal])
            return clients, began_s
        process.suspend()
        try:
            await asyncio.sleep(stopped_s)
        finally:
            process.resume()
        return clients, began_s

    async def _hit_plugin(self, signal: str, stopped_s: float) -> float:
        began_s = asyncio.get_running_loop().time()
        is_kill, sandbox = signal == _KILL, self._sandbox
        await asyncio.to_thread(sandbox.kill if is_kill else sandbox.pause, "plugin:1")
        try:
            await asyncio.sleep(stopped_s)
        finally:
            await asyncio.to_thread(sandbox.start if is_kill else sandbox.resume, "plugin:1")
        return began_s

    def _is_whole(self) -> bool:
        return len(self._service.workers) == 2 and self._service.is_ready()

    async def _balance(self) -> None:
        """A worker that has just started has no client: some are moved."""
        deadline_s = asyncio.get_running_loop().time() + _PATIENCE_S
        while True:
            is_moving = any(one.is_to_move for one in self._load.clients)
            workers = (await asyncio.to_thread(self._service.clients)).values()
            producers = sorted(
                ([one for one in self._load.producers if one.port in ports] for ports in workers),
                key=len,
            )
            if not is_moving:
                if len(producers[0]) >= _LEAST_PRODUCERS:
                    return
                for client in producers[-1][: _PARTITIONS // 2]:
                    client.move()
                    self._load.consumers[client.partition].move()
            assert asyncio.get_running_loop().time() < deadline_s, "clients stay at one worker"
            await asyncio.sleep(1)

    async def _until(self, reached: Callable[[], bool], what: str) -> None:
        deadline_s = asyncio.get_running_loop().time() + _PATIENCE_S
        while not await asyncio.to_thread(reached):
            assert asyncio.get_running_loop().time() < deadline_s, what
            await asyncio.sleep(0.2)


def _between(rows: Iterable[Acknowledged], begin_s: float, end_s: float) -> tuple[float, ...]:
    return tuple(round(1000 * row.took_s, 2) for row in rows if begin_s <= row.due_s < end_s)


def faults(kills: int, chance: random.Random) -> list[Fault]:
    """Each target is killed, then each is stopped, in an order of their own; the core is replaced
    after either, so that a core of the next version is stopped too, or killed, by turns.
    """
    found: list[Fault] = []
    signals, replacements = [_KILL, _STOP], [_NEXT_CORE, _OUR_CORE]
    while sum(signal == _KILL for signal, _ in found) < kills:
        for signal, core in zip(signals, replacements, strict=True):
            found += [(signal, one) for one in chance.sample(_TARGETS, len(_TARGETS))]
            found.append((_REPLACE, core))
        signals.reverse()
    return found


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(_FEW, marks=pytest.mark.timeout(600)),
        pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(5_400)]),
    ],
)
async def test_h24_only_the_clients_of_a_killed_worker_reconnect(
    one: Cluster, tmp_path: Path, kills: int
) -> None:
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"SEED={seed}")
    chance, topic = random.Random(seed), fresh("rounds")
    with InstalledCore.at(one.sandbox, tmp_path / "installed") as core:
        one.create_topic(topic, partitions=_PARTITIONS + 1)
        one.enable(topic)
        load, done = Load(one, topic), list[Round]()
        async with load.running():
            rounds = Rounds(one, load, chance, core)
            for fault in faults(int(os.environ.get("KILLS") or kills), chance):
                done.append(await rounds.run(fault))
                print(json.dumps(_row(done[-1])))
        greetings = core.greetings_of_next()
        print(json.dumps(_summary(done), indent=1))
        if kills > _FEW:
            _keep(seed, done, len(load.values()))
        load.check()
        await _check_read(one, topic, load.values())
    assert greetings >= 2 * sum(one.target == _NEXT_CORE for one in done), "no upgrade was seen"
    _check(done)


async def _check_read(cluster: Cluster, topic: str, acked: dict[tuple[int, int], int]) -> None:
    """By librdkafka from the first offset on."""
    read = await asyncio.to_thread(cluster.read_all, topic, timeout_s=300)
    found = [((row.partition, row.offset), zlib.crc32(row.value or b"")) for row in read]
    found.sort(key=lambda row: row[0][0])  # within a partition they stay as they were read
    assert found == sorted(acked.items())


def _check(done: list[Round]) -> None:
    assert not [one for one in done if one.others_reconnected], "a client had to reconnect"
    busy = busy_factor()
    for one in done:
        is_lost = one.signal == _KILL and one.target == "worker"
        assert one.reconnected == (one.clients if is_lost else 0), one
        waited_ms = max(one.fault_ms) - max(one.direct_ms)
        assert waited_ms < 1000 * _LONGEST_WAIT_S * busy, f"clients waited, load {busy:.1f}"
    back = [one.back_s for one in done if one.back_s is not None]
    assert median(back) <= _BACK_S * busy, f"load {busy:.1f}"
    assert max(back) <= _LONGEST_BACK_S * busy, f"load {busy:.1f}"
    if len(done) > _ENOUGH_ROUNDS:
        parts = _summary(done)
        whole = parts["all"]
        assert whole["fault_ms"]["p99"] <= _MOST_P99_RATIO * whole["calm_ms"]["p99"]
        ratios = {name: part["p99_ratio"] for name, part in parts.items()}
        assert max(ratios.values()) <= _MOST_P99_RATIO, ratios


def _row(one: Round) -> dict[str, Any]:
    """Its numbers, of the samples the quantiles."""
    row = asdict(one)
    for name in ("calm_ms", "fault_ms", "direct_ms"):
        row[name] = _quantiles(row[name])
    return row


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    found = {"count": float(len(ordered)), "p50": 0.0, "p99": 0.0, "max": 0.0}
    if ordered:
        found |= {
            "p50": ordered[len(ordered) // 2],
            "p99": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
            "max": ordered[-1],
        }
    return found


def _summary(done: list[Round]) -> dict[str, Any]:
    """Of all rounds, and by signal and target."""
    kinds = sorted({(one.signal, one.target) for one in done})
    parts = {"all": done} | {
        f"{signal} {target}": [one for one in done if (one.signal, one.target) == (signal, target)]
        for signal, target in kinds
    }
    return {name: _part(rounds) for name, rounds in parts.items()}


def _part(rounds: list[Round]) -> dict[str, Any]:
    back = [one.back_s for one in rounds if one.back_s is not None]
    return {
        "rounds": len(rounds),
        "clients": sum(one.clients for one in rounds),
        "reconnected": sum(one.reconnected for one in rounds),
        "others_reconnected": sum(len(one.others_reconnected) for one in rounds),
        "longest_back_s": max(back, default=None),
        "calm_ms": _quantiles([value for one in rounds for value in one.calm_ms]),
        "fault_ms": _quantiles([value for one in rounds for value in one.fault_ms]),
        "p99_ratio": round(median(_p99_ratio(one) for one in rounds), 2),
    }


def _p99_ratio(one: Round) -> float:
    """What a fault makes of it, within one round."""
    return _quantiles(one.fault_ms)["p99"] / _quantiles(one.calm_ms)["p99"]


def _keep(seed: int, done: list[Round], records: int) -> None:
    content = {
        "seed": seed,
        "kills": sum(one.signal == _KILL for one in done),
        "producers": _PARTITIONS,
        "consumers": _PARTITIONS,
        "acknowledged_records": records,
        "summary": _summary(done),
        "rounds": [_row(one) for one in done],
    }
    keep_result("kill-rounds-workers", content)
