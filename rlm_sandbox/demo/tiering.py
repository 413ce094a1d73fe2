"""Makes the topic tiered and shows that it is: the command line as a user types it, the API's
status, the partition's directory, and a raw fetch of offset 0 from broker and proxy.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from kafka_protocol.apis import FETCH
from kip405.addresses import Address
from kip405.batches import read_header
from rlm.api.call_metadata import call_metadata
from rlm.broker.connection import BrokerConnection
from rlm.clock import Clock
from rlm.v1 import admin_pb2, admin_pb2_grpc, fetch_pb2
from rlm_sandbox.demo.report import DemoError

OFFSET_OUT_OF_RANGE = 1
_COMMAND_LIMIT_S = 90.0
_CALL_LIMIT_S = 10.0
_POLL_MS = 500
_TIERED_LIMIT_MS = 180_000
_RAW_FETCH_VERSION = 12
_RAW_FETCH_BYTES = 64 * 1024
_RAW_FETCH_LIMIT_MS = 15_000
_FIRST_SHOWN = 3


def run_rlm(root: Path, *arguments: str) -> str:
    """Run `rlm ARGUMENTS` against the sandbox; its output, or DemoError with what it said."""
    result = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-P", "-m", "rlm.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=_COMMAND_LIMIT_S,
        env={**os.environ, "RLM_SANDBOX": str(root)},
        check=False,
    )
    if result.returncode != 0:
        said = (result.stderr or result.stdout).strip()
        command = " ".join(arguments)
        raise DemoError(f"rlm {command} ended with status {result.returncode}: {said[-800:]}")
    return result.stdout


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectory:
    """The segments in the directories of a topic's partitions, as `ls` shows them."""

    segments: dict[int, tuple[str, ...]]
    size_bytes: int

    @classmethod
    def listed(cls, log_dir: Path, topic: str, partitions: Sequence[int]) -> "LogDirectory":
        """Names of the .log files by partition, ascending, and their bytes."""
        names: dict[int, tuple[str, ...]] = {}
        size_bytes = 0
        for partition in partitions:
            logs = sorted((log_dir / f"{topic}-{partition}").glob("*.log"))
            names[partition] = tuple(path.name for path in logs)
            size_bytes += sum(_size(path) for path in logs)
        return cls(segments=names, size_bytes=size_bytes)

    @property
    def count(self) -> int:
        return sum(len(names) for names in self.segments.values())

    def lines(self, partition: int) -> list[str]:
        """The names of one partition, the middle left out when there are many."""
        return shortened(self.segments[partition])


def shortened(lines: Sequence[str]) -> list[str]:
    """The first and the last lines, the middle left out when there are many."""
    left_out = len(lines) - 2 * _FIRST_SHOWN
    if left_out <= 0:
        return list(lines)
    return [*lines[:_FIRST_SHOWN], f"... {left_out} more ...", *lines[-_FIRST_SHOWN:]]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0  # deleted while we looked


def wait_tiered(
    address: str,
    topic: str,
    *,
    is_trimmed: Callable[[], bool],
    clock: Clock,
    progress: Callable[[str], None],
) -> list[Any]:
    """Wait until all closed segments are remote, every local log begins later than the remote one
    and `is_trimmed` (looks at the disk) agrees; answers the partitions' descriptions.
    """
    began_ms = clock.monotonic_ms()
    with grpc.insecure_channel(address) as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        while True:
            rows = _status(stub, topic)
            progress(_in_words(rows))
            if rows and all(_is_tiered(row) for row in rows) and is_trimmed():
                return rows
            if clock.monotonic_ms() - began_ms > _TIERED_LIMIT_MS:
                raise DemoError(_why_not_tiered(rows))
            asyncio.run(_pause(clock))


async def _pause(clock: Clock) -> None:
    await clock.sleep_ms(_POLL_MS)


def _status(stub: admin_pb2_grpc.AdminServiceStub, topic: str) -> list[Any]:
    try:
        answer = stub.Status(
            admin_pb2.StatusRequest(topic=topic),
            timeout=_CALL_LIMIT_S,
            metadata=call_metadata("demo", None),
        )
    except grpc.RpcError as error:
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            return []
        raise DemoError(f"status of {topic}: {error}") from error
    return sorted(answer.partitions, key=lambda row: row.partition)


def _is_tiered(row: fetch_pb2.PartitionDescription) -> bool:
    is_copied = row.HasField("lag_segments") and row.lag_segments == 0
    return is_copied and row.local_log_start_offset > row.remote_log_start_offset >= 0


def _in_words(rows: list[Any]) -> str:
    if not rows:
        return "no status yet"
    lag = sum(row.lag_segments for row in rows)
    remote = sum(row.remote_segments for row in rows)
    ends = " ".join(
        f"[{row.partition}] remote to {row.remote_next_offset}, local from"
        f" {row.local_log_start_offset}"
        for row in rows
    )
    return f"{remote} segments remote, {lag} to go; {ends}"


def _why_not_tiered(rows: list[Any]) -> str:
    whys = [
        f"partition {row.partition}: {row.lag_segments} segments to copy, local log from"
        f" {row.local_log_start_offset}; {row.copy_reason} {row.trim_reason} {row.last_error}"
        for row in rows
    ]
    seconds = _TIERED_LIMIT_MS // 1000
    return "\n".join([f"old segments were not trimmed within {seconds} s", *whys])


def fetch_first(address: str, topic: str, partition: int) -> tuple[int, int]:
    """(error code, bytes of records) of a raw Fetch of offset 0 at one address.

    DemoError when records come that do not begin at offset 0.
    """
    return asyncio.run(_fetch_first(Address.parse(address), topic, partition))


async def _fetch_first(address: Address, topic: str, partition: int) -> tuple[int, int]:
    row = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": _RAW_FETCH_BYTES}
    body = {
        "replica_id": -1,
        "max_wait_ms": 5_000,
        "min_bytes": 1,
        "max_bytes": _RAW_FETCH_BYTES,
        "isolation_level": 0,
        "topics": [{"topic": topic, "partitions": [row]}],
    }
    connection = BrokerConnection(address, client_id="demo")
    try:
        answer = await connection.call(
            FETCH, _RAW_FETCH_VERSION, body, timeout_ms=_RAW_FETCH_LIMIT_MS
        )
    finally:
        await connection.close()
    found = answer["responses"][0]["partitions"][0]
    records = bytes(found["records"] or b"")
    if records and (base := read_header(records).base_offset) != 0:
        raise DemoError(f"fetch of offset 0 at {address} gave records from offset {base}")
    return int(found["error_code"]), len(records)
