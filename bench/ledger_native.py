"""`python -m bench.ledger_native`: Kafka's RemoteLogMetadataCache at a million segments.

The peer of `bench.ledger`: it reads the same file of records with Kafka's RemoteLogMetadataSerde,
into one cache a partition, as TopicBasedRemoteLogMetadataManager does. Measured are the heap after
a collection, records a second of processor time of the thread that reads (the file too), and
lookups by epoch and offset. `--pairs` runs both, one after the other, so many times.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.command import measure, parser, say
from bench.java_classes import kafka_class_path
from bench.ledger import RECORDS_A_SEGMENT, write_records
from bench.machine import commit, load_in_words, machine_in_words
from bench.processes import BenchError
from rlm_sandbox.kafka_dist import java_environment, resolve_kafka

_MAIN = "org.apache.kafka.server.log.remote.metadata.storage.CacheBench"
_LIMIT_S = 900
_SOURCES = Path(__file__).resolve().parent / "kafka_cache"
_OUR_KEYS = ("records_per_cpu_s", "bytes_per_segment_replayed", "lookup_us")


def native(records: Path, partitions: int, segments: int, lookups: int) -> dict[str, Any]:
    """One run of Kafka's cache."""
    dist = resolve_kafka(progress=say)
    class_path = kafka_class_path(dist, _SOURCES, "kafka-cache-bench", say)
    offsets = segments * RECORDS_A_SEGMENT
    arguments = (str(records), str(lookups), str(offsets))
    found = json.loads(_ran([str(dist.java), "-Xmx6g", "-cp", class_path, _MAIN, *arguments]))
    count = partitions * segments
    return {
        "load": load_in_words(),
        "kafka": dist.version,
        "segments": count,
        **found,
        "records_per_cpu_s": round(found["records"] / found["replay_cpu_s"]),
        "heap_bytes_per_segment": round(found["heap_bytes"] / count),
    }


def ours(records: Path, partitions: int) -> dict[str, Any]:
    """One run of `bench.ledger`, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = ("--records", str(records), "--partitions", str(partitions), "--out", folder)
        quick = ("--quick",) if partitions < 1_000 else ()
        _ran([sys.executable, "-m", "bench.ledger", *chosen, *quick, "--name", "one"])
        found: dict[str, Any] = json.loads((Path(folder) / "one.json").read_text("utf-8"))
        return found


def _ran(command: list[str]) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        env=java_environment(),
        check=False,
    )
    if done.returncode != 0:
        raise BenchError(f"{command[0]}: {done.stderr[-500:]}")
    return done.stdout


def _line(of_kafka: dict[str, Any], of_ours: dict[str, Any]) -> str:
    many = of_ours["many_partitions"]
    return (
        f"Kafka {of_kafka['records_per_cpu_s']} records/s, "
        f"{of_kafka['heap_bytes_per_segment']} bytes a segment, lookup {of_kafka['lookup_us']}; "
        f"ours " + ", ".join(f"{name} {many[name]}" for name in _OUR_KEYS)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers say."""
    made = parser("python -m bench.ledger_native", __doc__)
    made.add_argument("--records", help="file of records; written where it is not there")
    made.add_argument("--pairs", type=int, default=1)
    given = made.parse_args(arguments)
    partitions, segments = (100, 20) if given.quick else (10_000, 100)
    lookups = 1_000 if given.quick else 200_000

    def run() -> tuple[list[str], dict[str, Any]]:
        lines, pairs = [], []
        with tempfile.TemporaryDirectory() as folder:
            path = Path(given.records or f"{folder}/records")
            if not path.exists():
                write_records(path, partitions, segments)
            for _ in range(given.pairs):
                of_kafka = native(path, partitions, segments, lookups)
                of_ours = ours(path, partitions)
                pairs.append({"kafka": of_kafka, "ours": of_ours})
                lines.append(_line(of_kafka, of_ours))
                say(lines[-1])
        about = {"commit": commit(), "machine": machine_in_words(), "load": load_in_words()}
        return [], {**about, "pairs": pairs}

    return measure(given, "ledger-native", run)


if __name__ == "__main__":
    raise SystemExit(main())
