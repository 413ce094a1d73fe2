"""Copying a backlog, beside a plain parallel uploader of the very same files."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.plan import MIB
from bench.processes import BenchError, CpuMark
from bench.stores.lab import Lab
from bench.stores.options import StoreOptions
from bench.stores.report import CopyPair, Speed
from bench.topics import Progress, local_starts, make_topic, produce, run_rlm
from bench.watching import FilesSeen

PARTITIONS = 8
UPLOADS_AT_ONCE = 8
"""As rsm.config.s3.upload.concurrency by default."""

_TIMEOUT_S = 600
_POLL_S = 0.05
_BLOCKS_BEING_WRITTEN = "data-*/current/*/current/rbw/blk_*"
"""Below the folder of an HDFS; a store on S3 has no such files."""


def topic_of(number: int) -> str:
    return f"bench-copy-{number}"


def prepare_backlogs(
    lab: Lab, options: StoreOptions, numbers: Iterable[int], progress: Progress
) -> None:
    """Makes topics that are not tiered yet."""
    for number in numbers:
        progress(f"producing {options.copy_mib} MiB to {topic_of(number)}")
        make_topic(lab.sandbox, topic_of(number), PARTITIONS, options.segment_mib)
        produce(lab.sandbox, topic_of(number), options.copy_mib * MIB // 1024)


def closed_segments(lab: Lab, topic: str) -> list[Path]:
    """Files of all segments but the active ones."""
    found = []
    for partition in range(PARTITIONS):
        for base in local_starts(lab.sandbox, topic, partition)[:-1]:
            for folder in lab.sandbox.log_dirs():
                path = folder / f"{topic}-{partition}" / f"{base:020d}.log"
                found += [path] if path.exists() else []
    return found


def measure_pair(lab: Lab, number: int, delay_ms: int) -> CopyPair:
    """Ours and the plain one, one after the other; the order changes from pair to pair."""
    topic = topic_of(number)
    files = closed_segments(lab, topic)
    if not files:
        raise BenchError(f"{topic} has no closed segment")
    lab.delay(delay_ms)
    ways: list[Callable[[], Speed]] = [
        lambda: copy_ours(lab, topic, files),
        lambda: copy_plain(lab, files),
    ]
    if number % 2:
        plain, ours = ways[1](), ways[0]()
    else:
        ours, plain = ways[0](), ways[1]()
    return CopyPair(store=lab.store, delay_ms=delay_ms, number=number, ours=ours, plain=plain)


def copy_ours(lab: Lab, topic: str, files: list[Path]) -> Speed:
    """From the first object that passes the wire, or the first block of a DataNode, to the last
    segment_copied that the service logs.
    """
    log = lab.sandbox.layout.log("rlm:1")
    seen = log.stat().st_size
    size_bytes = sum(path.stat().st_size for path in files)
    pids = {role: pid for role, pid in lab.pids.items() if role in ("service", "plugin")}
    lab.take()
    before = CpuMark.now(pids)
    with FilesSeen(lab.sandbox.layout.store, _BLOCKS_BEING_WRITTEN, most=1) as blocks:
        run_rlm(lab.sandbox, "topics", "enable", topic)
        enabled_s = time.monotonic()
        while _copied(log, seen, topic) < len(files):
            if time.monotonic() - enabled_s > _TIMEOUT_S:
                raise BenchError(f"{topic} was not copied within {_TIMEOUT_S} s")
            time.sleep(_POLL_S)
        ended_s = time.monotonic()
        to_wall_s = time.time() - ended_s
    after = CpuMark.now(pids)
    cpu_s = sum(after.roles[role] - before.roles[role] for role in pids)
    passed = lab.take()
    seconds = ended_s - (passed["first_put_s"] or blocks.first_s - to_wall_s)
    return Speed(
        seconds=round(seconds, 3),
        mb_s=round(size_bytes / seconds / 1e6, 1),
        cpu_s_gb=round(cpu_s / (size_bytes / 1e9), 3),
        requests=dict(sorted(passed["requests"].items())),
    )


def _copied(log: Path, position: int, topic: str) -> int:
    with open(log, "rb") as file:
        file.seek(position)
        lines = file.read().splitlines()
    named = topic.encode()
    return sum(1 for line in lines if b"segment_copied" in line and named in line)


def copy_plain(lab: Lab, files: list[Path]) -> Speed:
    """The uploader in a process of its own; only its uploads are timed."""
    lab.take()
    command = (sys.executable, "-m", "bench.stores.uploader")
    done = subprocess.run(
        [*command, str(lab.plugin_config), str(UPLOADS_AT_ONCE)],
        input="\n".join(map(str, files)),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        cwd=Path(__file__).resolve().parents[2],
        check=False,
    )
    if done.returncode != 0:
        raise BenchError(f"the plain uploader failed: {done.stderr[-500:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return Speed(
        seconds=round(found["seconds"], 3),
        mb_s=round(found["bytes"] / found["seconds"] / 1e6, 1),
        cpu_s_gb=round(found["cpu_s"] / (found["bytes"] / 1e9), 3),
        requests=dict(sorted(lab.take()["requests"].items())),
    )
