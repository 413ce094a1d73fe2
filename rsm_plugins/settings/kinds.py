"""A kind of store (local, s3, hdfs, or a user's own): its settings and how it is opened.

Kinds are found by name and imported when needed, so that a plugin for one store needs the libraries
of only that store. Values that must not be shown are masked in every text in which they occur; this
part is pure.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from kip405.contracts import RemoteStorageManager
from kip405.errors import Invalid
from rsm_plugins.settings.table import Setting, secret_values
from rsm_plugins.threads import FileThreads

Sweep = Callable[[int], Awaitable[int]]
"""Removes what broken copies left that is older than the grace in ms; answers how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStore:
    """A store ready to be served. `objects_folder` is set if objects are files that a client on
    this machine could read by path; other stores send bytes, or use scratch files.
    """

    manager: RemoteStorageManager
    uri: str
    objects_folder: Path | None = None
    sweep: Sweep | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKind:
    """`settings` are the `rsm.config.*` rows of this kind. `open` gets their checked values by full
    key and must not wait for the store to answer: an unreachable store makes calls Unavailable.
    """

    name: str
    settings: tuple[Setting, ...]
    open: Callable[[Mapping[str, Any], FileThreads], Awaitable[OpenStore]]


_MODULES = {
    "local": "rsm_plugins.local.kind",
    "s3": "rsm_plugins.s3.kind",
    "hdfs": "rsm_plugins.hdfs.kind",
}
KIND_NAMES = tuple(_MODULES)
_SETTINGS_APART = {"s3": "rsm_plugins.s3.settings", "hdfs": "rsm_plugins.hdfs.settings"}
"""Where a kind's rows can be had without its library."""


def store_kind(name: str) -> StoreKind:
    """The kind; Invalid says what to install where its library is missing."""
    if name not in _MODULES:
        raise Invalid(f"plugin {name!r} is not known; allowed: {', '.join(KIND_NAMES)}")
    try:
        kind: StoreKind = import_module(_MODULES[name]).KIND
    except ModuleNotFoundError as error:
        raise Invalid(
            f"plugin {name} needs {error.name}: pip install 'kafka-rlm[{name}]'"
        ) from error
    return kind


def kind_settings(name: str) -> tuple[Setting, ...]:
    """The rows of a kind, without importing its library where they can be had alone.

    For who checks a configuration and starts the plugin as another process. Invalid as store_kind.
    """
    if name not in _SETTINGS_APART:
        return store_kind(name).settings
    rows: tuple[Setting, ...] = import_module(_SETTINGS_APART[name]).SETTINGS
    return rows


MASK = "***"
_SECRET_WORDS = re.compile(r"secret|token|password|passphrase|credential|access\.key|external\.id")


def masked(text: str, secrets: Sequence[str]) -> str:
    """The text with every secret replaced, also as JSON and Python write it; longer ones first, as
    one may be part of another.
    """
    spellings = {
        spelling
        for secret in secrets
        for spelling in (
            secret,
            json.dumps(secret)[1:-1],
            json.dumps(secret, ensure_ascii=False)[1:-1],
            repr(secret)[1:-1],
        )
    }
    for spelling in sorted(spellings, key=len, reverse=True):
        text = text.replace(spelling, MASK)
    return text


def secrets_of(config: Mapping[str, object]) -> tuple[str, ...]:
    """The secrets among a plugin's settings: by the table of a kind we know, else by the words in
    the key.
    """
    kind = config.get("plugin")
    if kind in KIND_NAMES:
        try:
            return secret_values(config, store_kind(str(kind)).settings)
        except Invalid:  # its library is not installed
            pass
    return tuple(
        str(value)
        for key, value in config.items()
        if value not in (None, "") and _SECRET_WORDS.search(key.lower())
    )
