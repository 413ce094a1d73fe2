"""`rlm clients` shows who reads through the proxies, and who reads a topic past them."""

from collections.abc import Sequence

import click

from rlm.cli.output import human_size, plain, show_json, show_table
from rlm.cli.target import Connect, service_options
from rlm.v1 import admin_pb2 as pb

_MOST_POSITIONS = 3


@click.command()
@click.argument("topic", required=False, default="")
@service_options
def clients(*, topic: str, connect: Connect) -> None:
    """Show the Kafka clients of all proxies: who they are, and what each tier gave them.

    Bytes count since each service began. With TOPIC only clients that have read it are shown, and
    the groups beside them that have committed offsets of it although no proxy has seen them: they
    read past the proxies, where trimmed records are not found. Share groups hold the trim at their
    start offsets.
    """
    with connect.open() as target:
        answer = target.ask(target.admin.ListClients, pb.ListClientsRequest(topic=topic))
    if connect.as_json:
        show_json(plain(answer))
    else:
        _show(answer, topic)


def _show(answer: pb.ListClientsResponse, topic: str) -> None:
    show_table(
        (
            *("principal", "client id", "address", "software", "groups"),
            *("connections", "remote", "local", "throttled"),
        ),
        [_row(one) for one in answer.clients],
        f"no client has read {topic} through a proxy" if topic else "no client is known",
    )
    for one in answer.problems:
        click.echo(f"unknown: the clients at broker {one.node_id}: {one.problem}")
    if topic:
        _show_direct(answer)


def _row(row: pb.KafkaClient) -> tuple[object, ...]:
    return (
        row.principal or "-",
        row.client_id or "-",
        row.address or "-",
        ", ".join(row.software) or "-",
        ", ".join(row.groups) or "-",
        row.connections,
        human_size(sum(one.remote_bytes for one in row.topics)),
        human_size(sum(one.local_bytes for one in row.topics)),
        f"{row.throttled_ms / 1000:g} s" if row.throttled_ms else "-",
    )


def _show_direct(answer: pb.ListClientsResponse) -> None:
    if answer.direct_problem:
        click.echo(f"unknown: groups past the proxies: {answer.direct_problem}")
        return
    certain = "" if not answer.problems else " that answered"
    show_table(
        ("group", "committed"),
        [(one.group, _positions(one.positions)) for one in answer.direct_groups],
        f"no group has offsets that the proxies{certain} have not seen",
    )
    if answer.share_starts:
        click.echo(f"share groups hold the trim at {_positions(answer.share_starts)}")


def _positions(rows: Sequence[pb.GroupPosition]) -> str:
    shown = [f"{one.partition}:{one.offset}" for one in rows[:_MOST_POSITIONS]]
    more = len(rows) - _MOST_POSITIONS
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
