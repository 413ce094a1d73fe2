"""`rlm topics` (enable, retention, disable, trim, list, ...) and `rlm purge`."""

import click

from kip405.errors import Invalid
from kip405.ids import Uuid
from kip405.segments import Layout
from kip405.topic_names import checked_name
from rlm.cli.output import (
    human_retention,
    human_size,
    human_time,
    human_wait,
    offset,
    plain,
    show_json,
    show_table,
    warn,
)
from rlm.cli.parameters import DURATION, SIZE, CommandGroup
from rlm.cli.partitions import decide, partition_option
from rlm.cli.retention_plans import planned, refuse, show_deletable
from rlm.cli.target import Connect, service_options
from rlm.cli.topic_patterns import enable_matching, is_pattern
from rlm.cli.topic_view import show_topic, state
from rlm.topics.emitted import FORMATS, emitted
from rlm.v1 import admin_pb2 as pb


@click.group(cls=CommandGroup)
def topics() -> None:
    """Enable, trim, disable, list and describe topics."""


@topics.command()
@click.argument("topic")
@click.option("--trim", is_flag=True, help="Mode tier: take retention over and trim.")
@click.option("--retention", type=DURATION, help="Total: 180d, 12h, 30m, 90s, ms, -1.")
@click.option("--retention-ms", type=DURATION, help="The same by Kafka's name.")
@click.option("--retention-bytes", type=SIZE, help="Total per partition: 2TiB, 10GB, bytes, -1.")
@click.option("--local-retention", type=DURATION, help="On the brokers; -2 = as total.")
@click.option("--local-retention-ms", type=DURATION, help="The same by Kafka's name.")
@click.option("--local-retention-bytes", type=SIZE, help="On the brokers; -2 = as total.")
@click.option(
    "--copy-lag",
    "--copy-lag-ms",
    "--offload-time",
    "copy_lag_ms",
    type=DURATION,
    help="Copy segments at this age; -1 = at local retention, -2 = as the service says.",
)
@click.option(
    "--copy-lag-bytes",
    "--offload-size",
    type=SIZE,
    help="Copy a segment when so much newer data follows it; -1 and -2 likewise.",
)
@click.option(
    "--deletion-lag",
    "--deletion-lag-ms",
    "deletion_lag_ms",
    type=DURATION,
    help="Brokers keep a segment so long after its copy; -2 = as the service says.",
)
@click.option(
    "--layout",
    type=click.Choice([str(one) for one in Layout]),
    help="How objects of new segments are written; else as the rules of the configuration say.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Go on despite readers below the bound and segments that cannot be copied.",
)
@click.option(
    "--keep-remote",
    is_flag=True,
    help="Keep what is remote of a topic that the settings do not know (any more).",
)
@click.option("--yes", is_flag=True, help="Go on although data becomes deletable.")
@click.option(
    "--emit",
    type=click.Choice(list(FORMATS)),
    help="Print what you set on the topic with retention.takeover=external; nothing is changed.",
)
@service_options
def enable(
    *,
    topic: str,
    trim: bool,
    retention: int | None,
    retention_ms: int | None,
    retention_bytes: int | None,
    local_retention: int | None,
    local_retention_ms: int | None,
    local_retention_bytes: int | None,
    copy_lag_ms: int | None,
    copy_lag_bytes: int | None,
    deletion_lag_ms: int | None,
    layout: str | None,
    force: bool,
    keep_remote: bool,
    yes: bool,
    emit: str | None,
    connect: Connect,
) -> int:
    """Enable TOPIC, or change its settings; with a pattern, all topics that match.

    A pattern is a regular expression that the whole name must match, such as 'logs-.*'. Internal
    topics never match. The topics are shown first; if there are several, --yes enables them.

    Without --trim the mode is copy: nothing in the cluster is altered. Without options the topic's
    present retention is taken over.

    What a shorter retention makes deletable is shown, and needs --yes. It is deleted after a delay,
    in which `rlm deletions undo` keeps it. Of a topic that the settings do not know, what is remote
    below the broker's log start is shown: --keep-remote keeps it, --yes ends it at once.

    A segment is copied as soon as it is closed, or at an age (--copy-lag), or when enough data
    follows it (--copy-lag-bytes); of both, what comes first.

    --layout applies to segments that are copied from now on; older ones stay as they are, and are
    read as before.

    Where the services leave the topics' configurations alone (retention.takeover=external), enable
    TOPIC first and then apply what --emit prints: nothing is trimmed before that.
    """
    if emit is not None:
        _emit(topic, emit, trim=trim)
        return 0
    request = pb.EnableTopicRequest(
        topic=topic,
        trim=trim,
        retention_ms=_one_of("--retention", retention, retention_ms),
        retention_bytes=retention_bytes,
        local_retention_ms=_one_of("--local-retention", local_retention, local_retention_ms),
        local_retention_bytes=local_retention_bytes,
        remote_copy_lag_ms=copy_lag_ms,
        remote_copy_lag_bytes=copy_lag_bytes,
        offload_deletion_lag_ms=deletion_lag_ms,
        layout=layout or "",
        force=force,
        keep_remote=keep_remote,
        yes=yes,
    )
    return enable_matching(request, connect) if is_pattern(topic) else _enable(request, connect)


def _enable(request: pb.EnableTopicRequest, connect: Connect) -> int:
    with connect.open() as target:
        plan = planned(request, target)
        if plan.deletable and not request.yes:
            refuse(plan, connect)
        answer = target.ask(target.admin.EnableTopic, request)
    _show_changed(answer, plan, connect)
    return 0


def _show_changed(topic: pb.TopicDescription, plan: pb.RetentionPlan, connect: Connect) -> None:
    if connect.as_json:
        show_json({**plain(topic), "deletable": plain(plan)["deletable"]})
        return
    show_deletable([plan])
    show_topic(topic, connect)


def _emit(topic: str, form: str, *, trim: bool) -> None:
    if not trim:
        raise Invalid("--emit goes with --trim: mode copy needs no change of the topic")
    click.echo(emitted(checked_name(topic), form), nl=False)


@topics.command(name="accept-retention")
@click.argument("topic")
@click.option("--yes", is_flag=True, help="Go on although data becomes deletable.")
@service_options
def accept_retention(*, topic: str, yes: bool, connect: Connect) -> None:
    """Make the retention that somebody has set on TOPIC at the brokers its total retention.

    That ends the alarm retention-reverted. The brokers' own retention is set back to -1, except
    with retention.takeover=external. What a shorter retention makes deletable is shown, and needs
    --yes. It is deleted after a delay, in which `rlm deletions undo` keeps it.
    """
    with connect.open() as target:

        def call(request: pb.AcceptRetentionRequest) -> pb.AcceptRetentionResponse:
            return target.ask(target.admin.AcceptRetention, request)

        plan = call(pb.AcceptRetentionRequest(topic=topic)).plan
        if plan.deletable and not yes:
            refuse(plan, connect)
        accepted = pb.AcceptRetentionRequest(
            topic=topic,
            retention_ms=plan.retention_ms,
            retention_bytes=plan.retention_bytes,
            yes=yes,
        )
        _show_changed(call(accepted).topic, plan, connect)


@topics.command()
@click.argument("topic")
@click.option("--dry-run", is_flag=True, required=True, help="Show it; nothing is changed.")
@service_options
def retention(*, topic: str, dry_run: bool, connect: Connect) -> None:
    """Show what total retention would delete of TOPIC now, and why nothing more."""
    with connect.open() as target:
        answer = target.ask(target.admin.PlanExpiry, pb.PlanExpiryRequest(topic=topic))
    if connect.as_json:
        show_json(plain(answer))
        return
    show_table(
        ("partition", "start", "new start", "segments", "bytes", "oldest", "newest", "remark"),
        [
            (
                f"{row.topic}-{row.partition}",
                offset(row.remote_log_start_offset),
                offset(row.new_remote_log_start_offset),
                row.segments,
                human_size(row.size_bytes),
                _time(row, "oldest_timestamp_ms"),
                _time(row, "newest_timestamp_ms"),
                f"not planned: {row.problem}" if row.problem else row.reason,
            )
            for row in answer.partitions
        ],
        "no partition",
    )


def _time(row: pb.ExpiryPlan, name: str) -> str:
    return human_time(getattr(row, name)) if row.HasField(name) else "-"


@topics.command()
@click.argument("topic")
@click.option(
    "--confirm",
    is_flag=True,
    help="Disable it although no broker has some of the offsets any more.",
)
@click.option("--delete", "delete_remote", is_flag=True, help="Delete the remote data.")
@click.option("--yes", is_flag=True, help="With --delete, which only shows it otherwise.")
@service_options
def disable(*, topic: str, confirm: bool, delete_remote: bool, yes: bool, connect: Connect) -> None:
    """Stop copying and trimming TOPIC; the broker's retention is given back.

    Remote data is kept. With --delete --yes it is deleted after remote.delete.delay.ms; until then
    `rlm topics disable TOPIC` keeps it.
    """
    if yes and not delete_remote:
        raise Invalid("--yes goes with --delete")
    request = pb.DisableTopicRequest(
        topic=topic, confirm=yes if delete_remote else confirm, delete_remote=delete_remote
    )
    with connect.open() as target:
        answer = target.ask(target.admin.DisableTopic, request)
    show_topic(answer, connect)


@topics.command()
@click.argument("topic")
@click.argument("switch", type=click.Choice(["on", "off"]))
@click.option("--giveback", is_flag=True, help="With off: the broker's own retention acts again.")
@click.option(
    "--force",
    is_flag=True,
    help="Go on despite readers below the bound and segments that cannot be copied.",
)
@service_options
def trim(*, topic: str, switch: str, giveback: bool, force: bool, connect: Connect) -> None:
    """Trim TOPIC's local log (on), or let it grow (off)."""
    request = pb.SetTrimRequest(topic=topic, on=switch == "on", giveback=giveback, force=force)
    with connect.open() as target:
        answer = target.ask(target.admin.SetTrim, request)
    if connect.as_json:
        show_json(plain(answer))
        return
    show_topic(answer.topic, connect)
    warn(answer.warnings)


@topics.command(name="list")
@service_options
def list_topics(*, connect: Connect) -> None:
    """List the topics that were enabled."""
    with connect.open() as target:
        answer = target.ask(target.admin.ListTopics, pb.ListTopicsRequest())
    if connect.as_json:
        show_json(plain(answer))
        return
    show_table(
        ("topic", "mode", "state", "trim", "retention", "local", "partitions", "segments", "size"),
        [
            (
                f"{row.topic} (id {Uuid(row.topic_id)})" if row.gone else row.topic,
                row.mode,
                state(row),
                "on" if row.trim else "off",
                human_retention(row.retention_ms, row.retention_bytes),
                human_retention(row.local_retention_ms, row.local_retention_bytes),
                row.partitions,
                row.remote_segments,
                human_size(row.remote_size_bytes),
            )
            for row in answer.topics
        ],
        "no topic is enabled",
    )
    warn(list(dict.fromkeys(text for row in answer.topics for text in row.warnings)))


@topics.command()
@click.argument("topic")
@service_options
def describe(*, topic: str, connect: Connect) -> None:
    """Show the settings of TOPIC."""
    with connect.open() as target:
        answer = target.ask(target.admin.DescribeTopic, pb.DescribeTopicRequest(topic=topic))
    show_topic(answer, connect)


@topics.command(name="adopt-log-start")
@click.argument("topic")
@partition_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@service_options
def adopt_log_start(*, topic: str, partition: int, yes: bool, connect: Connect) -> None:
    """Raise the remote log start to the broker's: records below it are given up for good (H1).

    Where the settings have lost the remote log start, it is set where the remote segments begin
    instead, and nothing is given up. If the ledger has lost these, too, rebuild it first.
    """
    request = pb.PartitionRequest(topic=topic, partition=partition)
    what = "below the broker's log start ends for good, unless the remote log start is missing"
    decide(request, lambda target: target.admin.AdoptLogStart, what, connect, yes=yes)


@click.command()
@click.argument("topics", nargs=-1)
@click.option("--confirm", is_flag=True, help="Delete it; without this option it is only shown.")
@service_options
def purge(*, topics: tuple[str, ...], confirm: bool, connect: Connect) -> None:
    """List deleted topics with remote data, and delete that of TOPICS (names or ids).

    The service deletes the remote data of a deleted topic by itself. With --confirm it does so too
    where several topics seem to be deleted at once, and where the remote data was kept.
    """
    request = pb.PurgeRequest(topics=topics, confirm=confirm)
    with connect.open() as target:
        answer = target.ask(target.admin.Purge, request)
    if connect.as_json:
        show_json(plain(answer))
        return
    show_table(
        (
            "topic",
            "id",
            "state",
            "segments",
            "records",
            "size",
            "oldest (UTC)",
            "newest (UTC)",
            "deleted in",
            "waits for",
        ),
        [
            (
                row.topic,
                str(Uuid(row.topic_id)),
                row.state,
                row.segments,
                row.records,
                human_size(row.size_bytes),
                human_time(row.oldest_ms),
                human_time(row.newest_ms),
                human_wait(row.due_in_ms) if row.HasField("due_in_ms") else "not decided",
                row.waits,
            )
            for row in answer.topics
        ],
        "no topic is known to be deleted",
    )


def _one_of(name: str, short: int | None, long: int | None) -> int | None:
    if short is not None and long is not None and short != long:
        raise Invalid(f"{name} and {name}-ms are the same setting: give one")
    return long if short is None else short
