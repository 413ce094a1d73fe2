"""`rsm-plugin`: serves a store as a plugin, or runs the conformance suite against any plugin."""

import gc

if __name__ == "__main__":
    gc.disable()  # what follows imports; see kip405.process

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from kip405.errors import Invalid, RemoteStorageError
from kip405.process import (
    KEPT_BY_A_SERVICE_BYTES,
    collect_cycles_from_now,
    keep_freed_memory,
    software_version,
)
from kip405.settings import Setting, Table, masked
from rsm_plugins.conformance.command import conformance_command
from rsm_plugins.process.config import SETTINGS, PluginSettings, load_settings
from rsm_plugins.process.hang_guard import ended_if_it_hangs
from rsm_plugins.process.logs import configure_logs
from rsm_plugins.process.plugin import serve
from rsm_plugins.store_kinds import KIND_NAMES, store_kind

EXIT_FAILED = 1
EXIT_CONFIGURATION = 2
EXIT_INTERRUPTED = 130
_SERVE = "serve"
"""Imports the libraries of its kind of store when it reads the settings."""


class _ServeCommand(click.Command):
    """Its help ends with the settings, which are loaded only when it is requested."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click.Command."""
        _write_rows(formatter, "Settings of the YAML file", SETTINGS)
        for name in KIND_NAMES:
            title = f"With plugin: {name}"
            try:
                _write_rows(formatter, title, store_kind(name).settings)
            except Invalid as error:
                _write_lines(formatter, title, [str(error)])


def _write_rows(formatter: click.HelpFormatter, title: str, rows: Table) -> None:
    _write_lines(formatter, title, [f"{row.key}: {row.allowed} ({_need(row)})" for row in rows])


def _write_lines(formatter: click.HelpFormatter, title: str, lines: list[str]) -> None:
    with formatter.section(title):
        formatter.write("".join(f"    {line}\n" for line in lines))


def _need(row: Setting) -> str:
    return "needed" if row.is_required else f"default {row.default!r}"


class _Group(click.Group):
    """Shows wrong use as one line."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """See click.Command."""
        try:
            status = super().main(*args, **{**extra, "standalone_mode": False})
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except click.ClickException as error:
            _fail(error.format_message(), error.exit_code)
        except click.Abort:
            _fail("interrupted", EXIT_INTERRUPTED)
        sys.exit(status if isinstance(status, int) else 0)


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(software_version(), prog_name="rsm-plugin")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Stores of remote log segments as gRPC plugins (contract: proto/rsm_plugins/v1)."""
    if ctx.invoked_subcommand != _SERVE:
        collect_cycles_from_now()


@main.command(_SERVE, cls=_ServeCommand)
@click.option(
    "--config", "config", required=True, type=click.Path(path_type=Path), help="YAML file."
)
def serve_command(config: Path) -> None:
    """Serve a store until SIGTERM or SIGINT.

    Prints one line on standard output once it takes calls: 1|1|tcp|HOST:PORT|grpc or
    1|1|unix|PATH|grpc. Logs are JSON lines on standard error. Exit status 2 for a configuration
    that cannot be used.
    """
    secrets: tuple[str, ...] = ()
    try:
        settings = load_settings(config)
        secrets = settings.secrets
        configure_logs(level=settings.log_level, secrets=secrets)
        keep_freed_memory(KEPT_BY_A_SERVICE_BYTES)
        collect_cycles_from_now()
        asyncio.run(_serve_until_signal(settings))
    except Invalid as error:
        _fail(masked(str(error), secrets), EXIT_CONFIGURATION)
    except RemoteStorageError as error:
        _fail(masked(str(error), secrets), EXIT_FAILED)


async def _serve_until_signal(settings: PluginSettings) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    with ended_if_it_hangs(settings.hang_ms):
        await serve(settings, stopped, _announce)


def _announce(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


main.add_command(conformance_command)


def _fail(message: str, status: int) -> NoReturn:
    click.echo(f"rsm-plugin: {message}", err=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
