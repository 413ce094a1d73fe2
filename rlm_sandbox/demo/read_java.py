"""Reads the whole topic with Kafka's own console consumer (Java) and compares what it prints.

Its order between partitions is free, so lines are compared within their partition: each line byte
for byte, their count, and a digest over all of them. The expected lines follow Kafka's
DefaultMessageFormatter (org.apache.kafka.tools.consumer) with the properties below: fields are
separated by tabs, bytes are printed unchanged, a record ends with a line feed.
"""

import contextlib
import hashlib
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

from rlm_sandbox.demo.comparison import Comparison, Progress, Yardstick
from rlm_sandbox.demo.content import Content, DemoRecord
from rlm_sandbox.demo.report import DemoError
from rlm_sandbox.kafka_dist import KafkaDist, java_environment

NULL = b"<null>"

FORMATTER_PROPERTIES = {
    "print.timestamp": "true",
    "print.partition": "true",
    "print.offset": "true",
    "print.headers": "true",
    "print.key": "true",
    "print.value": "true",
    "null.literal": NULL.decode(),
}


def printed_position(partition: int, offset: int, timestamp_ms: int) -> bytes:
    """The first three fields, without the tab behind them."""
    return b"CreateTime:%d\tPartition:%d\tOffset:%d" % (timestamp_ms, partition, offset)


def printed_content(record: DemoRecord) -> bytes:
    """Headers, key and value, without the line feed."""
    headers = b",".join(
        name.encode() + b":" + (NULL if content is None else content)
        for name, content in record.headers
    )
    key = NULL if record.key is None else record.key
    value = NULL if record.value is None else record.value
    return b"\t".join((headers or b"NO_HEADERS", key, value))


def parsed_position(line: bytes) -> tuple[int, int, int, bytes]:
    """(partition, offset, timestamp, content) of a printed line; ValueError when it is none."""
    timestamp, partition, offset, content = line.split(b"\t", 3)
    return (
        _number(partition, b"Partition:"),
        _number(offset, b"Offset:"),
        _number(timestamp, b"CreateTime:"),
        content,
    )


def _number(field: bytes, name: bytes) -> int:
    if not field.startswith(name):
        raise ValueError(f"{field[:40]!r} does not begin with {name.decode()}")
    return int(field[len(name) :])


_IDLE_MS = 30_000
_LIMIT_S = 300.0
_PROGRESS_EVERY = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedRead:
    """A compared read and digests over all lines, printed and expected, partition by partition."""

    comparison: Comparison
    digest: str
    expected_digest: str


class PrintedCheck:
    """Compares printed lines; `finish` once."""

    def __init__(self, yardstick: Yardstick) -> None:
        self.comparison = Comparison(yardstick.expected)
        self._expected = yardstick.expected
        self._content: Content = yardstick.content
        self._printed = {one: hashlib.sha256() for one in sorted(yardstick.expected)}
        self._wanted = {one: hashlib.sha256() for one in sorted(yardstick.expected)}

    def see(self, line: bytes) -> None:
        """One line with its line feed; DemoError when it is not a printed record."""
        try:
            partition, offset, timestamp_ms, content = parsed_position(line.removesuffix(b"\n"))
        except ValueError as error:
            raise DemoError(f"the console consumer printed {line[:80]!r}: {error}") from error
        if partition in self._printed:
            self._printed[partition].update(line)
        index = self.comparison.match(partition, offset, timestamp_ms)
        if index is None:
            return
        expected = self._expected[partition]
        wanted = printed_content(self._content.record(expected.serials[index]))
        position = printed_position(partition, offset, expected.timestamps_ms[index])
        self._wanted[partition].update(b"%s\t%s\n" % (position, wanted))
        if content != wanted:
            detail = f"printed {content[:60]!r}, not {wanted[:60]!r}"
            self.comparison.altered(partition, offset, detail)

    def finish(self) -> PrintedRead:
        self.comparison.finish()
        return PrintedRead(
            comparison=self.comparison,
            digest=_joined(self._printed.values()),
            expected_digest=_joined(self._wanted.values()),
        )


def read_java(
    dist: KafkaDist, bootstrap: str, topic: str, yardstick: Yardstick, *, progress: Progress
) -> PrintedRead:
    """One full read_committed read by the console consumer; DemoError when it fails."""
    check = PrintedCheck(yardstick)
    command = console_consumer(dist, bootstrap, topic, yardstick.records)
    with tempfile.TemporaryFile() as errors, _running(command, errors) as process:
        for line in process.stdout or ():
            check.see(line)
            if check.comparison.read_records % _PROGRESS_EVERY == 0:
                progress(check.comparison.read_records)
        status = process.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip()
    if status != 0:
        raise DemoError(f"the console consumer ended with status {status}: {said[-600:]}")
    return check.finish()


def console_consumer(dist: KafkaDist, bootstrap: str, topic: str, count: int) -> list[str]:
    """Its command line; it ends after `count` records, or when there is none for a while.

    Ending at the count hides nothing: a record too many leaves an expected one out.
    """
    options = {
        "bootstrap-server": bootstrap,
        "topic": topic,
        "isolation-level": "read_committed",
        "max-messages": str(count),
        "timeout-ms": str(_IDLE_MS),
    }
    arguments = ["--from-beginning"]
    for name, value in options.items():
        arguments += [f"--{name}", value]
    for name, value in FORMATTER_PROPERTIES.items():
        arguments += ["--formatter-property", f"{name}={value}"]
    return dist.tool_command("console-consumer", *arguments)


@contextlib.contextmanager
def _running(command: list[str], errors: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """The running process; it is gone afterwards in all cases, and at the latest at its limit."""
    process = subprocess.Popen(  # noqa: S603 - our own Java on our own jars
        command,
        stdout=subprocess.PIPE,
        stderr=errors,
        bufsize=1 << 20,
        env=java_environment(),
    )
    limit = threading.Timer(_LIMIT_S, process.kill)
    limit.start()
    try:
        with process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()
    finally:
        limit.cancel()


def _joined(digests: Iterable["hashlib._Hash"]) -> str:
    return hashlib.sha256(b"".join(one.digest() for one in digests)).hexdigest()[:16]
