"""`rlm explain` says in sentences where an offset is, who gets it, and what happens next."""

import click

from rlm.cli.output import plain, show_json
from rlm.cli.partitions import partition_option
from rlm.cli.target import Connect, service_options
from rlm.v1 import admin_pb2 as pb


@click.command()
@click.argument("topic")
@partition_option
@click.argument("offset", required=False, type=click.IntRange(min=0))
@service_options
def explain(*, topic: str, partition: int, offset: int | None, connect: Connect) -> None:
    """Explain where OFFSET of a partition of TOPIC is, or where all of the partition is.

    It says in which tier and segment it is, whether Kafka clients get it through the proxy, why its
    segment is not copied yet, and why the local log is not trimmed further. Nothing is changed.
    """
    request = pb.ExplainPartitionRequest(topic=topic, partition=partition, offset=offset)
    with connect.open() as target:
        answer = target.ask(target.admin.ExplainPartition, request)
    if connect.as_json:
        show_json(plain(answer))
        return
    for sentence in answer.sentences:
        click.echo(sentence)
