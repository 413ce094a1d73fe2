"""Values of options that people write with units, or that are ids; and groups of commands."""

from collections.abc import Callable
from typing import Any

import click

from kip405.amounts import parse_duration_ms, parse_size_bytes
from kip405.errors import Invalid
from kip405.ids import Uuid

_SENTENCE_MAX = 1_000
_INT64_MAX = (1 << 63) - 1  # the most that a message of the API can carry


class CommandGroup(click.Group):
    """A group whose help has the first sentence of each command to its end."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [
            (name, command.get_short_help_str(_SENTENCE_MAX)) for name, command in found if command
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class _Parsed(click.ParamType[int]):
    """A duration or a size, read by a parser of kip405.amounts."""

    def __init__(self, name: str, parse: Callable[[str], int]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        try:
            found = value if isinstance(value, int) else self._parse(str(value))
        except Invalid as error:
            self.fail(str(error), param, ctx)
        if found > _INT64_MAX:
            self.fail(f"{value!r} is too much", param, ctx)
        return found


class _StoreId(click.ParamType[Uuid]):
    name = "store_id"

    def convert(self, value: Any, param: Any, ctx: Any) -> Uuid:
        try:
            return value if isinstance(value, Uuid) else Uuid.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = _Parsed("duration", parse_duration_ms)
SIZE = _Parsed("size", parse_size_bytes)
STORE_ID = _StoreId()
NODE_ID = click.IntRange(min=0, max=(1 << 31) - 1)
