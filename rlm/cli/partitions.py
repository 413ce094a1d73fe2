"""`rlm segments`, `rlm partition`, `rlm freeze` and `rlm unfreeze`."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click
import grpc

from kip405.ids import Uuid
from kip405.segments import layout_note
from rlm.cli.output import (
    human_ms,
    human_size,
    human_time,
    offset,
    plain,
    show_json,
    show_pairs,
    show_table,
    warn,
)
from rlm.cli.parameters import STORE_ID, CommandGroup
from rlm.cli.target import Connect, Target, service_options
from rlm.v1 import admin_pb2, fetch_pb2

F = TypeVar("F", bound=Callable[..., Any])
if TYPE_CHECKING:
    _Decision = grpc.UnaryUnaryMultiCallable[
        admin_pb2.PartitionRequest, fetch_pb2.PartitionDescription
    ]


def partition_option(command: F) -> F:
    """`-p`, required."""
    return click.option(
        "-p",
        "--partition",
        required=True,
        type=click.IntRange(min=0),
        help="Number of the partition.",
    )(command)


def _state(row: fetch_pb2.Segment) -> str:
    """The state of a segment, with its layout where that is not `kafka`."""
    notes = ["disputed" if row.disputed else "", layout_note(row.custom_metadata)]
    return " ".join([row.state, *(f"({note})" for note in notes if note)])


@click.command()
@click.argument("topic")
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Only this partition.")
@click.option("--all", "all_states", is_flag=True, help="Also segments that are not finished.")
@service_options
def segments(*, topic: str, partition: int | None, all_states: bool, connect: Connect) -> None:
    """List the remote segments of TOPIC."""
    request = fetch_pb2.ListSegmentsRequest(
        topic=fetch_pb2.TopicRef(name=topic), partition=partition, all_states=all_states
    )
    with connect.open() as target:
        with target.stream(target.fetch.ListSegments, request, timeout_s=target.timeout_s) as found:
            rows = list(found)
        warnings = _warnings(topic, target)
    if connect.as_json:
        show_json({"segments": [plain(row) for row in rows]})
        warn(warnings)
        return
    show_table(
        ("partition", "start", "next", "size", "newest record", "state", "epochs", "segment id"),
        [
            (
                row.partition,
                row.start_offset,
                row.next_offset,
                human_size(row.size_bytes),
                human_time(row.max_timestamp_ms),
                _state(row),
                " ".join(f"{one.epoch}@{one.start_offset}" for one in row.leader_epochs),
                plain(row)["segment_id"],
            )
            for row in rows
        ],
        f"{topic} has no remote segment yet",
    )
    warn(warnings)


def _warnings(topic: str, target: Target) -> Sequence[str]:
    """Warnings about the topic of the segments: it is deleted, or was recreated (H39)."""
    request = admin_pb2.DescribeTopicRequest(topic=topic)
    with suppress(grpc.RpcError):  # a reader service does not know this
        answer = target.ask(target.admin.DescribeTopic, request)
        return tuple(answer.warnings)
    return ()


def decide(
    request: admin_pb2.PartitionRequest,
    call: "Callable[[Target], _Decision]",
    what: str,
    connect: Connect,
    *,
    yes: bool,
) -> None:
    """Ask first, unless `yes`, whether this may happen to remote data; decide it, and show the
    partition.
    """
    name = f"{request.topic}-{request.partition}"
    if not yes and not click.confirm(f"Remote data of {name} {what}. Go on?", err=True):
        raise SystemExit(1)
    with connect.open() as target:
        answer = target.ask(call(target), request)
    show_partition(answer, connect)


@click.group(cls=CommandGroup)
def partition() -> None:
    """Decide what only an operator can: frozen partitions (H4) and lost records (H15)."""


@partition.command()
@click.argument("topic")
@partition_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@service_options
def adopt(*, topic: str, partition: int, yes: bool, connect: Connect) -> None:
    """Accept the leader's log of a frozen partition of TOPIC as the valid one."""
    request = admin_pb2.PartitionRequest(topic=topic, partition=partition)
    what = "outside the leader's log is not read any more"
    decide(request, lambda target: target.admin.AdoptPartition, what, connect, yes=yes)


@partition.command()
@click.argument("topic")
@partition_option
@click.option("--yes", is_flag=True, help="Give it up; without this option it is only shown.")
@service_options
def discard(*, topic: str, partition: int, yes: bool, connect: Connect) -> None:
    """Give up all that is remote of a frozen partition of TOPIC.

    After remote.delete.delay.ms it is deleted, and the partition goes on from the leader's log
    alone, whose offsets may begin at 0 again. Until then `rlm deletions undo` keeps it.
    """
    request = admin_pb2.DiscardPartitionRequest(topic=topic, partition=partition, confirm=yes)
    with connect.open() as target:
        answer = target.ask(target.admin.DiscardPartition, request)
    if connect.as_json:
        show_json({"applied": yes, **plain(answer)})
        return
    show_pairs(
        [
            ("partition", f"{topic}-{partition}"),
            ("frozen", answer.frozen),
            ("given up", f"{answer.records} records, {human_size(answer.size_bytes)}"),
            ("in segments", str(answer.segments)),
            ("oldest, newest (UTC)", _times(answer)),
            ("of the leader's own history", _own(answer)),
            (
                "what stays",
                f"the leader's log: {answer.local_log_start_offset} to "
                f"{answer.local_log_end_offset}",
            ),
        ]
    )
    delay, undo = human_ms(answer.delay_ms), f"`rlm deletions undo {topic} -p {partition}`"
    click.echo(
        f"It is deleted in {delay}; {undo} keeps it until then."
        if yes
        else f"Nothing was changed: --yes gives it up, and deletes it after {delay}."
    )


def _own(plan: admin_pb2.DiscardPlan) -> str:
    return (
        f"{plan.own_segments} segments, {human_size(plan.own_size_bytes)}; "
        f"{plan.own_only_remote_records} records of it are in no tier then"
    )


def _times(plan: admin_pb2.DiscardPlan) -> str:
    return f"{human_time(plan.oldest_ms)}, {human_time(plan.newest_ms)}"


@partition.command("accept-loss")
@click.argument("topic")
@partition_option
@click.option(
    "--without-store",
    "without",
    multiple=True,
    type=STORE_ID,
    help="A store that was used once and is gone for good. Repeatable.",
)
@click.option("--yes", is_flag=True, help="Accept the loss; without this option it is only shown.")
@service_options
def accept_loss(
    *, topic: str, partition: int, without: tuple[Uuid, ...], yes: bool, connect: Connect
) -> None:
    """Let readers of TOPIC skip records that no store and no broker has any more.

    Of offsets that the ledger does not list at all, every store that was ever used must show that
    it has no copy.
    """
    request = admin_pb2.AcceptLossRequest(
        topic=topic,
        partition=partition,
        apply=yes,
        without_store_ids=[one.raw for one in without],
    )
    with connect.open() as target:
        answer = target.ask(target.admin.AcceptLoss, request)
    if connect.as_json:
        show_json({"applied": yes, **plain(answer)})
        return
    show_table(
        ("partition", "lost from", "up to", "segments", "their size", "why"),
        [
            (
                f"{topic}-{partition}",
                row.start_offset,
                row.end_offset,
                row.segments,
                human_size(row.size_bytes),
                row.why,
            )
            for row in answer.ranges
        ],
        "nothing is lost",
    )
    click.echo(
        "Kafka clients go on behind it as over a compaction gap, without an error; the fetch API "
        "reports it as missing, and Spark counts it by failOnDataLoss."
    )
    click.echo("It is on record now." if yes else "Nothing was changed: --yes accepts it.")


def show_partition(row: fetch_pb2.PartitionDescription, connect: Connect) -> None:
    """Show all of one partition."""
    if connect.as_json:
        show_json(plain(row))
        return
    show_pairs(
        [
            ("partition", f"{row.topic}-{row.partition}"),
            ("leader", f"{row.leader} (epoch {row.leader_epoch})"),
            (
                "remote",
                f"{offset(row.remote_log_start_offset)} to {offset(row.remote_next_offset)}",
            ),
            ("local", f"{offset(row.local_log_start_offset)} to {offset(row.log_end_offset)}"),
            ("last stable offset", offset(row.last_stable_offset)),
            ("high watermark", offset(row.high_watermark)),
            ("frozen", row.frozen or "no"),
            *(("alarm", text) for text in row.alarms),
        ]
    )


@click.command()
@click.argument("topic", required=False, default="")
@click.option("--why", default="", help="Shown by `rlm status`.")
@service_options
def freeze(*, topic: str, why: str, connect: Connect) -> None:
    """Stop trim, deletes and sweeps of TOPIC (name or id), or of everything, on every service.

    A freeze is durable. It works without a leader and while the store is down.
    """
    with connect.open() as target:
        answer = target.ask(target.admin.Freeze, admin_pb2.FreezeRequest(topic=topic, why=why))
    _show(answer, connect)


@click.command()
@click.argument("topic", required=False, default="")
@service_options
def unfreeze(*, topic: str, connect: Connect) -> None:
    """End the freeze of TOPIC, or of everything."""
    with connect.open() as target:
        answer = target.ask(target.admin.Unfreeze, admin_pb2.FreezeRequest(topic=topic))
    _show(answer, connect)


def _show(answer: admin_pb2.FreezeResponse, connect: Connect) -> None:
    if connect.as_json:
        show_json(plain(answer))
        return
    show_table(
        ("frozen", "stopped", "by", "since (UTC)", "why"),
        [
            (row.topic or "everything", row.stopped, row.by, human_time(row.since_ms), row.why)
            for row in answer.freezes
        ],
        "nothing is frozen",
    )
