"""The one reader of YAML for settings, in the file and in variables of the environment. Pure.

Whatever is wrong with a text is an Invalid of one line that names where it is, and has none of it.
"""

from typing import Any

import yaml

from kip405.errors import Invalid
from rsm_plugins.process.config import UNFIT_VALUES, unfit_value, yaml_fault


class _KeyIsNoText(Exception):
    """A key is a list or a mapping; `line` counts from 1."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


class _GivenTwice(Exception):
    """A mapping has this key more than once."""


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML in which a duplicate key is an error, so that no value is ignored."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise _KeyIsNoText(key_node.start_mark.line + 1)
            if key_node.value in seen:
                raise _GivenTwice(key_node.value)
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def read_text(text: str, where: str, prefix: str = "") -> Any:
    """The value of a YAML text; `prefix` comes before a key that is given twice."""
    try:
        return yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise Invalid(f"{where} is not YAML: {yaml_fault(error)}") from None
    except _GivenTwice as error:
        raise Invalid(f"{prefix}{error}: given twice") from None
    except _KeyIsNoText as error:
        raise Invalid(
            f"{where}: line {error.line} has a key that is no text: if the file is a template "
            "({{...}}), render it first; else put the key in quotes"
        ) from None
    except UNFIT_VALUES as error:
        raise Invalid(f"{where} {unfit_value(error)}") from None
