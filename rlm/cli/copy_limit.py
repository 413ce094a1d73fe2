"""`rlm copy-limit` shows and changes how many bytes a second services copy."""

import click

from kip405.errors import Invalid
from rlm.cli.output import human_rate, human_time, plain, show_json, show_table
from rlm.cli.parameters import NODE_ID, SIZE
from rlm.cli.target import Connect, service_options
from rlm.v1 import admin_pb2 as pb


@click.command("copy-limit")
@click.argument("limit", required=False, type=SIZE, metavar="[BYTES]")
@click.option("--node", "node_id", type=NODE_ID, help="Only the service of this node.")
@click.option("--default", "remove", is_flag=True, help="Let what is configured count again.")
@service_options
def copy_limit(*, limit: int | None, node_id: int | None, remove: bool, connect: Connect) -> None:
    """Show how many bytes a second each service may copy, or change it without a restart.

    BYTES a second (64MiB, 1GiB) overrule remote.log.manager.copy.max.bytes.per.second of every
    service, until --default. What was decided with --node counts before what was decided for all.
    Copies that wait already go by the new limit within a second. Services that are down go by it
    when they are back.
    """
    if remove and limit is not None:
        raise Invalid("--default: ends a limit, so it goes with no BYTES")
    if node_id is not None and not remove and limit is None:
        raise Invalid("--node: goes with BYTES or --default")
    with connect.open() as target:
        if remove or limit is not None:
            request = pb.SetCopyLimitRequest(node_id=node_id, bytes_per_second=limit)
            answer = target.ask(target.admin.SetCopyLimit, request)
        else:
            answer = target.ask(target.admin.ListCopyLimits, pb.ListCopyLimitsRequest())
    if connect.as_json:
        show_json(plain(answer))
    else:
        _show(answer)


def _show(answer: pb.ListCopyLimitsResponse) -> None:
    show_table(
        ("service", "in effect", "configured", "overruled for", "by", "since (UTC)"),
        [_row(one) for one in answer.nodes],
        "no service is known",
    )


def _row(row: pb.NodeCopyLimit) -> tuple[object, ...]:
    if row.problem:
        return row.node_id, f"unknown: {row.problem}", "unknown", "-", "-", "-"
    limits = human_rate(row.bytes_per_second), human_rate(row.configured_bytes_per_second)
    if not row.HasField("overruled"):
        return row.node_id, *limits, "-", "-", "-"
    made = row.overruled
    whom = "this node" if made.HasField("node_id") else "all"
    return row.node_id, *limits, whom, made.by, human_time(made.decided_ms)
