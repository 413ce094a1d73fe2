"""`rlm restore`: the remote part of a topic into a topic of a cluster, each record once."""

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kip405.errors import Invalid, Unavailable
from rlm.cli.brokers import chosen_brokers
from rlm.cli.main import EXIT_INTERRUPTED
from rlm.cli.output import show_json
from rlm.cli.remote_source import StoreOptions, opened_source, store_options
from rlm.cli.target import Connect, service_options
from rlm.clock import SystemClock
from rsm_plugins.threads import FINISH_MS, FileThreads

if TYPE_CHECKING:  # the command loads what it needs
    from rlm.restore.run import PartitionReport, Restore, Restored, Wanted

_PRINCIPAL = "rlm-restore"
_FILE_THREADS = 8
_SHOW_EVERY_MS, _LINE_EVERY_MS = 500, 10_000
_OFFSETS_DIFFER = (
    "offsets are not those of the source, as each transaction takes one more; for equal ones "
    "download the partitions and put them into a broker"
)
_READ_COMMITTED = (
    "attempts that were broken off left aborted records: read with isolation.level=read_committed, "
    "others see them too"
)


@click.command()
@click.argument("topic")
@click.option("--to-topic", required=True, help="The topic to write; it is created if needed.")
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Only this partition.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="YAML file whose kafka.* settings say how to connect to the target.",
)
@click.option(
    "--bootstrap",
    "--bootstrap-server",
    "bootstrap",
    metavar="HOST:PORT,...",
    help="Brokers of the target, instead of kafka.bootstrap.servers.",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="Partitions of the target (default: those of the source, up to the last one in the "
    "store).",
)
@click.option(
    "--replication-factor",
    "replicas",
    type=click.IntRange(min=1, max=32767),
    help="Replicas of a topic that is created (default: the cluster's).",
)
@click.option(
    "--topic-config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Configuration of a topic that is created. Repeatable.",
)
@click.option("--skip-holes", is_flag=True, help="Leave out offsets that no segment has.")
@click.option(
    "--allow-others",
    is_flag=True,
    help="Go on although others have written behind what was restored.",
)
@click.option(
    "--allow-retention",
    is_flag=True,
    help="Write into a topic whose retention deletes records, as they may be old.",
)
@store_options
@service_options
def restore(
    *,
    topic: str,
    to_topic: str,
    partition: int | None,
    config: Path | None,
    bootstrap: str | None,
    partitions: int | None,
    replicas: int | None,
    configs: tuple[str, ...],
    skip_holes: bool,
    allow_others: bool,
    allow_retention: bool,
    connect: Connect,
    **store: Any,
) -> int:
    """Write the remote records of TOPIC into a topic of a cluster, each once and unchanged.

    Partition, order, key, value, headers and timestamp are kept; offsets are not. Records of
    aborted transactions are left out. After an interruption the same command goes on: the progress
    is in the target cluster. A topic with records that this did not write is refused.
    """
    from rlm.restore.run import Wanted

    wanted = Wanted(
        topic=topic,
        to_topic=to_topic,
        partition=partition,
        partitions=partitions,
        replicas=-1 if replicas is None else replicas,
        configs=dict(map(_pair, configs)),
        skips_holes=skip_holes,
        allows_others=allow_others,
        allows_retention=allow_retention,
    )
    options = StoreOptions(**store)
    shown = _Shown(is_live=sys.stderr.isatty() and not connect.as_json)
    try:
        done = asyncio.run(_run(connect, options, wanted, config, bootstrap, shown))
    except OSError as error:
        raise Unavailable(f"{error.filename or topic}: {error.strerror}") from error
    except asyncio.CancelledError:  # by the second signal
        done = None
    finally:
        shown.end()
    if done is None:
        return EXIT_INTERRUPTED
    if connect.as_json:
        show_json(_as_json(done))
    else:
        _show(done)
    return 0 if done.is_complete else EXIT_INTERRUPTED


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise Invalid(f"--topic-config: must be NAME=VALUE, got {text!r}")
    return name, value


async def _run(
    connect: Connect,
    options: StoreOptions,
    wanted: "Wanted",
    config: Path | None,
    bootstrap: str | None,
    shown: "_Shown",
) -> "Restored | None":
    """None: it was stopped before anything was written."""
    from kafka_clients.channel_security import ChannelSecurity
    from rlm.download.verified import VerifiedReads
    from rlm.restore.brokers import Brokers
    from rlm.restore.run import Restore, Stopped

    threads = FileThreads(_FILE_THREADS)
    try:
        addresses, settings = await threads.run(chosen_brokers, config, bootstrap)
        clock, security = SystemClock(), ChannelSecurity(settings)
        brokers = Brokers(addresses, client_id=_PRINCIPAL, security=security, clock=clock)
        try:
            async with opened_source(connect, options, threads, _PRINCIPAL) as source:
                reads = VerifiedReads(source, clock=clock, threads=threads)
                work = Restore(reads, brokers, clock=clock, threads=threads, report=shown.show)
                with _stopped_by_signals(work):
                    return await work.run(wanted)
        except Stopped:
            return None
        finally:
            await brokers.close()
    finally:
        await threads.finish(FINISH_MS)


@contextmanager
def _stopped_by_signals(work: "Restore") -> Iterator[None]:
    """The first SIGTERM or Ctrl-C ends it between two transactions, the second one at once."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    came: list[None] = []

    def stop() -> None:
        came.append(None)
        if len(came) == 1:
            work.stop()
        elif task is not None:
            task.cancel()

    signals = (signal.SIGTERM, signal.SIGINT)
    for one in signals:
        loop.add_signal_handler(one, stop)
    try:
        yield
    finally:
        for one in signals:
            loop.remove_signal_handler(one)


def _as_json(done: "Restored") -> dict[str, Any]:
    return {
        "topic": done.target.name,
        "topic_id": str(done.target.topic_id),
        "is_created": done.target.is_new,
        "is_complete": done.is_complete,
        "partitions": [_row(one) for one in done.partitions],
        "remarks": _remarks(done),
    }


def _row(one: "PartitionReport") -> dict[str, Any]:
    from rlm.restore.source import start_of

    progress = one.progress
    return {
        "partition": one.plan.topic_partition.partition,
        "source_topic_id": str(one.plan.topic_partition.topic_id),
        "source_start_offset": start_of(one.plan),
        "source_next_offset": one.plan.next_offset,
        "restored_next_offset": None if progress is None else progress.source_offset,
        "target_next_offset": None if progress is None else progress.target_offset,
        "records": None if progress is None else progress.record_count,
        "is_complete": one.is_complete,
        "has_aborted_attempts": one.is_repeated,
    }


def _remarks(done: "Restored") -> list[str]:
    remarks = list(done.remarks)
    if done.target.is_new:
        remarks.append(
            f"topic {done.target.name!r} was created without retention, so that Kafka does not "
            "delete old records at once: set retention.ms and retention.bytes as you want them"
        )
    if any(one.progress is not None for one in done.partitions):
        remarks.append(_OFFSETS_DIFFER)
    if any(one.is_repeated for one in done.partitions):
        remarks.append(_READ_COMMITTED)
    if not done.is_complete:
        remarks.append("it was stopped: the same command goes on")
    return remarks


def _show(done: "Restored") -> None:
    for one in done.partitions:
        click.echo(_line(one))
    for remark in _remarks(done):
        click.echo(f"note: {remark}")


def _line(one: "PartitionReport") -> str:
    from rlm.restore.source import start_of

    start, end = start_of(one.plan), one.plan.next_offset
    name = one.plan.topic_partition.topic_partition
    if not one.plan.pieces:
        return f"{name}: nothing is remote"
    if one.progress is None:
        return f"{name}: not begun; offsets {start} to {end}"
    share = "complete" if one.is_complete else f"restored up to {one.progress.source_offset}"
    return f"{name}: {one.progress.record_count} records; offsets {start} to {end}, {share}"


class _Shown:
    """Progress on standard error: one line that changes on a terminal, a line now and then else."""

    def __init__(self, *, is_live: bool) -> None:
        self._clock = SystemClock()
        self._is_live = is_live
        self._last_ms = self._clock.monotonic_ms()
        self._is_open = False

    def show(self, now: "PartitionReport") -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._last_ms < (_SHOW_EVERY_MS if self._is_live else _LINE_EVERY_MS):
            return
        self._last_ms = now_ms
        if self._is_live:
            click.echo(f"\r\x1b[K{_line(now)}", err=True, nl=False)
            self._is_open = True
        else:
            click.echo(_line(now), err=True)

    def end(self) -> None:
        """Leave a half-written line behind as a whole one."""
        if self._is_open:
            click.echo(err=True)
