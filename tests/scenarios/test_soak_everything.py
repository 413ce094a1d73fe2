"""An hour with everything on: three brokers with services and plugins, an S3 store, two readers, a
Spark stream, clients at the tail and in the past, and kills. Nothing is lost or comes twice, and
memory, handles, threads, tasks and disk stay as they are.

Local and total retention are so short that all that is written is copied, trimmed and expired
several times over. Every other minute something is killed with SIGKILL and started again; what has
the number 1 only in the first quarter, so that it lives for the rest of the time: of that, slopes
are judged. The others are compared at equal ages, from start to start, because each lives through
one round of kills: leaders, and connections with them, leave a broker and come back.

RLM_SOAK_EVERYTHING_MINUTES= makes it shorter, to see that it works: then what grew is printed only.
One of full length keeps its raw numbers under bench/results/.
"""

import contextlib
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import Override, SandboxSpec
from tests.kept_results import keep_result
from tests.scenarios import weights
from tests.scenarios.cluster import Cluster, Row, fresh
from tests.scenarios.replicas import isr
from tests.scenarios.slopes import Allowance, Span, grown, grown_by_restarts, spans
from tests.scenarios.soak_threads import (
    BySum,
    Caller,
    Follower,
    LightProducer,
    Repeated,
    is_running,
    rereader,
    streamed,
)
from tests.scenarios.test_reader_role import Endpoint
from tests.scenarios.weights import FILES, MEMORY, PID, TASKS, THREADS, Weighing
from tests.spark.processes import own_group

_FULL_MINUTES = 60.0
_NODES = (1, 2, 3)
_PARTITIONS = 6
_KIB_PER_S = 96
_OLD_MIB = 4
_WEIGHED_EACH_S = 20.0
_KILLS = 24
_DOWN_S = 3.0
_FIRST = ("rlm:1", "reader:1", "plugin:1", "broker:1")
_IN_TURN = ("rlm:2", "reader:2", "plugin:2", "broker:2", "rlm:3", "plugin:3", "broker:3")
_LIMIT_S = 600
_LEAST_RETENTION_MS = 240_000

DISK = "disk"
_LIVE, _OLD, _INTERNAL = "live_mib", "old_mib", "internal_mib"
_STORE, _STATE, _CACHE, _SEGMENTS = "store_mib", "state_mib", "cache_mib", "ledger_segments"

_CACHE_BYTES = 16 << 20
_DISK_CACHE_BYTES = 16 << 20
_SETTINGS = (
    f"rlm.fetch.chunk.cache.bytes={_CACHE_BYTES}",
    f"rlm.fetch.chunk.cache.disk.bytes={_DISK_CACHE_BYTES}",
    "broker.file.delete.delay.ms=10000",
)
"""Caches that are full before anything is judged."""

_ALLOWED = {
    MEMORY: Allowance(most=6, percent=3),
    FILES: Allowance(most=4),
    THREADS: Allowance(most=4),
    TASKS: Allowance(most=2),
}
_ALLOWED_OF_DISK = {
    _LIVE: Allowance(most=4, percent=3),
    _OLD: Allowance(most=1),
    _INTERNAL: Allowance(most=8),
    _STORE: Allowance(most=4, percent=3),
    _STATE: Allowance(most=2),
    _CACHE: Allowance(most=4),
    _SEGMENTS: Allowance(most=6, percent=1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """How long it is, and of which parts."""

    minutes: float

    @classmethod
    def asked_for(cls) -> "Length":
        return cls(minutes=float(os.environ.get("RLM_SOAK_EVERYTHING_MINUTES") or _FULL_MINUTES))

    @property
    def is_full(self) -> bool:
        return self.minutes >= _FULL_MINUTES

    def share_s(self, part: float) -> float:
        return part * self.minutes * 60

    @property
    def retention_ms(self) -> int:
        """Of all that is written: four to five times over in the full length, and never less than
        the Spark stream needs to begin: what ended before it was read is a loss to it.
        """
        return max(int(self.share_s(0.2) * 1_000), _LEAST_RETENTION_MS)

    @property
    def settled_s(self) -> float:
        """A process is not judged before that age."""
        return self.share_s(1 / 12)

    @property
    def measured_from_s(self) -> float:
        return self.share_s(0.25)

    @property
    def disk_measured_from_s(self) -> float:
        """When as much expires as comes."""
        return self.share_s(0.35)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    name: str
    at_s: float
    in_sync_after_s: float


@dataclass
class Soak:
    """What is done to the cluster meanwhile, and what it weighs."""

    cluster: Cluster
    length: Length
    live: str
    old: str
    stream: Any
    folder: Path
    kills: list[Kill] = field(default_factory=list)
    weighings: list[Weighing] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        ending = threading.Event()
        weighing = threading.Thread(target=self._weigh, args=(ending,), name="weighing")
        weighing.start()
        try:
            for number in range(_KILLS):
                self._wait_until(self.length.share_s((number + 1) * 0.9 / _KILLS))
                self._kill(_target(number))
            self._wait_until(self.length.share_s(1))
        finally:
            ending.set()
            weighing.join()

    def _wait_until(self, at_s: float) -> None:
        while (left_s := at_s - self._now_s()) > 0:
            assert is_running(self.stream), "the Spark stream has ended"
            time.sleep(min(left_s, 5.0))

    def _kill(self, name: str) -> None:
        """Nothing is killed before all replicas are in sync again: two of three must live."""
        at_s = self._now_s()
        self.cluster.wait_for(self._is_in_sync, "all replicas in sync", _LIMIT_S)
        in_sync_after_s = self._now_s() - at_s
        self.cluster.sandbox.kill(name)
        time.sleep(_DOWN_S)
        self.cluster.sandbox.start(name, wait=False)
        kill = Kill(name=name, at_s=round(at_s, 1), in_sync_after_s=round(in_sync_after_s, 1))
        self.kills.append(kill)
        print(json.dumps(asdict(kill)), flush=True)

    def _is_in_sync(self) -> bool:
        return all(isr(self.cluster, self.live, one) == set(_NODES) for one in range(_PARTITIONS))

    def _weigh(self, ending: threading.Event) -> None:
        every_s = min(_WEIGHED_EACH_S, self.length.share_s(1 / 60))
        while not ending.wait(every_s):
            found = {**weights.weighed(self.cluster.sandbox), **self._spark(), DISK: self._disk()}
            at_s = round(self._now_s(), 1)
            self.weighings.append(Weighing(at_s=at_s, phase="all", weights=found))
            if len(self.weighings) % 15 == 1:
                print(json.dumps(asdict(self.weighings[-1])), flush=True)

    def _spark(self) -> dict[str, weights.Weight]:
        """The driver, and the interpreters that its Java starts and ends as it needs them."""
        with contextlib.suppress(psutil.Error):
            driver, *others = weights.tree(self.stream.pid)
            java = [one for one in others if "java" in one.name()]
            return {
                "spark:driver": {PID: driver.pid, **weights.of_processes([driver])},
                "spark:java": {PID: driver.pid, **weights.of_processes(java)},
            }
        return {}

    def _disk(self) -> weights.Weight:
        sandbox = self.cluster.sandbox
        layout = sandbox.layout
        logs = [one for node in _NODES for root in sandbox.log_dirs(node) for one in root.iterdir()]
        live = [one for one in logs if one.name.startswith(self.live)]
        old = [one for one in logs if one.name.startswith(self.old)]
        others = [one for one in logs if one not in (*live, *old)]
        states = [*map(layout.rlm_state, _NODES), *map(layout.reader_state, (1, 2))]
        known = [
            weights.metric_sum(sandbox.state.ports[node].http, "rlm_remote_log_metadata_count{")
            for node in _NODES
        ]
        return {
            _LIVE: _mib(*live),
            _OLD: _mib(*old),
            _INTERNAL: _mib(*others),
            _STORE: _mib(layout.store),
            _STATE: _mib(*states),
            _CACHE: _mib(self.folder / "caches"),
            **({} if None in known else {_SEGMENTS: sum(one or 0 for one in known)}),
        }

    def spans(self) -> list[Span]:
        """Of all that is judged: brokers and the Java of Spark have limits of their own."""
        length = self.length
        return [
            span
            for what in _ALLOWED
            for span in spans(
                self.weighings, what, settled_s=length.settled_s, from_s=length.measured_from_s
            )
            if span.name.startswith(("rlm:", "reader:", "plugin:", "spark:driver"))
            and (span.name.partition(":")[0], what) != ("plugin", TASKS)
        ]

    def disk_spans(self) -> list[Span]:
        from_s = self.length.disk_measured_from_s
        return [
            span
            for what in _ALLOWED_OF_DISK
            for span in spans(self.weighings, what, settled_s=0, from_s=from_s)
        ]

    def check(self) -> None:
        """Nothing grew, and what was to live long did."""
        found = [*self.spans(), *self.disk_spans()]
        growing = [
            *grown(found, {**_ALLOWED, **_ALLOWED_OF_DISK}, least_s=self.length.share_s(0.5)),
            *grown_by_restarts(found, _ALLOWED, least_s=self.length.share_s(0.11)),
        ]
        print(json.dumps({"grown": growing}, indent=1), flush=True)
        if not self.length.is_full:
            return
        half_s = self.length.share_s(0.5)
        whole = {one.name for one in found if one.lasted_s >= half_s and one.is_long_enough}
        assert {"rlm:1", "reader:1", "plugin:1", "spark:driver", DISK} <= whole
        assert not growing, growing

    def summary(self) -> dict[str, Any]:
        measured = [
            {
                "name": one.name,
                "what": one.what,
                "seen_s": round(one.lasted_s),
                "usual": round(one.usual, 2),
                "slope_in_ten_minutes": round(one.slope, 3),
            }
            for one in (*self.spans(), *self.disk_spans())
            if one.is_long_enough
        ]
        return {
            "minutes": self.length.minutes,
            "kib_per_s": _KIB_PER_S,
            "retention_ms": self.length.retention_ms,
            "kills": [asdict(one) for one in self.kills],
            "slopes": measured,
            "weighings": [asdict(one) for one in self.weighings],
        }

    def _now_s(self) -> float:
        return time.monotonic() - self.began_s


def _target(number: int) -> str:
    if number < len(_FIRST):
        return _FIRST[number]
    return _IN_TURN[(number - len(_FIRST)) % len(_IN_TURN)]


def _mib(*roots: Path) -> float:
    """What files have of the disk; those that go meanwhile do not count."""
    total = 0
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in names:
                with contextlib.suppress(OSError):
                    total += (Path(folder) / name).stat().st_blocks * 512
    return round(total / 2**20, 2)


@pytest.fixture
def everything(tmp_path: Path) -> Iterator[Cluster]:
    """Each service and reader with a disk cache of its own."""
    spec = SandboxSpec(
        brokers=3,
        readers=2,
        store="s3",
        jvm="quick",
        heap_mib=384,
        overrides=tuple(map(Override.parse, _SETTINGS)),
    )
    made = Sandbox.up(tmp_path / "sandbox", spec)
    try:
        for name in ("rlm:1", "rlm:2", "rlm:3", "reader:1", "reader:2"):
            made.stop(name)
            _give_cache(made, name, tmp_path / "caches")
            made.start(name)
        with Cluster(made) as cluster:
            yield cluster
    finally:
        made.down(delete=not os.environ.get("RLM_KEEP_SANDBOX"))


def _give_cache(sandbox: Sandbox, name: str, folder: Path) -> None:
    kind, _, number = name.partition(":")
    of = sandbox.layout.reader_config if kind == "reader" else sandbox.layout.rlm_config
    path = of(int(number))
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    config["fetch.chunk.cache.path"] = str(folder / name.replace(":", "-"))
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")


def _old_topic(cluster: Cluster) -> tuple[str, list[Row]]:
    """A partition of each node, remote but for its end."""
    topic = fresh("old")
    cluster.create_topic(topic, assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    cluster.enable(topic)
    rows = [row for one in range(3) for row in cluster.fill(topic, mib=_OLD_MIB, partition=one)]
    for one in range(3):
        cluster.wait_trimmed(topic, one, beyond=1_024, timeout_s=_LIMIT_S)
        cluster.wait_settled(topic, one)
    return topic, rows


def _live_topic(cluster: Cluster, length: Length) -> str:
    topic = fresh("live")
    assignment = [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 2
    cluster.create_topic(topic, assignment=assignment, configs={"min.insync.replicas": "2"})
    retention = ("--retention", f"{length.retention_ms}ms", "--local-retention-bytes", "1048576")
    cluster.enable(topic, "--trim", *retention, "--yes")
    return topic


def _caller(cluster: Cluster, topic: str) -> Caller:
    """By all services and readers, what is remote of partition 0."""
    document = cluster.sandbox.json
    endpoints = [
        Endpoint(one["grpc"], topic) for one in (*document["readers"], *document["brokers"])
    ]

    def read(endpoint: Endpoint) -> int:
        answers = endpoint.read()
        return answers[-1].next_offset if answers else 0

    wanted = endpoints[0].position(-1)
    assert wanted > 1_024
    return Caller({one.address: partial(read, one) for one in endpoints}, wanted)


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_an_hour_with_everything_on(everything: Cluster, tmp_path: Path) -> None:
    length = Length.asked_for()
    old, rows = _old_topic(everything)
    live = _live_topic(everything, length)
    caller = _caller(everything, old)
    (folder := tmp_path / "stream" / "batches").mkdir(parents=True)
    folder = folder.parent
    (temporary := tmp_path / "tmp").mkdir()
    options = {
        "rlm.endpoints": ",".join(one["grpc"] for one in everything.sandbox.json["readers"]),
        "subscribe": live,
        "startingOffsets": "earliest",
        "readMode": "remote_only",
    }
    driver = [sys.executable, "-m", "tests.scenarios.soak_stream", str(folder), json.dumps(options)]
    producer = LightProducer(everything, live, [*range(_PARTITIONS)], kib_per_s=_KIB_PER_S)
    with (
        own_group(driver, temporary=temporary) as stream,
        Follower(everything, live, _PARTITIONS) as follower,
        rereader(everything, old, rows) as again,
        Repeated("caller", caller) as calling,
        producer,
    ):
        soak = Soak(
            cluster=everything, length=length, live=live, old=old, stream=stream, folder=tmp_path
        )
        soak.run()
        producer.stop()
        acked = producer.seen()
        ends = {one: len(found) for one, found in acked.items()}
        everything.wait_for(
            lambda: all(len(follower.seen[one]) >= end for one, end in ends.items()),
            "followers at the end",
            _LIMIT_S,
        )
        remote = _remote_ends(everything, live)
        everything.wait_for(
            lambda: not is_running(stream) or _has(streamed(folder), remote),
            "the stream at the end",
            _LIMIT_S,
        )
        (folder / "end").touch()
        assert stream.wait(_LIMIT_S) == 0, "the stream failed"
    clients = {
        "acknowledged": sum(ends.values()),
        "streamed": sum(map(len, streamed(folder).values())),
        "rereads": again.passes,
        "calls": calling.passes,
        "calls_unanswered": caller.unanswered,
        "reconnects_of_the_follower": dict(Counter(follower.passing).most_common(10)),
        "problems": [*follower.problems, *again.problems, *calling.problems][:50],
        "producer_failures": [str(one) for one in producer.failures][:50],
    }
    print(json.dumps(clients, indent=1), flush=True)
    if length.is_full:
        keep_result("soak-everything", {**clients, **soak.summary()})
    (folder / "summary.json").write_text(json.dumps({**clients, **soak.summary()}, indent=1))
    _check_rows(acked, follower.seen, streamed(folder), remote)
    assert not clients["problems"]
    assert not clients["producer_failures"]
    assert min(again.passes, calling.passes) > 0
    starts = [everything.status(live, one)["remote_log_start_offset"] for one in range(_PARTITIONS)]
    assert min(starts) > 0 or not length.is_full, f"nothing expired meanwhile: {starts}"
    soak.check()


def _remote_ends(cluster: Cluster, topic: str) -> dict[int, int]:
    for one in range(_PARTITIONS):
        cluster.wait_copied(topic, one)
    return {
        one: int(cluster.status(topic, one)["remote_next_offset"]) for one in range(_PARTITIONS)
    }


def _has(found: BySum, ends: dict[int, int]) -> bool:
    return all(
        end == 0 or (one in found and found[one][-1][0] + 1 >= end) for one, end in ends.items()
    )


def _check_rows(acked: BySum, followed: BySum, stream: BySum, remote: dict[int, int]) -> None:
    """What was acknowledged came once and in order, to the stream as far as it is remote."""
    for one, rows in acked.items():
        rows.sort()
        assert [offset for offset, _ in rows] == list(range(len(rows))), f"partition {one}"
        assert followed[one] == rows, f"partition {one} at the tail"
        assert stream.get(one, []) == rows[: remote[one]], f"partition {one} of the stream"
