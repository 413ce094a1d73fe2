"""`rlm sandbox`: a real Kafka with the service beside it, for tests, the demo and first steps.

A thin layer over `rlm_sandbox`: options in, one JSON document or table out.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.table import Column, Table

from rlm_sandbox.document import without_passwords
from rlm_sandbox.sandbox import Sandbox, take_down
from rlm_sandbox.spec import (
    KAFKA_VERSION,
    PLAINTEXT,
    SECURITY,
    Override,
    SandboxError,
    SandboxSpec,
)

_DIR = click.option(
    "--dir",
    "root",
    required=True,
    envvar="RLM_SANDBOX",
    type=click.Path(path_type=Path),
    help="The sandbox's directory (or RLM_SANDBOX).",
)
_TARGET_HELP = (
    "TARGET is broker:N, rlm:N, plugin:N, reader:N, controller (with three brokers) or zookeeper, "
    "store (all of it), or one of its servers: store:s3, store:namenode, store:datanode."
)


_PIPE_WIDTH = 1_000
"""What reads a pipe needs paths in one piece."""


class _Group(click.Group):
    """Shows a SandboxError as one line, with status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SandboxError as error:
            _fail(str(error))


@click.group(cls=_Group)
def sandbox() -> None:
    """A real Kafka with the service beside it, on this machine."""


@sandbox.command(short_help="Start everything and wait until it is healthy.")
@_DIR
@click.option("--brokers", type=int, default=1, show_default=True, help="1 or 3.")
@click.option("--log-dirs", type=int, default=1, show_default=True, help="Log dirs per broker.")
@click.option(
    "--kafka-version",
    default=KAFKA_VERSION,
    show_default=True,
    help="One, or one for each broker: 3.9.2,4.1.2,4.3.0.",
)
@click.option("--mode", default="kraft", show_default=True, help="kraft, or zookeeper up to 3.9.")
@click.option(
    "--security",
    default=PLAINTEXT,
    show_default=True,
    help=f"{', '.join(SECURITY[:-1])} or {SECURITY[-1]}; all but the first with an authorizer.",
)
@click.option("--kafka-home", type=click.Path(path_type=Path), help="Use this Kafka (libs/*.jar).")
@click.option("--native-tiering", is_flag=True, help="Brokers with LocalTieredStorage, as a peer.")
@click.option("--store", default="local", show_default=True, help="local, s3 or hdfs.")
@click.option("--set", "overrides", multiple=True, metavar="SCOPE.KEY=V", help="broker|rlm|store.")
@click.option("--jvm", default="full", show_default=True, help="full, or quick: less CPU, slower.")
@click.option("--heap", type=int, default=512, show_default=True, help="Broker heap, MiB.")
@click.option(
    "--readers", type=int, default=0, show_default=True, help="Services without a broker."
)
@click.option("--brokers-only", is_flag=True, help="Start neither plugins nor services.")
@click.option(
    "--attach",
    default="listener",
    show_default=True,
    help="listener, or rewrite: brokers have no listener for the proxies.",
)
@click.option("--without", multiple=True, metavar="rlm:N", help="Services to be started later.")
def up(
    *,
    root: Path,
    brokers: int,
    log_dirs: int,
    kafka_version: str,
    mode: str,
    security: str,
    kafka_home: Path | None,
    native_tiering: bool,
    store: str,
    overrides: tuple[str, ...],
    jvm: str,
    heap: int,
    readers: int,
    brokers_only: bool,
    attach: str,
    without: tuple[str, ...],
) -> None:
    """Start everything, wait until it is healthy, print the sandbox's JSON document.

    The document is kept in DIR/sandbox.json; passwords are only there.
    """
    spec = SandboxSpec(
        brokers=brokers,
        log_dirs=log_dirs,
        kafka_version=kafka_version,
        mode=mode,
        security=security,
        kafka_home=str(kafka_home.resolve()) if kafka_home else None,
        native_tiering=native_tiering,
        store=store,
        services=not brokers_only,
        attach=attach,
        without=without,
        readers=readers,
        jvm=jvm,
        heap_mib=heap,
        overrides=tuple(Override.parse(text) for text in overrides),
    )
    console = Console(stderr=True)
    with console.status("starting the sandbox") as status:

        def show(line: str) -> None:
            if console.is_terminal:
                status.update(line)
            else:
                click.echo(line, err=True)

        made = Sandbox.up(root, spec, progress=show)
    click.echo(json.dumps(without_passwords(made.json), indent=2))


@sandbox.command()
@_DIR
@click.option("--delete", is_flag=True, help="Remove the directory too.")
def down(*, root: Path, delete: bool) -> None:
    """Stop every process of the sandbox."""
    take_down(root, delete=delete)


@sandbox.command()
@_DIR
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(*, root: Path, as_json: bool) -> None:
    """Show the processes; the status is 1 when one is not running."""
    rows = Sandbox.open(root).status()
    if as_json:
        content = [{**asdict(row), "log": str(row.log)} for row in rows]
        click.echo(json.dumps(content, indent=2))
    else:
        table = Table("process", "state", "pid", "ports", Column("log", overflow="fold"))
        for row in rows:
            ports = " ".join(map(str, row.ports))
            table.add_row(row.name, row.state, str(row.pid or "-"), ports, str(row.log))
        Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH).print(table)
    if any(row.state != "running" for row in rows):
        raise SystemExit(1)


def _verb(name: str, text: str, act: Callable[[Sandbox, str], None]) -> None:
    @sandbox.command(name, help=f"{text} {_TARGET_HELP}")
    @_DIR
    @click.argument("target")
    def command(*, root: Path, target: str) -> None:
        act(Sandbox.open(root), target)


_verb("kill", "SIGKILL a process and its children.", Sandbox.kill)
_verb("stop", "Stop a process in order.", Sandbox.stop)
_verb("pause", "SIGSTOP a process and its children.", Sandbox.pause)
_verb("resume", "SIGCONT a paused process.", Sandbox.resume)


@sandbox.command(help=f"Start a stopped process and wait until it answers. {_TARGET_HELP}")
@_DIR
@click.argument("target")
@click.option("--no-wait", is_flag=True, help="Return at once.")
def start(*, root: Path, target: str, no_wait: bool) -> None:
    Sandbox.open(root).start(target, wait=not no_wait)


def _fail(message: str) -> NoReturn:
    click.echo(f"rlm sandbox: {message}", err=True)
    raise SystemExit(1)
