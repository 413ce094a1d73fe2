"""The benchmark of historical reads: remote data through the proxy against its two rivals.

One broker holds all topics, so that heap, JIT and page cache are the same for all. The service is
restarted before every read through it, so that its chunk cache is empty, or with `--warm` never:
then each read follows one of the same topic. The page cache is warm for all.
The sandbox's short intervals serve to get the data remote; while it is read, the service keeps its
production intervals, and so does the broker's own tiering.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from bench.consumer import read_topic
from bench.machine import commit, load_in_words, machine_in_words
from bench.plan import (
    NATIVE,
    PRODUCER_SEED,
    PROXY,
    RECORD_BYTES,
    TLS,
    Options,
    Shape,
    order_of,
)
from bench.plan import topic_name as name_of
from bench.processes import CpuMark, TreeMark, peak_mib, reset_peak, wait_idle
from bench.production import workers_override
from bench.report import IdleRun, Run, idle_line, raw_line, summary
from bench.tls import ProxyTls
from bench.topics import prepare
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import Override, SandboxSpec

_HEAP_MIB = 1024
_SHORTENED_BY_SANDBOX = (
    "heartbeat.interval.ms",
    "leadership.poll.interval.ms",
    "remote.log.manager.task.interval.ms",
    "retention.check.interval.ms",
    "trim.interval.ms",
)
# Kafka's own task looks at every partition this often; 500 ms in the sandbox, 30 s by default.
_NATIVE_INTERVAL = Override.parse("broker.remote.log.manager.task.interval.ms=10000")
_WARM_UP_PASS = 0
IDLE_S = 5.0
IDLE_QUICK_S = 0.5
IDLE = (
    "less_idle: CPU of broker, service and plugin without what they take in as many seconds while "
    "nobody reads, by one turn in each pass before its first read through the proxy"
)
Progress = Callable[[str], None]

_CACHES = {
    False: (
        "page cache warm for all (data just written; nothing dropped); service restarted before "
        "each read through the proxy, so its caches are empty, and idle again; broker, JIT and "
        "plugin warm"
    ),
    True: (
        "all warm (data just written; nothing dropped): the service is not restarted, and before "
        "each read through the proxy the same topic is read once without being counted"
    ),
}


def run_read(options: Options, progress: Progress) -> dict[str, Any]:
    """Sandbox up, data made, all passes, sandbox down; answers the result as JSON values."""
    with tempfile.TemporaryDirectory(prefix="rlm-bench-") as folder:
        spec = SandboxSpec(
            native_tiering=NATIVE in options.variants,
            jvm=options.jvm,
            heap_mib=_HEAP_MIB,
            # With a quick JVM the numbers mean nothing, so nothing has to be quiet for them.
            overrides=(
                workers_override(options.workers),
                *((_NATIVE_INTERVAL,) if options.jvm == "full" else ()),
            ),
        )
        progress(f"machine: {machine_in_words()}; load {load_in_words()}")
        sandbox = Sandbox.up(Path(folder) / "sandbox", spec, progress=progress)
        try:
            shares = prepare(sandbox, options, progress)
            use_production_intervals(sandbox)
            tls = ProxyTls(sandbox) if TLS in options.variants else None
            passes = _Passes(sandbox, options, progress, tls)
            passes.run()
        finally:
            sandbox.down(delete=True)
    return _document(sandbox, options, shares, passes)


class _Passes:
    """Reads in their order, and once in each pass a turn in which nothing is read."""

    def __init__(
        self, sandbox: Sandbox, options: Options, progress: Progress, tls: ProxyTls | None
    ) -> None:
        self._sandbox, self._options = sandbox, options
        self._progress, self._tls = progress, tls
        self.runs: list[Run] = []
        self.warm_ups: list[Run] = []
        self.idle: list[IdleRun] = []

    def run(self) -> None:
        """All passes, the one that is not counted first."""
        if self._options.warm_up:
            self._progress("warm-up, pass 0: not counted")
            for partitions in self._options.partitions:
                fetch_bytes = self._options.shapes[0].fetch_bytes
                shape = Shape(partitions=partitions, fetch_bytes=fetch_bytes)
                self.warm_ups += self._run_shape(shape, _WARM_UP_PASS)
        for number in range(1, self._options.passes + 1):
            for shape in self._options.shapes:
                self.runs += self._run_shape(shape, number)

    def _run_shape(self, shape: Shape, number: int) -> list[Run]:
        runs = []
        for variant in order_of(self._options.variants, number):
            if variant in (PROXY, TLS):
                self._make_ready(shape, variant, number)
            runs.append(self._measure(shape, variant, number))
            self._progress(raw_line(runs[-1]))
        return runs

    def _make_ready(self, shape: Shape, variant: str, number: int) -> None:
        """The service, for a read through it. The turn in which nothing is read has its state."""
        if self._tls is not None:
            self._tls.switch(on=variant == TLS)
        if self._tls is not None or not self._options.warm:
            restart_service(self._sandbox)
        if self._options.warm:
            self._measure(shape, variant, number)
            wait_idle(self._sandbox.json["brokers"][0]["rlm_pid"])
        if number != _WARM_UP_PASS and len(self.idle) < number:
            seconds = IDLE_S if self._options.jvm == "full" else IDLE_QUICK_S
            self.idle.append(measure_idle(self._sandbox, number, seconds))
            self._progress(idle_line(self.idle[-1]))

    def _measure(self, shape: Shape, variant: str, number: int) -> Run:
        return measure(self._sandbox, self._options, shape, variant, number, self._tls)


def measure_idle(sandbox: Sandbox, number: int, seconds: float) -> IdleRun:
    """What broker, service and plugin take while nobody reads."""
    pids = _roles(sandbox)
    before, began_s = CpuMark.now(pids), time.monotonic()
    time.sleep(seconds)
    after, took_s = CpuMark.now(pids), time.monotonic() - began_s
    used = {role: after.roles[role] - before.roles[role] for role in pids}
    foreign_s = after.machine - before.machine - sum(used.values())
    return IdleRun(
        pass_number=number,
        seconds=round(took_s, 2),
        broker_cores=round(used["broker"] / took_s, 4),
        service_cores=round((used["service"] + used["plugin"]) / took_s, 4),
        foreign_cores=round(max(0.0, foreign_s) / took_s, 3),
    )


def _roles(sandbox: Sandbox) -> Mapping[str, int]:
    """Pids of what takes part in a read, but for the consumer."""
    broker = sandbox.json["brokers"][0]
    return {
        "broker": broker["broker_pid"],
        "service": broker["rlm_pid"],
        "plugin": broker["plugin_pid"],
    }


def use_production_intervals(sandbox: Sandbox) -> None:
    """From its next start on, the service runs its tasks at the default intervals."""
    path = sandbox.layout.rlm_config(1)
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    kept = {key: value for key, value in config.items() if key not in _SHORTENED_BY_SANDBOX}
    path.write_text(yaml.safe_dump(kept), encoding="utf-8")


def restart_service(sandbox: Sandbox) -> None:
    """A fresh process with empty caches, healthy, and through with what every start begins with.

    Its first looks, trims and sweeps cost about a CPU second once, whatever is read afterwards.
    """
    sandbox.stop("rlm:1")
    sandbox.start("rlm:1")
    wait_idle(sandbox.json["brokers"][0]["rlm_pid"])


def measure(
    sandbox: Sandbox,
    options: Options,
    shape: Shape,
    variant: str,
    number: int,
    tls: ProxyTls | None = None,
) -> Run:
    """One read with the CPU of all that takes part in it."""
    pids = _roles(sandbox)
    records = options.records(shape.partitions)
    ours = (pids["service"], pids["plugin"])
    reset_peak(*ours)
    before, ours_before = CpuMark.now(pids), TreeMark.of(*ours)
    read = read_topic(
        sandbox.dist,
        bootstrap=sandbox.bootstrap if variant in (PROXY, TLS) else sandbox.direct_bootstrap,
        topic=name_of(variant, shape.partitions),
        records=records,
        fetch_bytes=shape.fetch_bytes,
        properties=tls.client_properties() if tls is not None and variant == TLS else None,
    )
    after, ours_after = CpuMark.now(pids), TreeMark.of(*ours)
    used = {role: after.roles[role] - before.roles[role] for role in pids}
    foreign_s = after.machine - before.machine - sum(used.values()) - read.process.cpu_s
    gigabytes = records * RECORD_BYTES / 1e9
    return Run(
        pass_number=number,
        variant=variant,
        partitions=shape.partitions,
        fetch_bytes=shape.fetch_bytes,
        mib_s=read.line.fetch_mib_s,
        fetch_ms=read.line.fetch_ms,
        wall_s=round(read.process.wall_s, 3),
        broker_cpu_s_gb=round(used["broker"] / gigabytes, 3),
        service_cpu_s_gb=round((used["service"] + used["plugin"]) / gigabytes, 3),
        consumer_cpu_s_gb=round(read.process.cpu_s / gigabytes, 3),
        foreign_cores=round(max(0.0, foreign_s) / read.process.wall_s, 3),
        service_user_s_gb=round((ours_after.user_s - ours_before.user_s) / gigabytes, 3),
        service_system_s_gb=round((ours_after.system_s - ours_before.system_s) / gigabytes, 3),
        service_faults_gb=round((ours_after.faults - ours_before.faults) / gigabytes),
        service_peak_mib=peak_mib(*ours),
    )


def _document(
    sandbox: Sandbox,
    options: Options,
    shares: Mapping[str, float],
    passes: _Passes,
) -> dict[str, Any]:
    return {
        "v": 1,
        "kind": "bench",
        "name": "read",
        "commit": commit(),
        "machine": machine_in_words(),
        "kafka": sandbox.dist.version,
        "seeds": {"producer values (SplittableRandom)": PRODUCER_SEED},
        "options": asdict(options),
        "caches": _CACHES[options.warm],
        "rivals": {
            "direct": "untrimmed twin topic, direct listener of the same broker",
            "native": "Kafka's own tiered storage with LocalTieredStorage, same broker",
        },
        "cpu": "user + system seconds per 1e9 bytes of values over the consumer's process life",
        "remote_share": {name: round(share, 4) for name, share in shares.items()},
        "idle": IDLE,
        **summary(passes.runs, options.shapes, ones=options.batches_of_one, idle=passes.idle),
        "runs": [asdict(run) for run in passes.runs],
        "idle_runs": [asdict(run) for run in passes.idle],
        "warm_up_runs": [asdict(run) for run in passes.warm_ups],
    }
