"""The commands as click knows them -> man/rlm.1 and man/rsm-plugin.1, the pages of `man`."""

import inspect
import re
from collections.abc import Collection, Iterable, Iterator

import click

from build_tools.reference.commands import COMMON, PROGRAMS, asking, context_of

_FILES = {
    "rlm": (
        ("/etc/kafka-rlm/service.yaml", "The settings of the service, by its systemd unit."),
        ("/etc/kafka-rlm/reader.yaml", "Those of a service without a broker."),
        ("/var/lib/kafka-rlm", "What the service must remember: its state.dir."),
    ),
    "rsm-plugin": (),
}
_STATUS = {
    "rlm": (
        ("0", "Done."),
        ("1", "Failed, or found what the command is there to find."),
        ("2", "Wrong use, or settings that cannot be used."),
        ("130", "Interrupted."),
    ),
    "rsm-plugin": (
        ("0", "Done."),
        ("1", "Failed."),
        ("2", "Wrong use, or settings that cannot be used."),
    ),
}
_ASKS = "OPTIONS OF EVERY COMMAND THAT ASKS A SERVICE"
_SEE = {"rlm": "rsm-plugin", "rsm-plugin": "rlm"}


def generate_rlm() -> str:
    """man/rlm.1, whole."""
    return _page("rlm")


def generate_rsm_plugin() -> str:
    """man/rsm-plugin.1, whole."""
    return _page("rsm-plugin")


def _page(name: str) -> str:
    program = PROGRAMS[name]
    context = context_of(program, name, None)
    summary = inspect.cleandoc(program.help or "").partition("\n")[0].rstrip(".")
    lines = [f'.TH "{name.upper()}" 1 "" "kafka-rlm" "User Commands"']
    lines += [".SH NAME", f"{_text(name)} \\- {_text(summary[0].lower() + summary[1:])}"]
    lines += [".SH SYNOPSIS", f".B {_text(name)}", "COMMAND [OPTION...] [ARGUMENT...]"]
    lines += [".SH DESCRIPTION", *_prose(program), ".SH OPTIONS", *_options(program, context)]
    lines += [".SH COMMANDS", *_commands(program, context)]
    if name == "rlm":
        context = context_of(asking, "", None)
        lines += [f".SH {_ASKS}", *_options(asking, context)]
    if _FILES[name]:
        lines += [".SH FILES", *_terms(_FILES[name])]
    lines += [".SH EXIT STATUS", *_terms(_STATUS[name])]
    lines += [".SH SEE ALSO", f".BR {_text(_SEE[name])} (1)"]
    return "\n".join(lines) + "\n"


def _commands(group: click.Command, context: click.Context) -> Iterator[str]:
    """Each command that is no group, with those below groups in their order."""
    assert isinstance(group, click.Group)
    for name in group.list_commands(context):
        below = group.get_command(context, name)
        assert below is not None
        inner = context_of(below, name, context)
        if isinstance(below, click.Group):
            yield from _commands(below, inner)
            continue
        usage = " ".join((inner.command_path, *below.collect_usage_pieces(inner)))
        yield f".SS {_text(usage)}"
        yield from _prose(below)
        if {param.name for param in below.params} >= COMMON:
            yield from (".PP", "It asks a service, and also takes the options for that, below.")
            yield from _options(below, inner, COMMON)
        else:
            yield from _options(below, inner)


def _options(
    command: click.Command, context: click.Context, without: Collection[str] = ()
) -> Iterator[str]:
    records = (
        param.get_help_record(context)
        for param in command.params
        if isinstance(param, click.Option) and param.name not in without
    )
    yield from _terms(record for record in records if record is not None)


def _terms(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    for term, meaning in rows:
        yield from (".TP", f".B {_text(term)}", _text(" ".join(meaning.split())))


def _prose(command: click.Command) -> Iterator[str]:
    """The paragraphs of a command's help; those that click leaves as they are stay so."""
    for number, block in enumerate(inspect.cleandoc(command.help or "").split("\n\n")):
        if number:
            yield ".PP"
        if block.startswith("\b"):
            yield from (".nf", *(_text(line) for line in block.splitlines()[1:]), ".fi")
        else:
            yield _text(" ".join(block.split()))


def _text(text: str) -> str:
    """Plain text for roff: a hyphen is to be copied, and no line is taken for a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped)
