"""`rlm config check`: all errors of a file of settings at once, and what broker and stores say.

`rlm config reload` has a running service read its settings again.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import grpc

from kip405.errors import Invalid
from rlm.cli.main import EXIT_FAILED
from rlm.cli.output import plain, show_json
from rlm.cli.parameters import CommandGroup
from rlm.cli.target import Connect, is_unknown_call, service_options

if TYPE_CHECKING:
    from rlm.config.check import Finding
    from rlm.config.common import CommonConfig
    from rlm.stores.reports import StoreReport


@click.group(cls=CommandGroup)
def config() -> None:
    """Check the settings of `rlm serve`, or have a service read them again."""


@config.command()
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--role",
    default="broker",
    show_default=True,
    type=click.Choice(["broker", "reader"]),
    help="As of `rlm serve`.",
)
@click.option("--online", is_flag=True, help="Also ask the brokers and the stores.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(*, path: Path, role: str, online: bool, as_json: bool) -> int:
    """Read FILE, and the environment, as `rlm serve` would, and print every error at once.

    FILE may be a directory with a file for each cluster. What variables and the environment
    provider give has a line each. Who may read files with secrets has one, too. Run it as the
    service's user. Without --online nothing is asked but this machine's files. With --online
    plugins of stores are started and stopped again; nothing is written. The exit status is 1 if
    there is an error.
    """
    from rlm.config.check import ERROR, check_file

    checked = check_file(path, role)
    found = list(checked.findings)
    if online and checked.config is not None:
        found += asyncio.run(_asked(checked.config))
    failed = any(one.level == ERROR for one in found)
    if as_json:
        show_json(
            {
                "usable": not failed,
                "findings": [{"level": one.level, "text": one.text} for one in found],
            }
        )
    else:
        _show(found, failed=failed, path=path, asks_later=checked.config is None and online)
    return EXIT_FAILED if failed else 0


@config.command()
@service_options
def reload(*, connect: Connect) -> int:
    """Have the asked service read its file and its environment again.

    What changes while a service runs is in force then; docs/reference/settings.md says which
    settings do. Of the others that were changed the names are printed: they wait for a restart.
    If anything is wrong, nothing is changed, and the exit status is 2. A reader has no such call:
    send it SIGHUP, which does the same and says it in the log.
    """
    from rlm.v1 import admin_pb2 as pb

    with connect.open() as target:
        try:
            answer = target.ask(target.admin.ReloadConfig, pb.ReloadConfigRequest())
        except grpc.RpcError as error:
            if is_unknown_call(error):
                raise Invalid(
                    f"service at {target.address} does not have this call: it is a reader; send "
                    "SIGHUP to its process, which does the same and says it in the log"
                ) from error
            raise
    if connect.as_json:
        show_json(plain(answer))
        return 0
    for one in answer.applied:
        click.echo(f"{one.key}: {one.before} -> {one.after}")
    for key in answer.needs_restart:
        click.echo(f"{key}: changed, and waits for a restart of the service")
    if not answer.applied and not answer.needs_restart:
        click.echo("no setting has changed")
    return 0


def _show(found: "list[Finding]", *, failed: bool, path: Path, asks_later: bool) -> None:
    for one in found:
        click.echo(f"{one.level:<8} {one.text}")
    if asks_later:
        click.echo("brokers and stores were not asked: the settings cannot be used yet")
    if not failed:
        click.echo(f"{path}: a service can use these settings")


async def _asked(config: "CommonConfig") -> "list[Finding]":
    """What the brokers and the stores say, both asked at once."""
    brokers, stores = await asyncio.gather(_ask_brokers(config), _ask_stores(config))
    return [*brokers, *stores]


async def _ask_brokers(config: "CommonConfig") -> "list[Finding]":
    from kafka_clients.channel_security import ChannelSecurity
    from kip405.errors import RemoteStorageError
    from rlm.broker.own_broker import AnyBroker
    from rlm.config.check import ERROR, NOTE, Finding

    addresses = config.kafka_bootstrap_servers
    what = f"kafka.bootstrap.servers: {', '.join(map(str, addresses))}"
    security = ChannelSecurity(config.kafka_security())
    brokers = AnyBroker(addresses, client_id=config.principal, security=security)
    try:
        found = await brokers.describe_cluster()
    except RemoteStorageError as error:
        return [Finding(level=ERROR, text=f"{what}: {error}")]
    finally:
        await brokers.close()
    ids = ", ".join(str(node.node_id) for node in found.nodes)
    answered = Finding(level=NOTE, text=f"{what}: cluster {found.cluster_id}, brokers {ids}")
    if found.cluster_id != config.cluster_id:
        other = f"cluster.id: is {config.cluster_id}, and the brokers are of {found.cluster_id}"
        return [answered, Finding(level=ERROR, text=other)]
    return [answered]


async def _ask_stores(config: "CommonConfig") -> "list[Finding]":
    from rlm.clock import SystemClock
    from rlm.stores.inspection import inspect_configured

    reports = await inspect_configured(config, SystemClock())
    return [one for report in reports for one in _of_store(report)]


def _of_store(report: "StoreReport") -> "Iterator[Finding]":
    from rlm.config.check import ERROR, NOTE, WARNING, Finding

    what = f"store {report.name}"
    if report.problem:
        yield Finding(level=ERROR, text=f"{what}: {report.problem}")
        return
    yield Finding(level=NOTE, text=f"{what}: {report.uri} answers")
    for text in report.alarms:
        yield Finding(level=WARNING, text=f"{what}: {text}")
