"""`rlm deletions`: list and undo decisions that will delete data."""

from collections.abc import Iterable

import click

from rlm.cli.output import (
    due_in,
    human_retention,
    human_size,
    human_time,
    plain,
    show_json,
    show_table,
)
from rlm.cli.parameters import CommandGroup
from rlm.cli.target import Connect, service_options
from rlm.cli.topic_view import show_topic
from rlm.v1 import admin_pb2 as pb


@click.group(cls=CommandGroup)
def deletions() -> None:
    """List and undo decisions that will delete data."""


@deletions.command(name="list")
@service_options
def list_deletions(*, connect: Connect) -> None:
    """List what was decided, deletes data soon, and can still be undone; and deleted topics."""
    with connect.open() as target:
        answer = target.ask(target.admin.ListDeletions, pb.ListDeletionsRequest())
    if connect.as_json:
        show_json(plain(answer))
        return
    show_deletions(answer.deletions, "no deletion is pending")


@deletions.command()
@click.argument("topic")
@click.option(
    "-p", "--partition", type=click.IntRange(min=0), help="Undo the discard of this partition."
)
@service_options
def undo(*, topic: str, partition: int | None, connect: Connect) -> None:
    """Keep the data of TOPIC: the retention that is in force becomes its retention.

    Of a topic (name or id) that was disabled with --delete, or is deleted, the remote data is kept,
    until its deletion has begun. With -p it is the remote part of that partition that is kept (`rlm
    partition discard`); the partition stays frozen.
    """
    request = pb.UndoDeletionRequest(topic=topic, partition=partition)
    with connect.open() as target:
        answer = target.ask(target.admin.UndoDeletion, request)
    show_topic(answer, connect)


def show_deletions(rows: Iterable[pb.PendingDeletion], empty: str) -> None:
    """A table of what is pending, or the words for nothing."""
    show_table(
        (
            "topic",
            "kind",
            "retention",
            "in force until then",
            "due in",
            "decided (UTC)",
            "by",
            "records",
            "size",
            "waits for",
        ),
        [
            (
                _subject(row),
                row.kind,
                *_limits(row),
                due_in(row),
                human_time(row.decided_ms),
                row.by or "-",
                row.records if row.HasField("records") else "-",
                human_size(row.size_bytes) if row.HasField("size_bytes") else "-",
                row.waits or "-",
            )
            for row in rows
        ],
        empty,
    )


def _subject(row: pb.PendingDeletion) -> str:
    return f"{row.topic}-{row.partition}" if row.HasField("partition") else row.topic


def _limits(row: pb.PendingDeletion) -> tuple[str, str]:
    if row.HasField("partition") or row.kind.startswith("topic-"):
        return "-", "-"
    return (
        human_retention(row.retention_ms, row.retention_bytes),
        human_retention(row.retention_in_force_ms, row.retention_in_force_bytes),
    )
