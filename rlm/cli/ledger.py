"""`rlm ledger rebuild`: a lost ledger comes back from the stores, without any service."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kip405.errors import Invalid
from kip405.ids import Uuid
from kip405.segments import RemoteLogSegmentMetadata
from rlm.cli.output import human_size, show_json, show_table
from rlm.cli.parameters import CommandGroup
from rlm.clock import Clock, SystemClock

if TYPE_CHECKING:  # the commands load what they need
    from rlm.config import ServiceConfig
    from rlm.plans.ledger_rebuild import PartitionRebuild
    from rlm.service.ledger_rebuild import RebuildReport
    from rlm.tasks.store_survey import StoreSurvey

F = TypeVar("F", bound=Callable[..., Any])
EXIT_LEFT_OUT = 1
_RULE = """\
Added are segments that the ledger does not have, whose manifest proves this cluster and store, and
whose objects are whole. The remote log starts stay as the settings have them: what lies below them
cannot be read, and expiration deletes it. A segment whose deletion had begun has no manifest and
does not come back. Nothing that the ledger has is changed."""


@click.group(cls=CommandGroup)
def ledger() -> None:
    """Rebuild the ledger, the topic that lists all remote segments."""


def store_options(command: F) -> F:
    """The options of commands that compare the stores with the ledger."""
    options = (
        click.option(
            "--config",
            "config",
            required=True,
            type=click.Path(path_type=Path),
            help="YAML file of a broker's service: its cluster and stores. No service is asked.",
        ),
        click.option(
            "--without-store",
            "without",
            multiple=True,
            metavar="STORE_ID",
            help="Leave out what lies in this store, which the settings know. Repeatable.",
        ),
        click.option("--yes", is_flag=True, help="Write it. Without --yes it is only shown."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@ledger.command()
@click.option(
    "--from-store", "is_from_store", is_flag=True, help="From the manifests in the stores."
)
@store_options
def rebuild(
    *, is_from_store: bool, config: Path, without: Sequence[str], yes: bool, as_json: bool
) -> int:
    """Write again what the ledger has lost, from the manifests that lie with the segments.

    Restart every service afterwards. The exit status is 1 if something that is in the stores is not
    in the ledger then; it is named.
    """
    from rlm.service.ledger_rebuild import rebuild_ledger

    if not is_from_store:
        raise Invalid("--from-store is missing: it says what to rebuild the ledger from")
    report = asyncio.run(
        rebuild_ledger(*loaded(config), is_applied=yes, without=store_ids(without))
    )
    if as_json:
        show_json(_as_json(report))
    else:
        _show(report)
    return EXIT_LEFT_OUT if report.left_out else 0


def loaded(config: Path) -> tuple["ServiceConfig", Clock]:
    """The configuration and the clock of a command; only errors are logged."""
    from rlm.config import load
    from rlm.service.lifetime import configure_service_logs

    configure_service_logs(level="error", log_format="text")
    return load(config), SystemClock()


def store_ids(texts: Iterable[str]) -> tuple[Uuid, ...]:
    """The values of --without-store; Invalid for one that is no id."""
    try:
        return tuple(Uuid.parse(text) for text in texts)
    except ValueError as error:
        raise Invalid(f"--without-store: {error}") from error


def _show(report: "RebuildReport") -> None:
    click.echo(f"cluster {report.cluster_id}: {report.ledger}")
    for store in report.stores:
        segments = sum(len(one) for one in store.segments.values())
        click.echo(f"store {store.store_id}: {store.objects} objects, {segments} manifests")
    click.echo()
    show_table(
        ("partition", "added", "bytes", "offsets", "known", "remote log start", "of the added"),
        [_row(one) for one in report.partitions],
        "the stores have no segment of this cluster",
    )
    for line in _remarks(report):
        click.echo(line)
    click.echo()
    click.echo(_RULE)
    click.echo()
    added = sum(len(one.added) for one in report.partitions)
    if report.written is None:
        click.echo(f"nothing was written: {added} segments are added with --yes")
    else:
        click.echo(f"{report.written} segments were added; restart every service now")


def _row(one: "PartitionRebuild") -> tuple[object, ...]:
    offsets = "-"
    if one.added:
        offsets = f"{one.added[0].start_offset} to {max(seg.end_offset for seg in one.added)}"
    size_bytes = sum(segment.segment_size_bytes for segment in one.added)
    words = [f"{one.ended} ended"] if one.ended else []
    words += [f"{one.diverged} of a dead history"] if one.diverged else []
    return (
        str(one.partition),
        len(one.added),
        human_size(size_bytes),
        offsets,
        one.known,
        one.remote_log_start_offset,
        ", ".join(words) or "-",
    )


def _remarks(report: "RebuildReport") -> Iterator[str]:
    for one in report.partitions:
        yield from not_added(one)
        if one.is_start_lost:
            yield (
                f"note: {one.partition}: the settings have lost its remote log start, so nothing "
                "remote can be read; `rlm topics adopt-log-start` sets it where the segments begin"
            )
        for start, end in one.gaps:
            yield f"note: {one.partition}: no segment has the offsets {start} to {end - 1}"
    yield from unusable(report.stores)


def not_added(one: "PartitionRebuild") -> Iterator[str]:
    """What is in the stores and gets no record, one line each."""
    if one.refused:
        yield f"not added: {one.partition} ({one.partition.topic_id}): {one.refused}"
    for segment in one.broken:
        metadata = segment.metadata
        yield (
            f"not added: {one.partition}, offsets {metadata.start_offset} to "
            f"{metadata.end_offset}: {segment.broken}"
        )


def unusable(stores: Iterable["StoreSurvey"]) -> Iterator[str]:
    """Objects that prove nothing, one line each."""
    for store in stores:
        for text in store.unusable:
            yield f"not added: store {store.store_id}: {text}"


def _as_json(report: "RebuildReport") -> dict[str, Any]:
    return {
        "cluster_id": report.cluster_id,
        "ledger": report.ledger,
        "written": report.written,
        "left_out": report.left_out,
        "partitions": [_partition_json(one) for one in report.partitions],
        "stores": stores_json(report.stores),
    }


def stores_json(stores: Iterable["StoreSurvey"]) -> list[dict[str, Any]]:
    """What was listed, by store."""
    return [
        {"store_id": str(one.store_id), "objects": one.objects, "unusable": one.unusable}
        for one in stores
    ]


def segment_json(segment: RemoteLogSegmentMetadata) -> dict[str, Any]:
    """A segment that gets a record."""
    return {
        "segment_id": str(segment.segment_id.id),
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "size_bytes": segment.segment_size_bytes,
    }


def _partition_json(one: "PartitionRebuild") -> dict[str, Any]:
    return {
        "topic": one.partition.topic,
        "topic_id": str(one.partition.topic_id),
        "partition": one.partition.partition,
        "remote_log_start_offset": one.remote_log_start_offset,
        "known": one.known,
        "ended": one.ended,
        "diverged": one.diverged,
        "refused": one.refused,
        "added": [segment_json(segment) for segment in one.added],
        "broken": [segment.broken for segment in one.broken],
        "gaps": [{"start_offset": start, "end_offset": end - 1} for start, end in one.gaps],
    }
