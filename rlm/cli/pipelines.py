"""`rlm audit` and `rlm export`, which run on Spark, built from a table of their arguments.

`rlm audit` reads and checks every byte of the remote segments of topics. `rlm export` writes topics
to Parquet files, each record once over any number of runs. This module imports no Spark.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from rlm.cli.main import EXIT_FAILED, EXIT_WRONG_USE, fail
from rlm.cli.target import Connect, service_options
from rlm_spark.errors import LibraryMissingError, needing_spark
from rlm_spark.pipelines.arguments import AUDIT, EXPORT
from rlm_spark.plan.offset_specs import OptionError
from tiered_reads.errors import ConnectorError

F = TypeVar("F", bound=Callable[..., Any])


class Argument(Protocol):
    """A row of rlm_spark.pipelines.arguments."""

    @property
    def flag(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def help(self) -> str: ...
    @property
    def metavar(self) -> str: ...
    @property
    def choices(self) -> tuple[str, ...]: ...
    @property
    def default(self) -> Any: ...
    @property
    def is_flag(self) -> bool: ...
    @property
    def is_many(self) -> bool: ...
    @property
    def is_whole(self) -> bool: ...
    @property
    def is_required(self) -> bool: ...


def arguments(rows: Sequence[Argument]) -> Callable[[F], F]:
    """Adds one click option a row; values come by the rows' names."""

    def decorate(command: F) -> F:
        for row in reversed(rows):
            command = _option(row)(command)
        return command

    return decorate


def _option(row: Argument) -> Callable[[F], F]:
    if row.is_flag:
        return click.option(row.flag, row.name, is_flag=True, help=row.help)
    kind: Any = click.Choice(row.choices) if row.choices else click.INT if row.is_whole else str
    defaults = {} if row.default is None else {"default": row.default, "show_default": True}
    return click.option(
        row.flag,
        row.name,
        type=kind,
        required=row.is_required,
        multiple=row.is_many,
        metavar=row.metavar or None,
        help=row.help,
        **defaults,
    )


def connection_options(connect: Connect, *, needs_service: bool = True) -> dict[str, str]:
    """The data source's options for the service that `connect` means; none where none is needed.

    Invalid, Unavailable: no service is said, or none of several answers.
    """
    if not needs_service:
        return {}
    tls = connect.tls
    given: dict[str, str | Path | None] = {
        "rlm.endpoints": connect.chosen_address(),
        "rlm.principal": connect.principal,
        "rlm.token.file": connect.token_file,
        "rlm.call.timeout.ms": str(round(connect.timeout_s * 1000)),
    }
    if tls is not None:
        given |= {
            "rlm.tls.ca.file": tls.ca_file,
            "rlm.tls.cert.file": tls.cert_file,
            "rlm.tls.key.file": tls.key_file,
            "rlm.tls.server.name": tls.server_name,
        }
    return {name: str(value) for name, value in given.items() if value}


@click.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC...]")
@arguments(AUDIT)
@service_options
def audit(*, topics: tuple[str, ...], connect: Connect, **values: Any) -> int:
    """Read and check all remote segments of each TOPIC, of every enabled topic without any.

    Sizes, checksums, batches, offsets, epochs, records, indexes, and holes between segments. The
    exit status is 1 where something is wrong.
    """
    try:
        with needing_spark():
            from rlm_spark.pipelines.commands import run_audit
        return run_audit(topics, values, connection_options(connect), connect.as_json)
    except (OptionError, LibraryMissingError) as error:
        fail(str(error), EXIT_WRONG_USE)
    except ConnectorError as error:
        fail(str(error), EXIT_FAILED)


@click.command()
@click.argument("topics", nargs=-1, metavar="TOPIC...")
@arguments(EXPORT)
@service_options
def export(*, topics: tuple[str, ...], connect: Connect, **values: Any) -> int:
    """Append the new records of each TOPIC to Parquet files, each record once.

    Files are in DIR/topic=T/date=D, by the record's timestamp in UTC. After any interruption the
    same command continues. Called again, it appends the records that came since.
    """
    needs_service = values["read_mode"] != "kafka_only"
    try:
        with needing_spark():
            from rlm_spark.pipelines.commands import run_export
        connection = connection_options(connect, needs_service=needs_service)
        return run_export(topics, values, connection, connect.as_json)
    except (OptionError, LibraryMissingError) as error:
        fail(str(error), EXIT_WRONG_USE)
    except ConnectorError as error:
        fail(str(error), EXIT_FAILED)
