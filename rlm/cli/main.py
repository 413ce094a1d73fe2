"""`rlm`: the command line, and `rlm serve`.

Commands are imported when they are called, so that --help is fast.
"""

import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.shell_completion import CompletionItem

from rlm.cli.live import Ended

if TYPE_CHECKING:
    from rlm.config.stores import StoreConfig

EXIT_FAILED = 1
EXIT_WRONG_USE = 2
EXIT_INTERRUPTED = 130
_AGAIN_SECONDS = 0.05
_IMPORT_MORE = ("attach", "serve")
"""Commands that import a service when they have read its settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyCommand:
    """The definition of a command, and its line in the help, which needs no import of the
    command.
    """

    module: str
    attribute: str
    summary: str


COMMANDS = {
    "acls": LazyCommand(
        module="rlm.cli.acls",
        attribute="acls",
        summary="Print the ACLs that a principal needs, or check them.",
    ),
    "attach": LazyCommand(
        module="rlm.cli.attach",
        attribute="attach",
        summary="Serve what the stores of a lost cluster have, without Kafka.",
    ),
    "audit": LazyCommand(
        module="rlm.cli.pipelines",
        attribute="audit",
        summary="Read and check every byte of the remote segments of topics.",
    ),
    "bucket-policy": LazyCommand(
        module="rlm.cli.bucket_policy",
        attribute="bucket_policy",
        summary="Print the policy of a bucket for a service or a reader.",
    ),
    "clients": LazyCommand(
        module="rlm.cli.clients",
        attribute="clients",
        summary="Show who reads through the proxies, and who reads past them.",
    ),
    "completion": LazyCommand(
        module="rlm.cli.completion",
        attribute="completion",
        summary="Print the completion of a shell for rlm and rsm-plugin.",
    ),
    "config": LazyCommand(
        module="rlm.cli.config",
        attribute="config",
        summary="Check the settings of a service.",
    ),
    "copy": LazyCommand(
        module="rlm.cli.copy",
        attribute="copy",
        summary="Copy all closed segments of partitions now.",
    ),
    "copy-limit": LazyCommand(
        module="rlm.cli.copy_limit",
        attribute="copy_limit",
        summary="Show or change how many bytes a second services copy.",
    ),
    "cost": LazyCommand(
        module="rlm.cli.cost",
        attribute="cost",
        summary="Show what tiered topics cost a month.",
    ),
    "deletions": LazyCommand(
        module="rlm.cli.deletions",
        attribute="deletions",
        summary="List and undo decisions that will delete data.",
    ),
    "diagnose": LazyCommand(
        module="rlm.cli.diagnose",
        attribute="diagnose",
        summary="Write an archive of what helps to find a fault.",
    ),
    "download": LazyCommand(
        module="rlm.cli.download",
        attribute="download",
        summary="Write the remote part of a topic as a Kafka log directory.",
    ),
    "doctor": LazyCommand(
        module="rlm.cli.doctor",
        attribute="doctor",
        summary="Find what endangers the data, and say what mends it.",
    ),
    "events": LazyCommand(
        module="rlm.cli.events",
        attribute="events",
        summary="Show the last decisions of tasks, with reasons.",
    ),
    "explain": LazyCommand(
        module="rlm.cli.explain",
        attribute="explain",
        summary="Say in sentences where an offset is, and why it is there.",
    ),
    "export": LazyCommand(
        module="rlm.cli.pipelines",
        attribute="export",
        summary="Append what is new of topics to Parquet files, each record once.",
    ),
    "fetch": LazyCommand(
        module="rlm.cli.fetch",
        attribute="fetch",
        summary="Print records of a partition, from both tiers.",
    ),
    "freeze": LazyCommand(
        module="rlm.cli.partitions",
        attribute="freeze",
        summary="Stop trim, deletes and sweeps on every service.",
    ),
    "import": LazyCommand(
        module="rlm.cli.imports",
        attribute="imports",
        summary="Import segments that another uploader has stored.",
    ),
    "ledger": LazyCommand(
        module="rlm.cli.ledger",
        attribute="ledger",
        summary="Rebuild a lost ledger from the manifests in the stores.",
    ),
    "partition": LazyCommand(
        module="rlm.cli.partitions",
        attribute="partition",
        summary="Decide about frozen partitions and lost records.",
    ),
    "plan": LazyCommand(
        module="rlm.cli.plan",
        attribute="plan",
        summary="Say what it means to enable topics, before anything is.",
    ),
    "probe": LazyCommand(
        module="rlm.cli.probe",
        attribute="probe",
        summary="Ask the service of this machine whether it works, for a supervisor.",
    ),
    "purge": LazyCommand(
        module="rlm.cli.topics",
        attribute="purge",
        summary="List deleted topics with remote data, and delete that of some.",
    ),
    "reconcile": LazyCommand(
        module="rlm.cli.reconcile",
        attribute="reconcile",
        summary="Compare every object in the stores with the ledger.",
    ),
    "restore": LazyCommand(
        module="rlm.cli.restore",
        attribute="restore",
        summary="Write the remote part of a topic into a topic of a cluster.",
    ),
    "sandbox": LazyCommand(
        module="rlm_sandbox.command",
        attribute="sandbox",
        summary="A real Kafka with the service beside it, on this machine.",
    ),
    "segments": LazyCommand(
        module="rlm.cli.partitions",
        attribute="segments",
        summary="List the remote segments of a topic.",
    ),
    "serve": LazyCommand(
        module="rlm.cli.main",
        attribute="serve",
        summary="Run the service beside one broker.",
    ),
    "status": LazyCommand(
        module="rlm.cli.status",
        attribute="status",
        summary="Show the state of every partition of the cluster.",
    ),
    "store": LazyCommand(
        module="rlm.cli.prefixes",
        attribute="store",
        summary="List the key prefixes by which to pre-partition a bucket.",
    ),
    "top": LazyCommand(
        module="rlm.cli.top",
        attribute="top",
        summary="Watch partitions by lag, copies, services and readers.",
    ),
    "topics": LazyCommand(
        module="rlm.cli.topics",
        attribute="topics",
        summary="Enable, trim, disable, list and describe topics.",
    ),
    "unfreeze": LazyCommand(
        module="rlm.cli.partitions",
        attribute="unfreeze",
        summary="End a freeze.",
    ),
    "verify": LazyCommand(
        module="rlm.cli.verify",
        attribute="verify",
        summary="Check that no offset and no object of topics is missing.",
    ),
}


class LazyGroup(click.Group):
    """Imports a command when it is used, and shows kip405's errors as one line and an exit
    status.
    """

    def __call__(self, *args: Any, **extra: Any) -> Any:
        """As a program of its own: see `kip405.process` for why it begins so."""
        gc.disable()
        return super().__call__(*args, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        with interrupted_afterwards():
            module = importlib.import_module(lazy.module)
        if cmd_name not in _IMPORT_MORE:
            begin_to_collect()
        command: click.Command = getattr(module, lazy.attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            names = self.list_commands(ctx)
            close = get_close_matches(args[0], names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}"
            raise click.UsageError(f"no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, COMMANDS[name].summary) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """As click's, without importing every command whenever Tab is pressed."""
        options = click.Command.shell_complete(self, ctx, incomplete)
        names = (name for name in self.list_commands(ctx) if name.startswith(incomplete))
        return [CompletionItem(name, help=COMMANDS[name].summary) for name in names] + options

    def invoke(self, ctx: click.Context) -> Any:
        from kip405.errors import Invalid, RemoteStorageError

        try:
            return super().invoke(ctx)
        except Invalid as error:
            fail(str(error), EXIT_WRONG_USE)
        except RemoteStorageError as error:
            fail(str(error), EXIT_FAILED)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Wrong use is one line too; Ctrl-C leaves no trace. gRPC logs a failed handshake by
        itself, beside our error that says the same: only its errors are shown.
        """
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
        try:
            with never_ignored():
                status = super().main(*args, **{**extra, "standalone_mode": False})
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            raise SystemExit(error.exit_code) from error
        except click.ClickException as error:
            fail(error.format_message(), error.exit_code)
        except (click.Abort, KeyboardInterrupt) as error:
            raise SystemExit(EXIT_INTERRUPTED) from error
        raise SystemExit(status if isinstance(status, int) else 0)


def begin_to_collect() -> None:
    """What follows has been imported; a service begins by itself."""
    from kip405.process import collect_cycles_from_now

    collect_cycles_from_now()


@contextmanager
def interrupted_afterwards() -> Iterator[None]:
    """Raises KeyboardInterrupt at the end of an import instead of within it; the second Ctrl-C
    interrupts at once. Within an import, Python drops what is raised in the callbacks of weak
    references, and the command would go on.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt


@contextmanager
def never_ignored() -> Iterator[None]:
    """What a signal has raised and Python would drop, with "Exception ignored in", is raised again
    shortly afterwards, where it may be somebody's to catch.
    """
    before = sys.unraisablehook
    timers: list[threading.Timer] = []

    def again(dropped: "sys.UnraisableHookArgs") -> None:
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            number = signal.SIGINT
        elif isinstance(dropped.exc_value, Ended):
            number = signal.SIGTERM
        else:
            before(dropped)
            return
        timer = threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), number))
        timer.daemon = True
        timers.append(timer)
        timer.start()

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = before
        for timer in timers:
            timer.cancel()


def fail(message: str, status: int) -> NoReturn:
    """Print one line on standard error and exit."""
    click.echo(f"rlm: {' '.join(message.split())}", err=True)
    raise SystemExit(status)


def _show_version(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked and not context.resilient_parsing:
        from kip405.process import software_version

        click.echo(f"rlm, version {software_version()}")
        context.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Tiered storage beside the Kafka cluster you already have.

    Commands ask one service, which answers for the whole cluster: --address HOST:PORT, or
    RLM_ADDRESS, or RLM_SANDBOX=DIR of a sandbox.
    """


@click.command()
@click.option(
    "--role",
    default="broker",
    show_default=True,
    type=click.Choice(["broker", "reader"]),
    help="broker: beside one broker. reader: without any; answers reads of the remote tier.",
)
@click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(path_type=Path),
    help="YAML or .properties file, or a directory with such a file named by the cluster's id; "
    "docs/reference/settings.md lists all settings.",
)
@click.option("--as-core", is_flag=True, hidden=True, help="Of the supervisor of proxy workers.")
def serve(*, role: str, path: Path, as_core: bool) -> None:
    """Run the service until SIGTERM or Ctrl-C. SIGHUP reads the settings again.

    The exit status is 2 if the configuration or the surroundings cannot be used; one line says why.
    """
    from rlm.workers.inherited import held_hang_ups

    with held_hang_ups():
        if role == "reader":
            _serve_reader(path)
        else:
            _serve_broker(path, as_core=as_core)


def _require_libraries(stores: "Iterable[StoreConfig]") -> None:
    """Invalid where a plugin that the service is to start could not: now, not at each try."""
    from rsm_plugins.store_kinds import require_library

    for store in stores:
        require_library(store.kind)


def _serve_broker(path: Path, *, as_core: bool) -> None:
    from rlm.config import load
    from rlm.workers.inherited import ignore_replacement

    config = load(path)
    _require_libraries(config.stores)
    ignore_replacement()
    if config.proxy_workers and not as_core:
        from rlm.service import supervised

        begin_to_collect()
        if not supervised.run(config, path):
            raise click.exceptions.Exit(EXIT_WRONG_USE)
        return
    from rlm.service.broker_service import run

    run(config, partial(load, path), is_child=as_core)


def _serve_reader(path: Path) -> None:
    from rlm.config import load_reader
    from rlm.workers.inherited import ignore_replacement

    config = load_reader(path)
    _require_libraries(config.stores)
    ignore_replacement()
    from rlm.service.reader_service import run

    run(config, partial(load_reader, path))


if __name__ == "__main__":
    main()
