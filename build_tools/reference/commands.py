"""The commands as click knows them -> docs/reference/commands.md."""

import inspect
from collections.abc import Collection, Iterator, Mapping

import click

from build_tools.reference.markdown import cell, prose, table
from rlm.cli.main import main as rlm
from rlm.cli.target import service_options
from rsm_plugins.process.main import main as rsm_plugin

PROGRAMS: Mapping[str, click.Command] = {"rlm": rlm, "rsm-plugin": rsm_plugin}
_HEAD = """\
# Commands

Every command takes `--help`. Made from the commands themselves (`rlm/cli/`,
`rsm_plugins/process/main.py`); edit there.

## Options of every command that asks a service

"""
_WIDTH = 10_000
_ASKS = (
    "It asks a service, and also takes "
    "[these options](#options-of-every-command-that-asks-a-service).\n"
)


@click.command()
@service_options
def asking(**_values: object) -> None:
    """Has the options of every command that asks a service, and no others."""


COMMON = {param.name for param in asking.params}


def generate_docs() -> str:
    """The page, whole."""
    common = table(("option", "meaning"), _options(asking, context_of(asking, "", None), set()))
    sections = (
        section
        for name, program in PROGRAMS.items()
        for section in _sections(program, context_of(program, name, None))
    )
    return _HEAD + common + "".join(sections)


def context_of(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    return click.Context(command, info_name=name, parent=parent, terminal_width=_WIDTH)


def _sections(command: click.Command, context: click.Context) -> Iterator[str]:
    level = "##" if context.parent is None else "###"
    usage = " ".join((context.command_path, *command.collect_usage_pieces(context)))
    text = prose(inspect.cleandoc(command.help or "").replace("\b", ""))
    yield f"\n{level} {context.command_path}\n\n```text\n{usage}\n```\n\n{text}"
    asks = {param.name for param in command.params} >= COMMON
    own = list(_options(command, context, COMMON if asks else set()))
    if own:
        yield "\n" + table(("option", "meaning"), own)
    if asks:
        yield f"\n{_ASKS}"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _sections(below, context_of(below, name, context))


def _options(
    command: click.Command, context: click.Context, without: Collection[str]
) -> Iterator[tuple[str, str]]:
    for param in command.params:
        record = None if param.name in without else param.get_help_record(context)
        if record is not None and isinstance(param, click.Option):
            shown = record[0].replace("|", "\\|")
            yield f"`{shown}`", cell(record[1])
