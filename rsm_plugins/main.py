"""`rsm-plugin`: serve a store as a plugin, or try the conformance suite on somebody's plugin."""

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

import click
import structlog

from kip405.errors import Invalid, RemoteStorageError
from kip405.ids import Uuid
from rsm_plugins.client import Deadlines, GrpcRemoteStorageManager
from rsm_plugins.config import SETTINGS, PluginSettings, load_settings
from rsm_plugins.conformance.runner import Outcome, run_suite
from rsm_plugins.plugin import serve, software_version

EXIT_FAILED = 1
EXIT_CONFIGURATION = 2


def _settings_help() -> str:
    lines = ["\b", "Settings of the YAML file:"]
    for setting in SETTINGS:
        need = "needed" if setting.required else f"default {setting.default!r}"
        lines.append(f"  {setting.key}: {setting.allowed} ({need})")
    return "\n".join(lines)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(software_version(), prog_name="rsm-plugin")
def main() -> None:
    """Stores of remote log segments as gRPC plugins (contract: proto/rsm_plugins/v1)."""


@main.command("serve", epilog=_settings_help())
@click.option(
    "--config", "config", required=True, type=click.Path(path_type=Path), help="YAML file."
)
def serve_command(config: Path) -> None:
    """Serve a store until SIGTERM or SIGINT.

    Prints one line on standard output once it takes calls: 1|1|tcp|HOST:PORT|grpc or
    1|1|unix|PATH|grpc. Logs are JSON lines on standard error. Exit status 2 for a configuration
    that cannot be used.
    """
    try:
        settings = load_settings(config)
        _configure_logs(settings.log_level)
        asyncio.run(_serve_until_signal(settings))
    except Invalid as error:
        _fail(str(error), EXIT_CONFIGURATION)
    except RemoteStorageError as error:
        _fail(str(error), EXIT_FAILED)


async def _serve_until_signal(settings: PluginSettings) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await serve(settings, stopped, _announce)


def _announce(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _configure_logs(level: str) -> None:
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )


@main.command("conformance")
@click.argument("address")
@click.option("--allow-insecure", is_flag=True, help="Dial an address that is not of this machine.")
@click.option("--principal", default="rsm-plugin-conformance", show_default=True)
def conformance_command(address: str, allow_insecure: bool, principal: str) -> None:
    """Try the conformance suite on the plugin at ADDRESS (host:port or unix:/path).

    Writes below a cluster id of its own and removes what it wrote; creates the store's identity
    where there is none, so give it a scratch store. Exit status 1 when a case fails.
    """
    try:
        outcomes = asyncio.run(_conformance(address, allow_insecure, principal))
    except Invalid as error:
        _fail(str(error), EXIT_CONFIGURATION)
    except RemoteStorageError as error:
        _fail(str(error), EXIT_FAILED)
    failed = [outcome for outcome in outcomes if outcome.problem]
    for outcome in outcomes:
        click.echo(
            f"{'FAIL' if outcome.problem else 'ok  '} {outcome.mode:6} {outcome.name}"
            + (f": {outcome.problem}" if outcome.problem else "")
        )
    click.echo(f"{len(outcomes) - len(failed)} of {len(outcomes)} cases passed")
    sys.exit(EXIT_FAILED if failed else 0)


async def _conformance(address: str, allow_insecure: bool, principal: str) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for mode, share in (("bytes", False), ("shared", True)):
        manager = GrpcRemoteStorageManager.connect(
            address,
            principal=principal,
            deadlines=Deadlines(),
            allow_insecure=allow_insecure,
            share=share,
        )
        try:
            await manager.get_info()
            outcomes.extend(await run_suite(manager, mode, lambda: Uuid(os.urandom(16))))
        finally:
            await manager.close()
    return outcomes


def _fail(message: str, status: int) -> NoReturn:
    click.echo(f"rsm-plugin: {message}", err=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
