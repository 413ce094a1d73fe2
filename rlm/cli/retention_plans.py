"""What a retention makes deletable, asked for and shown before a topic is enabled with it."""

from collections.abc import Iterable
from typing import NoReturn

import grpc

from kip405.errors import Fenced
from rlm.cli.output import human_size, human_time, plain, show_json, show_table
from rlm.cli.target import Connect, Target, is_unknown_call
from rlm.v1 import admin_pb2 as pb


def planned(request: pb.EnableTopicRequest, target: Target) -> pb.RetentionPlan:
    """What becomes deletable; nothing at a service of a version that deletes nothing by
    retention.
    """
    try:
        return target.ask(target.admin.PlanRetention, request)
    except grpc.RpcError as error:
        if is_unknown_call(error):
            return pb.RetentionPlan(topic=request.topic)
        raise


def refuse(plan: pb.RetentionPlan, connect: Connect) -> NoReturn:
    """Show what would become deletable, and that nothing was changed."""
    if connect.as_json:
        show_json({"applied": False, **plain(plan)})
    else:
        show_deletable([plan])
    raise Fenced(
        f"nothing was changed: this retention makes records of {plan.topic} deletable; --yes "
        f"confirms it, and `rlm deletions undo {plan.topic}` keeps them for a while"
    )


def show_deletable(plans: Iterable[pb.RetentionPlan]) -> None:
    """A table of what becomes deletable; nothing without any."""
    rows = [
        (
            f"{plan.topic}-{row.partition}",
            row.end_offset - row.start_offset,
            row.start_offset,
            row.end_offset,
            human_size(row.size_bytes),
            human_time(row.oldest_ms),
            human_time(row.newest_ms),
        )
        for plan in plans
        for row in plan.deletable
    ]
    if rows:
        show_table(
            ("deletable", "records", "from", "up to", "size", "oldest (UTC)", "newest (UTC)"),
            rows,
            "",
        )
