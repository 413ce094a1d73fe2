"""`rlm doctor`: finds what endangers the data, before it does."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from kip405.errors import Invalid
from rlm.cli.output import plain, show_json
from rlm.cli.target import Connect, service_options
from rlm.v1 import admin_pb2 as pb


@click.command()
@click.option("--store", "store", is_flag=True, help="Inspect the stores.")
@click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path),
    help="Ask the stores of this service's YAML file directly, where no service runs.",
)
@service_options
def doctor(*, store: bool, config: Path | None, connect: Connect) -> int:
    """Judge lifecycle rules, versioning and locks of every store by the topics it holds.

    Asks a service, which needs no credentials here. Status 1 where there is an alarm, or a store
    that does not answer. With --config no topic's retention is known: any rule that removes
    objects is an alarm.
    """
    if not store:
        raise Invalid("what to look at? give --store")
    answer = _of_config(config) if config is not None else _of_service(connect)
    if connect.as_json:
        show_json(plain(answer))
    else:
        _show(answer.stores)
    return int(any(row.problem or _alarms(row) for row in answer.stores))


def _of_service(connect: Connect) -> pb.InspectStoresResponse:
    with connect.open() as target:
        return target.admin.InspectStores(
            pb.InspectStoresRequest(), metadata=target.metadata, timeout=target.timeout_s
        )


def _of_config(path: Path) -> pb.InspectStoresResponse:
    from rlm.api.messages import report_message
    from rlm.clock import SystemClock
    from rlm.config import load
    from rlm.stores.inspection import inspect_configured

    reports = asyncio.run(inspect_configured(load(path), SystemClock()))
    return pb.InspectStoresResponse(stores=[report_message(report) for report in reports])


def _show(stores: Sequence[pb.StoreReport]) -> None:
    if not stores:
        click.echo("no store is configured: nothing is tiered")
    for number, row in enumerate(stores):
        if number:
            click.echo()
        click.echo(f"store {row.name}  {row.uri}".rstrip())
        if row.problem:
            click.echo(f"  NOT ASKED  {row.problem}")
        for verdict in row.verdicts:
            level = verdict.level.upper() if verdict.level == "alarm" else verdict.level
            click.echo(f"  {level:<9}  {verdict.text}")


def _alarms(row: pb.StoreReport) -> list[str]:
    return [verdict.text for verdict in row.verdicts if verdict.level == "alarm"]
