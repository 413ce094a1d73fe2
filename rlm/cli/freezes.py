"""`rlm freeze` and `rlm unfreeze`."""

import click

from rlm.cli.output import human_time, plain, show_json, show_table
from rlm.cli.target import Connect, service_options
from rlm.v1 import admin_pb2 as pb


@click.command()
@click.argument("topic", required=False, default="")
@click.option("--why", default="", help="Shown by `rlm status`.")
@service_options
def freeze(*, topic: str, why: str, connect: Connect) -> None:
    """Stop trim, deletes and sweeps of TOPIC, or of everything, on every service.

    Durable; works without a leader and while the store is down.
    """
    with connect.open() as target:
        answer = target.admin.Freeze(
            pb.FreezeRequest(topic=topic, why=why),
            metadata=target.metadata,
            timeout=target.timeout_s,
        )
    _show(answer, connect)


@click.command()
@click.argument("topic", required=False, default="")
@service_options
def unfreeze(*, topic: str, connect: Connect) -> None:
    """End the freeze of TOPIC, or of everything."""
    with connect.open() as target:
        answer = target.admin.Unfreeze(
            pb.FreezeRequest(topic=topic), metadata=target.metadata, timeout=target.timeout_s
        )
    _show(answer, connect)


def _show(answer: pb.FreezeResponse, connect: Connect) -> None:
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
