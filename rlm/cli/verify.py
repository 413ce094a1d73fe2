"""`rlm verify` checks that every offset of a topic can be read, and every object is as recorded."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import click

from kip405.errors import RemoteStorageError
from kip405.ids import Uuid
from rlm.cli.main import fail
from rlm.cli.output import plain, show_json, show_table
from rlm.cli.progress import ShownProgress
from rlm.cli.target import Connect, Target, service_options
from rlm.v1 import admin_pb2 as pb

EXIT_CLEAN = 0
EXIT_FINDINGS = 1
EXIT_UNCHECKED = 2


@click.command()
@click.argument("topic", required=False, default="")
@click.option("--deep", is_flag=True, help="Read and check every byte, not only sizes.")
@service_options
def verify(*, topic: str, deep: bool, connect: Connect) -> int:
    """Verify every partition of TOPIC, of all topics without it. Changes nothing.

    Offsets are in order and none is missing, and every object is in its store in its size; --deep
    reads all bytes and checks batches, checksums, indexes and manifests, at the rate
    verify.max.bytes.per.second of each service. The exit status is 0 if all is clean, 1 if there
    are findings, else 2 if something could not be checked.
    """
    result = _Result()
    try:
        with connect.open() as target:
            _run(target, pb.VerifyRequest(topic=topic, deep=deep), result)
    except RemoteStorageError as error:
        fail(str(error), EXIT_FINDINGS if result.findings else EXIT_UNCHECKED)
    if connect.as_json:
        show_json(result.as_json(deep=deep))
    else:
        _show(result)
    if result.findings:
        return EXIT_FINDINGS
    return EXIT_UNCHECKED if result.unchecked else EXIT_CLEAN


@dataclass(kw_only=True)
class _Result:
    """What has come so far; `progress` by node."""

    issues: list[pb.VerifyIssue] = field(default_factory=list)
    partitions: list[pb.VerifiedPartition] = field(default_factory=list)
    progress: dict[int, pb.VerifyProgress] = field(default_factory=dict)

    @property
    def findings(self) -> int:
        return sum(one.is_finding for one in self.issues)

    @property
    def unchecked(self) -> int:
        """Partitions of which something was not checked."""
        return sum(bool(one.unchecked) for one in self.partitions)

    def take(self, row: pb.VerifyResponse) -> None:
        """The next row of the stream."""
        match row.WhichOneof("event"):
            case "issue":
                self.issues.append(row.issue)
            case "partition":
                self.partitions.append(row.partition)
            case "progress":
                self.progress[row.progress.node_id] = row.progress

    def as_json(self, *, deep: bool) -> dict[str, Any]:
        """Plain values."""
        return {
            "deep": deep,
            "findings": self.findings,
            "unchecked": self.unchecked,
            "issues": [plain(one) for one in self.issues],
            "partitions": [plain(one) for one in _sorted(self.partitions)],
        }


def _run(target: Target, request: pb.VerifyRequest, result: _Result) -> None:
    """Without a deadline: Ctrl-C ends it, and the service stops with the call."""
    with target.stream(target.admin.Verify, request) as rows, ShownProgress() as shown:
        for row in rows:
            result.take(row)
            shown.update(result.progress.values())


def _show(result: _Result) -> None:
    show_table(
        (
            "partition",
            "local start Lx",
            "last stable Ly",
            "local end Lz",
            "remote start Rx",
            "remote end Ry",
            "segments",
            "result",
        ),
        [_row(one) for one in _sorted(result.partitions)],
        "no partition of an enabled topic",
    )
    lines = [*_issue_lines(result.issues), *_unchecked_lines(result.partitions)]
    if lines:
        click.echo()
    for line in lines:
        click.echo(line)


def _sorted(rows: Iterable[pb.VerifiedPartition]) -> list[pb.VerifiedPartition]:
    return sorted(rows, key=lambda row: (row.topic, row.partition))


def _row(row: pb.VerifiedPartition) -> tuple[object, ...]:
    offsets: tuple[object, ...] = ("-",) * 5
    if row.HasField("offsets"):
        offsets = (
            row.offsets.local_log_start_offset,
            row.offsets.last_stable_offset,
            row.offsets.local_log_end_offset,
            row.offsets.remote_log_start_offset,
            row.offsets.remote_log_end_offset,
        )
    return (_name(row), *offsets, row.segments, _verdict(row))


def _name(row: pb.VerifiedPartition) -> str:
    if row.partition < 0:
        return row.topic or "all topics"
    return f"{row.topic}-{row.partition}"


def _verdict(row: pb.VerifiedPartition) -> str:
    words = [f"{row.findings} FINDINGS"] if row.findings else []
    words += ["NOT CHECKED"] if row.unchecked else []
    return ", ".join(words) or "clean"


def _issue_lines(issues: Iterable[pb.VerifyIssue]) -> Iterator[str]:
    """One line each, findings first."""
    for one in sorted(issues, key=lambda one: (not one.is_finding, one.topic, one.partition)):
        parts = [f"{one.topic}-{one.partition}"]
        if one.start_offset >= 0:
            parts.append(f"offsets {one.start_offset} to {one.end_offset}")
        if one.segment_id:
            parts.append(f"segment {Uuid(one.segment_id)}")
        if one.object_name:
            parts.append(one.object_name)
        level = "finding" if one.is_finding else "note"
        action = f"; {one.action}" if one.action else ""
        yield f"{level}: {', '.join(parts)}: {one.text}{action} [{one.kind}]"


def _unchecked_lines(partitions: Iterable[pb.VerifiedPartition]) -> Iterator[str]:
    for row in _sorted(partitions):
        for why in row.unchecked:
            yield f"not checked: {_name(row)}: {why}"
