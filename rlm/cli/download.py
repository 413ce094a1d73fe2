"""`rlm download`: the remote part of a topic as a Kafka log directory, from service or store."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kip405.errors import Unavailable
from rlm.cli.output import human_size, show_json
from rlm.cli.remote_source import StoreOptions, opened_source, store_options
from rlm.cli.target import Connect, service_options
from rlm.clock import Clock, SystemClock
from rlm.download.plan import PartitionPlan
from rlm.download.run import Download, Progress
from rsm_plugins.threads import FINISH_MS, FileThreads

_PRINCIPAL = "rlm-download"
_FILE_THREADS = 8
_SHOW_EVERY_MS = 200


@click.command()
@click.argument("topic")
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Only this partition.")
@click.option(
    "--dir",
    "directory",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to write TOPIC-PARTITION/ to; it is created if needed.",
)
@store_options
@service_options
def download(
    *,
    topic: str,
    partition: int | None,
    directory: Path,
    connect: Connect,
    **store: Any,
) -> None:
    """Write the remote part of TOPIC as a Kafka log directory.

    The directory has the segments of the leader's history, each offset once, from the remote log
    start on. Every byte is checked. After an interruption the same command continues. Files that it
    did not write are never overwritten.
    """
    options = StoreOptions(**store)
    shown = _Shown(SystemClock(), is_live=sys.stderr.isatty() and not connect.as_json)
    try:
        plans = asyncio.run(_run(connect, options, topic, partition, directory, shown))
    except OSError as error:
        raise Unavailable(f"{error.filename or directory}: {error.strerror}") from error
    finally:
        shown.end()
    if connect.as_json:
        show_json({"partitions": [_summary(plan, directory) for plan in plans]})
    elif not plans:
        click.echo(f"{topic} has no remote partition")


async def _run(
    connect: Connect,
    options: StoreOptions,
    topic: str,
    partition: int | None,
    directory: Path,
    shown: "_Shown",
) -> Sequence[PartitionPlan]:
    threads = FileThreads(_FILE_THREADS)
    try:
        async with opened_source(connect, options, threads, _PRINCIPAL) as source:
            work = Download(
                source, directory, clock=SystemClock(), threads=threads, report=shown.show
            )
            return await work.run(topic, partition)
    finally:
        await threads.finish(FINISH_MS)


def _summary(plan: PartitionPlan, directory: Path) -> dict[str, Any]:
    return {
        "topic": plan.topic_partition.topic,
        "topic_id": str(plan.topic_partition.topic_id),
        "partition": plan.topic_partition.partition,
        "remote_log_start_offset": plan.remote_log_start_offset,
        "next_offset": plan.next_offset,
        "segments": len(plan.pieces),
        "size_bytes": plan.size_bytes,
        "directory": str(directory / str(plan.topic_partition)),
    }


class _Shown:
    """Progress on standard error: one line that changes on a terminal, otherwise one line a
    partition.
    """

    def __init__(self, clock: Clock, *, is_live: bool) -> None:
        self._clock = clock
        self._is_live = is_live
        self._shown_at_ms = 0
        self._is_open = False

    def show(self, now: Progress) -> None:
        is_done = now.done_segments == len(now.plan.pieces)
        due = self._clock.monotonic_ms() - self._shown_at_ms >= _SHOW_EVERY_MS
        if not is_done and not (self._is_live and due):
            return
        self._shown_at_ms = self._clock.monotonic_ms()
        line = _line(now)
        if self._is_live:
            click.echo(f"\r\x1b[K{line}", err=True, nl=is_done)
            self._is_open = not is_done
        else:
            click.echo(line, err=True)

    def end(self) -> None:
        """Leave a half-written line behind as a whole one."""
        if self._is_open:
            click.echo(err=True)


def _line(now: Progress) -> str:
    plan = now.plan
    had = f", {human_size(now.had_bytes)} of it were there" if now.had_bytes else ""
    return (
        f"{plan.topic_partition}: {now.done_segments} of {len(plan.pieces)} segments, "
        f"{human_size(now.done_bytes)} of {human_size(plan.size_bytes)}{had}; "
        f"offsets {plan.remote_log_start_offset} to {plan.next_offset}"
    )
