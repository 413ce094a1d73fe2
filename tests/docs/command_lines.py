"""The commands of the product: which one a line of a page means, and which options it may have."""

from collections.abc import Iterator

import click

from rlm.cli.main import main as rlm
from rsm_plugins.process.main import main as rsm_plugin

PROGRAMS = {"rlm": rlm, "rsm-plugin": rsm_plugin}


def resolve(words: tuple[str, ...]) -> click.Command | None:
    """The command that the words lead to; further words are its arguments. None: there is none."""
    command: click.Command = PROGRAMS[words[0]]
    context = click.Context(command)
    for word in words[1:]:
        if not isinstance(command, click.Group):
            return command
        found = command.get_command(context, word)
        if found is None:
            return None
        command = found
    return command


def options_of(command: click.Command) -> set[str]:
    """Names of the options that a command takes."""
    names = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    return names | {"-h", "--help"}


def every_command(command: click.Command) -> Iterator[click.Command]:
    """A command and all below it."""
    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from every_command(below)
