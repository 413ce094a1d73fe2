"""One read by Java's ConsumerPerformance, as bin/kafka-consumer-perf-test.sh runs it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bench.processes import BenchError, Finished, run_measured
from rlm_sandbox.kafka_dist import KafkaDist

_JVM = (
    "-Xmx512m",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-Duser.language=en",
    "-Duser.country=US",
)
_COLUMNS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfLine:
    """Output of ConsumerPerformance: MiB of values, fetch time without the group join."""

    value_mib: float
    records: int
    join_ms: int
    fetch_ms: int
    fetch_mib_s: float

    @classmethod
    def parse(cls, output: str) -> Self:
        """The last line of numbers; BenchError where there is none."""
        for line in reversed(output.splitlines()):
            cells = [cell.strip() for cell in line.split(",")]
            if len(cells) == _COLUMNS and cells[0][:1].isdigit():
                return cls(
                    value_mib=float(cells[2]),
                    records=int(cells[4]),
                    join_ms=int(cells[6]),
                    fetch_ms=int(cells[7]),
                    fetch_mib_s=float(cells[8]),
                )
        raise BenchError(f"ConsumerPerformance printed no result: {output[-500:]!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRun:
    """A complete read: its own line, and CPU and duration of the whole process."""

    line: PerfLine
    process: Finished


def read_topic(
    dist: KafkaDist,
    *,
    bootstrap: str,
    topic: str,
    records: int,
    fetch_bytes: int,
    properties: Path | None = None,
) -> ConsumerRun:
    """Read all records of a topic from the beginning in a group of its own. `properties`: a file
    with those of the client.
    """
    argv = dist.java_command(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", bootstrap),
        *("--topic", topic),
        *("--num-records", str(records)),
        *("--fetch-size", str(fetch_bytes)),
        *("--timeout", "30000"),
        *(() if properties is None else ("--consumer.config", str(properties))),
        jvm=(*_JVM, f"-Dlog4j2.configurationFile={_quiet(dist)}"),
    )
    process = run_measured(argv)
    line = PerfLine.parse(process.output)
    if line.records != records:
        raise BenchError(f"{topic} via {bootstrap}: {line.records} of {records} records came")
    return ConsumerRun(line=line, process=process)


def _quiet(dist: KafkaDist) -> str:
    """The logging configuration of the sandbox's tools; written by `tool_command`."""
    dist.tool_command("consumer-perf")
    return (dist.cache / "tools-log4j2.properties").as_uri()
