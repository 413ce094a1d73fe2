"""`rlm copy` copies all closed segments of partitions now, and trims what is asked for."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import click

from kip405.errors import Invalid, NotFound, RemoteStorageError
from rlm.cli.main import EXIT_FAILED, fail
from rlm.cli.output import human_size, offset, plain, show_json, show_table
from rlm.cli.parameters import SIZE
from rlm.cli.progress import ShownProgress
from rlm.cli.target import Connect, Target, service_options
from rlm.v1 import admin_pb2 as pb


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="TOPIC[:PARTITION]...")
@click.option(
    "--keep-local",
    type=SIZE,
    metavar="BYTES",
    help="Then trim each partition's local log down to this: 10GiB, 500MB, bytes.",
)
@click.option(
    "--up-to",
    type=click.IntRange(min=0),
    metavar="OFFSET",
    help="Only segments of one partition that begin below this offset.",
)
@service_options
def copy(
    *, targets: tuple[str, ...], keep_local: int | None, up_to: int | None, connect: Connect
) -> int:
    """Copy all closed segments of partitions now, whatever their thresholds, and wait for it.

    With --keep-local the local logs are trimmed then, under the conditions of any trim. Ctrl-C
    stops only the watching: the services finish what they have begun. The same command continues.
    The exit status is 0 if everything was done, else 1.
    """
    if keep_local is not None and keep_local < 0:
        raise Invalid("--keep-local: how much stays at least; it cannot be negative")
    request = pb.CopyClosedRequest(
        targets=[_target(one) for one in targets],
        keep_local_bytes=keep_local,
        up_to_offset=up_to,
    )
    result = _Result()
    try:
        with connect.open() as target:
            _run(target, request, result)
    except RemoteStorageError as error:
        fail(f"{error}{_meant(targets) if isinstance(error, NotFound) else ''}", EXIT_FAILED)
    if connect.as_json:
        show_json(result.as_json())
    else:
        _show(result)
    return 0 if all(row.complete for row in result.partitions) else EXIT_FAILED


def _target(text: str) -> pb.CopyTarget:
    topic, colon, number = text.partition(":")
    if not colon:
        return pb.CopyTarget(topic=topic)
    if not (topic and number.isascii() and number.isdigit()):
        raise Invalid(f"{text!r} is neither TOPIC nor TOPIC:PARTITION")
    return pb.CopyTarget(topic=topic, partition=int(number))


def _meant(targets: Iterable[str]) -> str:
    """Other commands show a partition as TOPIC-PARTITION, which could be the name of a topic."""
    for topic, dash, number in (one.rpartition("-") for one in targets):
        if dash and number.isascii() and number.isdigit():
            return f"; a partition is written {topic}:{number}"
    return ""


@dataclass(kw_only=True)
class _Result:
    """What has come so far; `progress` by partition."""

    partitions: list[pb.CopiedPartition] = field(default_factory=list)
    progress: dict[tuple[str, int], pb.CopyProgress] = field(default_factory=dict)

    def take(self, row: pb.CopyClosedResponse) -> None:
        """The next row of the stream."""
        if row.HasField("partition"):
            self.partitions.append(row.partition)
        else:
            self.progress[row.progress.topic, row.progress.partition] = row.progress

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "complete": all(row.complete for row in self.partitions),
            "partitions": [plain(row) for row in _sorted(self.partitions)],
        }


def _run(target: Target, request: pb.CopyClosedRequest, result: _Result) -> None:
    """Without a deadline: it may take hours."""
    with target.stream(target.admin.CopyClosed, request) as rows, ShownProgress() as shown:
        for row in rows:
            result.take(row)
            shown.update(result.progress.values(), _remark(result.progress.values()))


def _remark(rows: Iterable[pb.CopyProgress]) -> str:
    """What else there is to say: a failure that is tried again, or that trimming has begun."""
    errors = [f"{row.topic}-{row.partition}: {row.error}" for row in rows if row.error]
    if errors:
        return f"tried again: {errors[0]}"
    return "trimming" if any(row.doing == "trimming" for row in rows) else ""


def _show(result: _Result) -> None:
    show_table(
        ("partition", "copied", "size", "first not copied", "local start", "result"),
        [
            (
                f"{row.topic}-{row.partition}",
                row.segments,
                human_size(row.size_bytes),
                offset(row.first_uncopied_offset),
                offset(row.local_log_start_offset),
                "done" if row.complete else f"NOT DONE: {row.why}",
            )
            for row in _sorted(result.partitions)
        ],
        "no partition",
    )


def _sorted(rows: Iterable[pb.CopiedPartition]) -> list[pb.CopiedPartition]:
    return sorted(rows, key=lambda row: (row.topic, row.partition))
