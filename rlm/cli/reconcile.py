"""`rlm reconcile` compares stores and ledger: it adopts, and hands leftovers to cleanup."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlm.cli.ledger import (
    EXIT_LEFT_OUT,
    loaded,
    not_added,
    segment_json,
    store_ids,
    store_options,
    stores_json,
    unusable,
)
from rlm.cli.output import human_size, show_json, show_table

if TYPE_CHECKING:  # the command loads what it needs
    from rlm.plans.reconcile import Leftover, PartitionReconcile
    from rlm.service.reconcile import ReconcileReport

_RULE = """\
Objects were listed first, and the ledger was read after that. Adopted are whole segments that prove
this cluster and store and fit the history that the ledger shows. Registered are objects without a
manifest, older than remote.unreferenced.grace.ms, of which a finished segment has the first
records: the cleanup of the leader deletes them after a grace of its own, and audits it. Nothing
else is touched. What is not of this cluster is never deleted."""


@click.command()
@store_options
def reconcile(*, config: Path, without: Sequence[str], yes: bool, as_json: bool) -> int:
    """Compare every object of this cluster in the stores with the ledger.

    Segments of which the ledger has lost the record are adopted; the remains of old copies are
    handed to the cleanup of their leader. This command itself deletes nothing. The exit status is 1
    if something is left that the ledger does not list; it is named.
    """
    from rlm.service.reconcile import reconcile_stores

    report = asyncio.run(
        reconcile_stores(*loaded(config), is_applied=yes, without=store_ids(without))
    )
    if as_json:
        show_json(_as_json(report))
    else:
        _show(report)
    return EXIT_LEFT_OUT if report.left_out else 0


def _show(report: "ReconcileReport") -> None:
    rows = [_row(one) for one in report.partitions if _is_worth_a_row(one)]
    objects = sum(one.objects for one in report.stores)
    click.echo(f"cluster {report.cluster_id}: {objects} objects in {len(report.stores)} stores")
    click.echo()
    columns = ("partition", "listed", "adopted", "registered", "too young", "left")
    show_table(columns, rows, "every object is listed in the ledger")
    for line in _remarks(report):
        click.echo(line)
    click.echo()
    click.echo(_RULE)
    click.echo()
    if report.written is None:
        click.echo("nothing was written: it is with --yes")
    else:
        done = report.written
        click.echo(f"{done.adopted} segments adopted, {done.registered} registered for cleanup")


def _is_worth_a_row(one: "PartitionReconcile") -> bool:
    return bool(one.found.added or one.registered or one.young or _left(one))


def _left(one: "PartitionReconcile") -> int:
    return len(one.found.broken) + len(one.contradicting) + len(one.unreplaced)


def _row(one: "PartitionReconcile") -> tuple[object, ...]:
    return (
        str(one.found.partition),
        one.found.known,
        len(one.found.added),
        len(one.registered),
        len(one.young),
        _left(one),
    )


def _remarks(report: "ReconcileReport") -> Iterator[str]:
    for one in report.partitions:
        yield from not_added(one.found)
        for segment in one.contradicting:
            yield (
                f"left: {one.found.partition}, offsets {segment.start_offset} to "
                f"{segment.end_offset}: another history than the one that the ledger shows"
            )
        yield from _leftover_lines(one.registered, "registered: no manifest")
        yield from _leftover_lines(one.young, "left: no manifest, and still young")
        yield from _leftover_lines(one.unreplaced, "left: no manifest, but perhaps the only copy")
    yield from unusable(report.stores)


def _leftover_lines(leftovers: Iterable["Leftover"], what: str) -> Iterator[str]:
    for one in leftovers:
        yield (
            f"{what}: {one.partition}, segment {one.segment_id} from offset {one.start_offset}, "
            f"{human_size(one.size_bytes)}"
        )


def _as_json(report: "ReconcileReport") -> dict[str, Any]:
    done = report.written
    return {
        "cluster_id": report.cluster_id,
        "adopted": None if done is None else done.adopted,
        "registered": None if done is None else done.registered,
        "left_out": report.left_out,
        "partitions": [_partition_json(one) for one in report.partitions],
        "stores": stores_json(report.stores),
    }


def _partition_json(one: "PartitionReconcile") -> dict[str, Any]:
    return {
        "topic": one.found.partition.topic,
        "topic_id": str(one.found.partition.topic_id),
        "partition": one.found.partition.partition,
        "listed": one.found.known,
        "refused": one.found.refused,
        "to_adopt": [segment_json(segment) for segment in one.found.added],
        "contradicting": [segment_json(segment) for segment in one.contradicting],
        "broken": [segment.broken for segment in one.found.broken],
        "to_register": [_leftover_json(leftover) for leftover in one.registered],
        "young": [_leftover_json(leftover) for leftover in one.young],
        "unreplaced": [_leftover_json(leftover) for leftover in one.unreplaced],
    }


def _leftover_json(one: "Leftover") -> dict[str, Any]:
    return {
        "segment_id": str(one.segment_id),
        "start_offset": one.start_offset,
        "size_bytes": one.size_bytes,
        "modified_ms": one.modified_ms,
    }
