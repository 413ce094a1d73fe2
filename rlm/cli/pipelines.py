"""Commands that run on Spark, made from a table of their arguments; by itself imports no Spark."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from kip405.errors import Invalid
from rlm.cli.target import Connect

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


@contextmanager
def needing_spark() -> Iterator[None]:
    """Invalid that says what to install, where an import in the block fails."""
    try:
        yield
    except ImportError as error:
        raise Invalid(f"this needs Spark: pip install 'kafka-rlm[spark]' ({error})") from error


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
