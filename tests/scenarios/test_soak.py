"""Two thousand secured connections through three proxies, while brokers and services are restarted
in turn: nothing is lost or comes twice, and memory, handles and tasks stay as they are.

A producer of each partition, most of the others at its tail, some who read old records again and
again from the store; by TLS, with SCRAM, PLAIN and OAUTHBEARER in turn, in sessions that end every
two minutes. Services are restarted first, so that at the end each of them has seen the connections
of its broker come back several times. Partitions have one replica each: whoever is away with its
broker waits for it.

RLM_SOAK_CONNECTIONS= and RLM_SOAK_MINUTES= make it smaller, to see that it works: then the calm
time is too short to judge by, and what grew is printed only. One of full size keeps its raw numbers
under bench/results/.
"""

import asyncio
import contextlib
import json
import os
import resource
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import Override, SandboxSpec
from tests.builders import secured_clients
from tests.kept_results import keep_result
from tests.sandbox_fixtures import with_workers
from tests.scenarios import weights
from tests.scenarios.cluster import Row, assert_same, fresh
from tests.scenarios.counted_clients import CountedClient
from tests.scenarios.proven_clients import Entrance
from tests.scenarios.raw import proxy_of
from tests.scenarios.soak_clients import NODES, PARTITIONS, Load, node_of
from tests.scenarios.test_secured import PrincipalCluster
from tests.scenarios.weights import FILES, MEMORY, TASKS, THREADS, Weighing

_FULL_CONNECTIONS, _FULL_MINUTES = 2_000, 15.0
_OLD_MIB = 4
_REREADERS_PAUSE = 2 / 900
"""Part of the whole time from one fetch to the next."""
_PATIENCE_S = 240.0
_WEIGHED_EACH = 90
"""So many times a run."""
_SETTLED = 0.25
"""Part of a calm time after which nobody comes back any more."""
_MOST_DRIFT = {MEMORY: 5.0, FILES: 10.0, THREADS: 5.0, TASKS: 15.0}
"""From the first to the last third of the calm time at the end."""
_MOST_STEP = {MEMORY: 64.0, FILES: 20.0, THREADS: 16.0, TASKS: 20.0}
"""From before the restarts of brokers until after them, in a service that goes on. Its pools make a
thread when they first need one.
"""

_BEGINNING, _BEFORE, _AFTER = "beginning", "calm before brokers", "calm after brokers"
_SERVICES, _BROKERS = "services restart", "brokers restart"
_STOP, _KILL = "stop", "kill"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many connections, and for how long."""

    connections: int
    minutes: float

    @classmethod
    def asked_for(cls) -> "Size":
        return cls(
            connections=int(os.environ.get("RLM_SOAK_CONNECTIONS") or _FULL_CONNECTIONS),
            minutes=float(os.environ.get("RLM_SOAK_MINUTES") or _FULL_MINUTES),
        )

    @property
    def is_full(self) -> bool:
        return self.connections >= _FULL_CONNECTIONS and self.minutes >= _FULL_MINUTES

    def share_s(self, part: float) -> float:
        """Seconds of a part of the whole time."""
        return part * self.minutes * 60

    @property
    def quick_ms(self) -> int:
        """Of sessions, segments and local retention: all of them end several times."""
        return int(self.share_s(1 / 15) * 1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """`back_s`: until all clients of that node had an answer again."""

    phase: str
    how: str
    name: str
    at_s: float
    back_s: float


@dataclass
class Soak:
    """What is done to the cluster meanwhile, and what is seen of it."""

    cluster: PrincipalCluster
    load: Load
    size: Size
    phase: str = _BEGINNING
    restarts: list[Restart] = field(default_factory=list)
    phases: dict[str, tuple[float, float]] = field(default_factory=dict)
    weighings: list[Weighing] = field(default_factory=list)
    began_s: float = 0.0

    async def run(self) -> None:
        self.began_s = self._now_s()
        weighing = asyncio.ensure_future(self._weigh())
        try:
            await self._within(_BEGINNING, self._calm(0.13))
            await self._within(_SERVICES, self._restart_all("rlm", 0.045, 0.035))
            await self._within(_BEFORE, self._calm(0.09))
            await self._within(_BROKERS, self._restart_all("broker", 0.067, 0.05))
            await self._within(_AFTER, self._calm(0.2))
        finally:
            weighing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await weighing

    async def _within(self, phase: str, doing: Any) -> None:
        self.phase, began_s = phase, self._now_s()
        await doing
        self.phases[phase] = (began_s, self._now_s())
        print(json.dumps({"phase": phase, "at_s": self._since(began_s), **self._seen(phase)}))

    def _seen(self, phase: str) -> dict[str, Any]:
        return {
            "reconnects": len(self.reconnects(phase)),
            "acknowledged": sum(len(one.written) for one in self.load.producers),
            "passes": sum(one.passes for one in self.load.rereaders),
            "weights": self.weighings[-1].weights if self.weighings else {},
        }

    async def _calm(self, part: float) -> None:
        """All have an answer of their own at first."""
        began_s = self._now_s()
        await self._all_answered(self.load.clients, since_s=0.0)
        await asyncio.sleep(max(0.0, began_s + self.size.share_s(part) - self._now_s()))

    async def _restart_all(self, kind: str, stopped_part: float, killed_part: float) -> None:
        for how, part in ((_STOP, stopped_part), (_KILL, killed_part)):
            for node in NODES:
                await self._restart(how, f"{kind}:{node}", node, self.size.share_s(part))

    async def _restart(self, how: str, name: str, node: int, slot_s: float) -> None:
        sandbox, began_s = self.cluster.sandbox, self._now_s()
        await asyncio.to_thread(sandbox.stop if how == _STOP else sandbox.kill, name)
        started_s = self._now_s()
        await asyncio.to_thread(partial(sandbox.start, name, wait=False))
        await self._all_answered(self.load.of(node), since_s=started_s)
        self.restarts.append(
            Restart(
                phase=self.phase,
                how=how,
                name=name,
                at_s=self._since(began_s),
                back_s=round(self._now_s() - began_s, 1),
            )
        )
        print(json.dumps(asdict(self.restarts[-1])))
        await asyncio.sleep(max(0.0, began_s + slot_s - self._now_s()))

    async def _all_answered(self, clients: list[CountedClient], *, since_s: float) -> None:
        deadline_s = self._now_s() + _PATIENCE_S
        while missing := [one for one in clients if one.is_lost or one.answered_s <= since_s]:
            assert self._now_s() < deadline_s, f"{len(missing)} of {len(clients)} have no answer"
            await asyncio.sleep(0.2)

    async def _weigh(self) -> None:
        every_s = self.size.share_s(1 / _WEIGHED_EACH)
        while True:
            found = await asyncio.to_thread(weights.weighed, self.cluster.sandbox)
            at_s = self._since(self._now_s())
            self.weighings.append(Weighing(at_s=at_s, phase=self.phase, weights=found))
            await asyncio.sleep(every_s)

    def reconnects(self, phase: str, settled: float = 0.0) -> list[str]:
        """Why connections ended in a phase; `settled`: the part of it that does not count."""
        began_s, ended_s = self.phases[phase]
        from_s = began_s + settled * (ended_s - began_s)
        return [
            row.cause
            for one in self.load.clients
            for row in one.reconnects
            if from_s <= row.lost_s < ended_s
        ]

    def check(self) -> None:
        """Nobody lost a connection while all was calm, and nothing grew."""
        for phase in (_BEFORE, _AFTER):
            lost = self.reconnects(phase, _SETTLED)
            assert not lost, (phase, Counter(lost).most_common(3))
        grown = [*self._drifts(), *self._steps()]
        print(json.dumps({"grown": grown}))
        assert not (grown and self.size.is_full), grown

    def _drifts(self) -> list[str]:
        """Of services and plugins, in the calm time at the end."""
        return [
            f"{kind}:{node} {what}: {more:+.1f} while calm"
            for kind, node in product(("rlm", "plugin"), NODES)
            for what, most in _MOST_DRIFT.items()
            if (kind, what) != ("plugin", TASKS)
            and (more := weights.drift(self._values(_AFTER, f"{kind}:{node}", what))) > most
        ]

    def _steps(self) -> list[str]:
        """Of services, which went on while all their clients came again and again."""
        found = []
        for name, (what, most) in product((f"rlm:{one}" for one in NODES), _MOST_STEP.items()):
            before, after = (self._values(one, name, what) for one in (_BEFORE, _AFTER))
            if (more := weights.step(before, after)) > most:
                found.append(f"{name} {what}: {more:+.1f} by restarts of brokers")
        return found

    def _values(self, phase: str, name: str, what: str) -> list[float]:
        found = weights.values(self.weighings, phase, name, what)
        return found[int(len(found) * _SETTLED) :]

    def summary(self) -> dict[str, Any]:
        causes = Counter(row.cause for one in self.load.clients for row in one.reconnects)
        passed = sum((one.passed for one in self.load.clients), Counter[int]())
        return {
            **asdict(self.size),
            "acknowledged_records": len(self.load.values()),
            "passes_over_old_records": sum(one.passes for one in self.load.rereaders),
            "reconnects": {phase: len(self.reconnects(phase)) for phase in self.phases},
            "causes": dict(causes.most_common(20)),
            "passing_errors": {str(code): times for code, times in sorted(passed.items())},
            "longest_wait_s": round(max(self._waits_s()), 2),
            "restarts": [asdict(one) for one in self.restarts],
            "phases": {
                name: [self._since(one) for one in times] for name, times in self.phases.items()
            },
            "weighings": [asdict(one) for one in self.weighings],
        }

    def _waits_s(self) -> Iterator[float]:
        for producer in self.load.producers:
            yield from (one.took_s for one in producer.acknowledged)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def _since(self, at_s: float) -> float:
        return round(at_s - self.began_s, 1)


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16_384), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[PrincipalCluster]:
    reauth = str(Size.asked_for().quick_ms * 2)
    ends_sessions = Override(scope="broker", key="connections.max.reauth.ms", value=reauth)
    spec = SandboxSpec(
        brokers=3, security="sasl_ssl", jvm="quick", heap_mib=384, overrides=(ends_sessions,)
    )
    made = Sandbox.up(tmp_path / "soak", with_workers(spec))
    try:
        admin = secured_clients.librdkafka(made.json, "admin", proxy=True)
        with PrincipalCluster(made, admin) as cluster:
            yield cluster
    finally:
        made.down(delete=not os.environ.get("RLM_KEEP_SANDBOX"))


def _old_topic(cluster: PrincipalCluster) -> tuple[str, list[Row]]:
    """Its first records are remote only, of each node's partition."""
    topic = fresh("old")
    cluster.create_topic(topic, assignment=[[node] for node in NODES])
    cluster.enable(topic)
    acked = [
        row for one in range(len(NODES)) for row in cluster.fill(topic, mib=_OLD_MIB, partition=one)
    ]
    for one in range(len(NODES)):
        cluster.wait_trimmed(topic, one, beyond=1_024)
    return topic, acked


def _live_topic(cluster: PrincipalCluster, quick_ms: int) -> str:
    topic = fresh("live")
    assignment = [[node_of(one)] for one in range(PARTITIONS)]
    cluster.create_topic(topic, assignment=assignment, configs={"segment.ms": str(quick_ms)})
    cluster.enable(topic, "--trim", "--local-retention-ms", f"{quick_ms}ms")
    return topic


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.usefixtures("many_files")
async def test_secured_connections_outlive_rolling_restarts(secured: PrincipalCluster) -> None:
    size = Size.asked_for()
    old, acked = await asyncio.to_thread(_old_topic, secured)
    live = await asyncio.to_thread(_live_topic, secured, size.quick_ms)
    load = Load(
        {node: proxy_of(secured, node) for node in NODES},
        Entrance(secured.sandbox.json).connect,
        size.connections,
    )
    ends = {one.partition: one.offset + 1 for one in acked}
    load.reread(old, ends, pause_s=size.share_s(_REREADERS_PAUSE))
    load.produce_and_follow(live)
    soak = Soak(cluster=secured, load=load, size=size)
    async with load.running():
        await soak.run()
    summary = soak.summary()
    print(json.dumps({**summary, "weighings": len(soak.weighings)}, indent=1))
    if size.is_full:
        keep_result("soak", summary)
    load.check()
    await asyncio.to_thread(_check_read, secured, live, load.values())
    assert_same(await asyncio.to_thread(partial(secured.read_all, old, timeout_s=120)), acked)
    soak.check()


def _check_read(cluster: PrincipalCluster, topic: str, acked: dict[tuple[int, int], int]) -> None:
    """By librdkafka from the first offset on: what is remote by now, and what is not."""
    starts = [cluster.log_start(topic, one) for one in range(PARTITIONS)]
    assert max(starts) > 0, "nothing was trimmed meanwhile"
    read = cluster.read_all(topic, timeout_s=300)
    found = [((row.partition, row.offset), zlib.crc32(row.value or b"")) for row in read]
    found.sort(key=lambda row: row[0][0])  # within a partition they stay as they were read
    assert found == sorted(acked.items())


def test_growth_stands_out_from_noise() -> None:
    """What the soak says of its samples."""
    noise = [100.0, 103.0, 99.0, 101.0, 108.0, 100.0, 102.0, 99.0, 101.0]
    assert abs(weights.drift(noise)) < 3
    assert weights.drift([one + 2 * at for at, one in enumerate(noise)]) > 10
    taken = [
        Weighing(at_s=at, phase=_BEFORE if at < 4 else _AFTER, weights={"rlm:1": {FILES: one}})
        for at, one in enumerate((50, 700, 710, 710, 0, 711, 740, 741, 740))
    ]
    before = weights.values(taken, _BEFORE, "rlm:1", FILES)
    after = weights.values(taken, _AFTER, "rlm:1", FILES)
    assert weights.step(before, after) == 30
    assert weights.values(taken, _AFTER, "rlm:1", TASKS) == []
