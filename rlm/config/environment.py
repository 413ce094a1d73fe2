"""Settings of `rlm serve` in the environment: each has a variable, which overrides the file.

The variable of `proxy.listen` is RLM_PROXY_LISTEN: RLM_, and the key in capitals with _ for each
dot and hyphen. Where a setting wants more than a text, the variable holds YAML, as the file does.
An empty variable counts as none. A variable that seems to be meant for a setting and is none is
refused, so that a slip does not go unseen. No message and no log has the value of a secret.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from kip405.errors import Invalid
from kip405.settings import Setting
from rlm.config.draft_names import DRAFT_ROWS, under_todays_names
from rlm.config.refusals import Refusals
from rlm.config.secured import environment_name
from rlm.config.service import settings
from rlm.config.stores import STORE_ROWS
from rsm_plugins.process.yaml_text import read_text
from rsm_plugins.store_kinds import KIND_NAMES, kind_settings

PREFIX = environment_name("")
COMMAND_VARIABLES = frozenset(
    {
        *("RLM_ADDRESS", "RLM_TOKEN_FILE"),
        *("RLM_TLS_CA", "RLM_TLS_CERT", "RLM_TLS_KEY", "RLM_TLS_SERVER_NAME"),
        *("RLM_SANDBOX", "RLM_CACHE_DIR", "RLM_MAVEN_REPO"),
    }
)
"""What commands and the sandbox read, besides RLM_PRINCIPAL, which means the same to a service."""

_KUBERNETES = re.compile(
    r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_\w+)=|_PORT=(tcp|udp|sctp)://"
)
"""Variables that Kubernetes makes of a Service whose name begins with rlm, each as NAME=value."""
_HOW_ALIKE = 0.85


@cache
def variables() -> Mapping[str, Setting]:
    """The settings of every role and of a single store, by variable."""
    kinds = (row for name in KIND_NAMES for row in kind_settings(name))
    rows = (*settings().values(), *DRAFT_ROWS, *STORE_ROWS, *kinds)
    return {environment_name(row.key): row for row in rows if not row.key.endswith(".*")}


def given_variables(environment: Mapping[str, str]) -> Mapping[str, Setting]:
    """The settings that the environment gives instead of the file, by variable."""
    return {name: row for name, row in variables().items() if environment.get(name)}


def withheld_variables() -> frozenset[str]:
    """Those that no child but the service's own core gets: all, as plugins and proxy workers read
    none, and a structure such as RLM_STORES may have secrets of every store.
    """
    return frozenset(variables())


def overridden(
    content: Mapping[str, Any], environment: Mapping[str, str], refusals: Refusals
) -> dict[str, Any]:
    """The content of a file with what the environment gives instead. Invalid: a variable that has
    no setting, or one whose value cannot be used.
    """
    given = dict(content)
    values: dict[str, Any] = {}
    for name, row in _asked(environment, refusals):
        with refusals.taken():
            values[row.key] = value_of(row, environment[name], name)
    for key, value in under_todays_names(values, refusals).items():
        _drop_other_form(given, key, environment)
        given[key] = value
    return given


def naming_variables(text: str, environment: Mapping[str, str]) -> str:
    """A refusal, with the variables that give the settings it names: what has to be mended is not
    in the file then. For people; nothing is decided by it.
    """
    given = given_variables(environment)
    said = [
        f"{name} gives {row.key}"
        for name, row in given.items()
        if name not in text and names_setting(text, row)
    ]
    return f"{text} ({', '.join(said)})" if said else text


def names_setting(text: str, row: Setting) -> bool:
    """Whether the key is in the text as a whole; of a structure, also with what is in it. A key
    that is a plain word counts where it begins the text.
    """
    begins = r"(?<![\w./-])" if "." in row.key else "^"
    ends = r"(?![\w-])" if row.kind.is_structure else r"(?![\w-]|\.\w)"
    return re.search(f"{begins}{re.escape(row.key)}{ends}", text) is not None


def value_of(row: Setting, text: str, name: str) -> Any:
    """The value that a variable has, as a file would have it; Invalid names the variable."""
    if not row.kind.is_structure:
        try:
            row.read(text, name)
        except Invalid:
            if row.secret:
                raise
        else:
            return text
    try:
        value = read_text(text, name, prefix=f"{name}: ")
    except Invalid:
        if row.kind.is_structure:
            raise
        value = text
    try:
        row.read(value, name)
    except Invalid:
        row.read(text, name)  # refuses it as it was written
    return value


def _asked(environment: Mapping[str, str], refusals: Refusals) -> Iterator[tuple[str, Setting]]:
    names = [name for name, text in environment.items() if name.startswith(PREFIX) and text]
    if not names:
        return
    known = variables()
    for name in sorted(names):
        if name in known:
            yield name, known[name]
        elif name not in COMMAND_VARIABLES and not _is_of_kubernetes(name, environment[name]):
            with refusals.taken():
                _refuse_if_meant(name, known)


def _is_of_kubernetes(name: str, text: str) -> bool:
    """Of a name that ends in _PORT the value decides: a port alone was meant for a setting."""
    return _KUBERNETES.search(f"{name}={text}") is not None


def _refuse_if_meant(name: str, known: Mapping[str, Setting]) -> None:
    """Variables of others may begin with RLM_; this one begins as settings do, or is like one."""
    own = name.removeprefix(PREFIX)
    names = [one.removeprefix(PREFIX) for one in known]
    near = get_close_matches(own, sorted(names), n=1, cutoff=_HOW_ALIKE)
    if near:
        raise Invalid(f"{name}: no setting has this variable; did you mean {PREFIX}{near[0]}?")
    first, _, more = own.partition("_")
    if more and first in {one.partition("_")[0] for one in names}:
        raise Invalid(
            f"{name}: no setting has this variable; docs/reference/settings.md lists all settings"
        )


def _drop_other_form(given: dict[str, Any], key: str, environment: Mapping[str, str]) -> None:
    """A secret replaces the file that the settings name for it, and such a file the secret; the
    environment with both forms is refused later, as a file with both is.
    """
    other = key.removesuffix(".file") if key.endswith(".file") else f"{key}.file"
    if not environment.get(environment_name(other)):
        given.pop(other, None)
