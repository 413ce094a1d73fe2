"""A kind of store (local, s3, hdfs, or a user's own): its settings and how it is opened.

Kinds are found by name and imported when needed, so that a plugin for one store needs the libraries
of only that store. It must not know what a setting means.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kip405.contracts import RemoteStorageManager
from kip405.errors import Invalid
from kip405.segments import Layout
from kip405.settings import Kind, Refused, Setting, Table, as_text, integer, is_secret_name
from rsm_plugins.layout.keys import check_prefix
from rsm_plugins.threads import FileThreads

Sweep = Callable[[int], Awaitable[int]]
"""Removes what broken copies left that is older than the grace in ms; answers how much."""


LAYOUTS_OF_OURS = frozenset({Layout.KAFKA, Layout.BLOCKS})
"""Those that every kind of store in this tree has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStore:
    """A store ready to be served. `objects_folder` is set if objects are files that a client on
    this machine could read by path; other stores send bytes, or use scratch files. `layouts`: those
    that the manager copies and reads, which the plugin names as its capabilities.
    """

    manager: RemoteStorageManager
    uri: str
    objects_folder: Path | None = None
    sweep: Sweep | None = None
    layouts: frozenset[Layout] = frozenset({Layout.KAFKA})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKind:
    """`settings` are the `rsm.config.*` rows of this kind. `open` gets their checked values by full
    key and must not wait for the store to answer: an unreachable store makes calls Unavailable.
    """

    name: str
    settings: Table
    open: Callable[[Mapping[str, Any], FileThreads], Awaitable[OpenStore]]


def _prefix(value: Any) -> str:
    try:
        return check_prefix(as_text(value))
    except Invalid as error:
        raise Refused(f"{value!r}: {error}") from error


PREFIX_SETTING = Setting(
    key="rsm.config.prefix",
    kind=Kind(allowed="path components joined by single slashes, none at either end", read=_prefix),
    doc="Prefix of every key below the root or in the bucket.",
    default="",
)
"""Every kind of store has this row."""

_MIB = 1024 * 1024
BLOCK_SIZE_BYTES = 64 * _MIB
BLOCK_SIZE_SETTING = Setting(
    key="rsm.config.blocks.size.bytes",
    kind=integer(5 * _MIB, 2048 * _MIB),
    doc="Size of the blocks of new segments in the layout `blocks`, and so of the parts of their "
    "uploads. A segment with a larger batch gets blocks of the smallest multiple in which it fits.",
    default=BLOCK_SIZE_BYTES,
    unit="bytes",
)
"""Every kind of store that has the layout `blocks` has this row; what is stored says its own
size.
"""

_MODULES = {
    "local": "rsm_plugins.local.manager",
    "s3": "rsm_plugins.s3.manager",
    "hdfs": "rsm_plugins.hdfs.manager",
}
KIND_NAMES = tuple(_MODULES)
_LIBRARIES = {"s3": "aiobotocore", "hdfs": "hdfs_native"}
"""What the extra of a kind brings; a kind without one needs nothing more."""
_SETTINGS_APART = {"s3": "rsm_plugins.s3.settings", "hdfs": "rsm_plugins.hdfs.settings"}
"""Modules with a kind's rows that import no library of the kind."""


def store_kind(name: str) -> StoreKind:
    """The kind; Invalid says what to install where its library is missing."""
    if name not in _MODULES:
        raise Invalid(f"plugin {name!r} is not known; allowed: {', '.join(KIND_NAMES)}")
    require_library(name)
    try:
        kind: StoreKind = import_module(_MODULES[name]).KIND
    except ModuleNotFoundError as error:
        raise Invalid(_lacks(name, error.name)) from error
    return kind


def require_library(name: str) -> None:
    """Invalid as store_kind, without importing the library: for who starts the plugin."""
    library = _LIBRARIES.get(name)
    if library is not None and find_spec(library) is None:
        raise Invalid(_lacks(name, library))


def _lacks(name: str, library: str | None) -> str:
    return f"plugin {name} needs {library}: pip install 'kafka-rlm[{name}]'"


def kind_settings(name: str) -> Table:
    """The rows of a kind, without importing its library if possible, to check the settings of a
    plugin that runs in another process. Invalid as store_kind.
    """
    if name not in _SETTINGS_APART:
        return store_kind(name).settings
    rows: Table = import_module(_SETTINGS_APART[name]).SETTINGS
    return rows


def secrets_of(config: Mapping[str, object]) -> tuple[str, ...]:
    """The secrets among a plugin's settings: by the table of a known kind, else by the words in the
    key.
    """
    kind = config.get("plugin")
    if kind in KIND_NAMES:
        try:
            return store_kind(str(kind)).settings.secrets(config)
        except Invalid:  # its library is not installed
            pass
    return tuple(
        str(value)
        for key, value in config.items()
        if value not in (None, "") and is_secret_name(key)
    )
