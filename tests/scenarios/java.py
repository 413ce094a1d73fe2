"""Kafka's own console consumer (Java) as a reader of scenarios."""

import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from rlm_sandbox.demo.read_java import FORMATTER_PROPERTIES, NULL, parsed_position
from rlm_sandbox.kafka_dist import java_environment
from tests.scenarios.cluster import Cluster, Row

_IDLE_MS = 120_000
_LIMIT_S = 240.0
"""A consumer that has all its records ends at once: only a failure takes so long."""


def printable(rows: list[Row]) -> list[tuple[int, int, bytes]]:
    """The answer of `java_read` for these rows (without headers)."""
    return [
        (
            row.partition,
            row.offset,
            b"\t".join(
                (
                    b"NO_HEADERS",
                    NULL if row.key is None else row.key,
                    NULL if row.value is None else row.value,
                )
            ),
        )
        for row in rows
    ]


def java_read(
    cluster: Cluster,
    topic: str,
    count: int,
    *,
    partition: int | None = 0,
    bootstrap: str | None = None,
    isolation: str = "read_committed",
    config: Mapping[str, str] | None = None,
    config_file: Path | None = None,
    on_row: Callable[[int], None] | None = None,
    log4j: Path | None = None,
) -> tuple[list[tuple[int, int, bytes]], str]:
    """Read partition from its offset 0 up to `count` records; rows and what it said on stderr.

    Without a partition, it is a member of a group, which begins where the configuration says.
    `config_file`: properties besides, as of a secured client.

    `on_row` runs between two lines, while the consumer is held up by its full pipe. Values must
    not contain line feeds. auto.offset.reset=none: a reset ends the read.
    """
    settings = {"auto.offset.reset": "none", "isolation.level": isolation, **(config or {})}
    arguments = ["--bootstrap-server", bootstrap or cluster.bootstrap, "--topic", topic]
    if partition is not None:
        arguments += ["--partition", str(partition), "--offset", "0"]
    arguments += ["--max-messages", str(count), "--timeout-ms", str(_IDLE_MS)]
    for name, value in settings.items():
        arguments += ["--command-property", f"{name}={value}"]
    if config_file is not None:
        arguments += ["--command-config", str(config_file)]
    for name, value in FORMATTER_PROPERTIES.items():
        arguments += ["--formatter-property", f"{name}={value}"]
    command = cluster.sandbox.dist.tool_command("console-consumer", *arguments)
    if log4j is not None:
        at = next(i for i, one in enumerate(command) if one.startswith("-Dlog4j2"))
        command[at] = f"-Dlog4j2.configurationFile={log4j.as_uri()}"
    return _run(command, on_row)


def _run(
    command: list[str], on_row: Callable[[int], None] | None
) -> tuple[list[tuple[int, int, bytes]], str]:
    said: list[bytes] = []
    rows: list[tuple[int, int, bytes]] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=java_environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        errors = process.stderr
        limit = threading.Timer(_LIMIT_S, process.kill)
        listener = threading.Thread(target=lambda: said.extend(errors))
        limit.start()
        listener.start()
        try:
            for line in process.stdout:
                partition, offset, _, content = parsed_position(line.removesuffix(b"\n"))
                rows.append((partition, offset, content))
                if on_row is not None:
                    on_row(len(rows))
        except BaseException:  # it would wait for a reader of its pipe, and this for its end
            process.kill()
            raise
        finally:
            limit.cancel()
            if process.poll() is None:
                process.wait(60)
            listener.join()
    return rows, b"".join(said).decode(errors="replace")
