"""A sequential read of remote data by Java's ConsumerPerformance, and the CPU of each process."""

from bench.consumer import ConsumerRun, read_topic
from bench.plan import MIB, PROXY, RECORD_BYTES, Shape, topic_name
from bench.processes import CpuMark, wait_idle
from bench.stores.lab import Lab
from bench.stores.options import StoreOptions
from bench.stores.report import ReadRun


def measure_read(
    lab: Lab, options: StoreOptions, shape: Shape, *, delay_ms: int, number: int
) -> ReadRun:
    """Cold: the service was just started; the plugin and its connections are as they were. Warm: it
    has read all of it once, and has it in its cache on disk.
    """
    lab.delay(delay_ms)
    records = options.read.records(shape.partitions)
    if options.warm:
        _read(lab, shape, records)
        wait_idle(lab.pids["service"])
    else:
        lab.empty_caches()
    gigabytes, gibibytes = records * RECORD_BYTES / 1e9, records * RECORD_BYTES / (1 << 30)
    lab.take()
    before = CpuMark.now(lab.pids)
    read = _read(lab, shape, records)
    after = CpuMark.now(lab.pids)
    passed = lab.take()
    used = {role: after.roles[role] - before.roles[role] for role in before.roles}
    foreign_s = after.machine - before.machine - sum(used.values()) - read.process.cpu_s
    return ReadRun(
        store=lab.store,
        delay_ms=delay_ms,
        partitions=shape.partitions,
        fetch_mib=shape.fetch_bytes // MIB,
        warm=options.warm,
        pass_number=number,
        mib_s=read.line.fetch_mib_s,
        wall_s=round(read.process.wall_s, 3),
        cpu_s_gb={role: round(seconds / gigabytes, 3) for role, seconds in used.items()},
        consumer_cpu_s_gb=round(read.process.cpu_s / gigabytes, 3),
        requests_per_gib={
            name: round(count / gibibytes, 1) for name, count in sorted(passed["requests"].items())
        },
        store_bytes_per_byte=round(passed["bytes"].get("down", 0) / (gigabytes * 1e9), 3),
        foreign_cores=round(max(0.0, foreign_s) / read.process.wall_s, 3),
    )


def _read(lab: Lab, shape: Shape, records: int) -> ConsumerRun:
    return read_topic(
        lab.sandbox.dist,
        bootstrap=lab.sandbox.bootstrap,
        topic=topic_name(PROXY, shape.partitions),
        records=records,
        fetch_bytes=shape.fetch_bytes,
    )
