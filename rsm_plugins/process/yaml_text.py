"""The one reader of YAML for settings: of services, of plugins, and in variables of the
environment. Pure.

Whatever is wrong with a text is an Invalid of one line that names where it is, and has none of it.
"""

from typing import Any

import yaml

from kip405.errors import Invalid


class _KeyIsNoText(Exception):
    """A key is a list or a mapping; `line` counts from 1."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


class _GivenTwice(Exception):
    """A mapping has this key more than once; lines count from 1."""

    def __init__(self, key: str, lines: tuple[int, int]) -> None:
        first, second = lines
        where = f"line {first}" if first == second else f"lines {first} and {second}"
        name = key if key.isprintable() else repr(key)
        super().__init__(f"{name}: given twice, in {where}")


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML in which a duplicate key is an error, so that no value is ignored. Seen before `<<` puts
    other keys beside those that are written.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key_node, _ in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise _KeyIsNoText(line)
            if key_node.value in lines:
                raise _GivenTwice(key_node.value, (lines[key_node.value], line))
            lines[key_node.value] = line
        return node


_UNFIT_VALUES = (ValueError, TypeError, AttributeError, LookupError, OverflowError, RecursionError)
"""What PyYAML raises, besides its own errors, for a value that is not of the type it looks like."""

_FAULTS = {
    "mapping values are not allowed": "a line has a second ': ', or is indented more than the line "
    "above it; put a value that has ': ' in quotes",
    "found character '\\t'": "indent with spaces instead of tabs",
    "found character": "put a value that begins with this character in quotes",
    "found undefined alias": "put a value that begins with * in quotes",
    "could not determine a constructor": "put a value that begins with ! in quotes",
    "found unexpected end of stream": "a quote is not closed",
    "could not find expected ':'": "the line before has no ': '",
    "expected ',' or": "a bracket is not closed, or a comma is missing",
    "expected the node content": "a bracket is not closed, or a value is missing",
    "expected <block end>": "the line is not indented as the lines above it",
    "expected '<document start>'": "the line is not indented as the lines above it",
}
"""What mends a fault, by the beginning of PyYAML's words for it, which may quote the file."""


def _fault(error: yaml.YAMLError) -> str:
    """What is wrong and where, without the text around it, which may be a secret."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        position, problem = error.problem_mark, error.problem or ""
        known = (text for words, text in _FAULTS.items() if problem.startswith(words))
        fault = next(known, type(error).__name__)
        return f"line {position.line + 1}, column {position.column + 1}: {fault}"
    return type(error).__name__


def _unfit_value(error: Exception) -> str:
    """What is wrong with a file that raises one of _UNFIT_VALUES, whose text may be a secret."""
    return (
        f"has a value that YAML cannot read ({type(error).__name__}), such as a date that does not "
        "exist or a wrong tag (!!int): put texts in quotes"
    )


def read_text(text: str, where: str, prefix: str = "") -> Any:
    """The value of a YAML text; `prefix` comes before a key that is given twice."""
    try:
        return yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise Invalid(f"{where} is not YAML: {_fault(error)}") from None
    except _GivenTwice as error:
        raise Invalid(f"{prefix}{error}") from None
    except _KeyIsNoText as error:
        raise Invalid(
            f"{where}: line {error.line} has a key that is no text: if the file is a template "
            "({{...}}), render it first; else put the key in quotes"
        ) from None
    except _UNFIT_VALUES as error:
        raise Invalid(f"{where} {_unfit_value(error)}") from None
