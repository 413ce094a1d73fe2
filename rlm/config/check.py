"""Everything that can be said of a configuration without a broker and without a store.

Unlike the start of a service, which ends at the first error, this finds all of them: unknown keys
and variables, wrong values, missing ones, rules between settings, and files that settings name and
this user cannot read. Of files with secrets it finds who else may read them.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kip405.errors import Invalid
from kip405.settings import names_secret_file, rows_of
from rlm.config.common import CommonConfig
from rlm.config.directory import Chosen, chosen_file, settings_in
from rlm.config.draft_names import DRAFT_ROWS
from rlm.config.environment import given_variables, naming_variables, variables
from rlm.config.loader import answers_for, build_reader, build_service
from rlm.config.provider import CLASS_KEY
from rlm.config.refusals import CollectedRefusals
from rsm_plugins.store_kinds import kind_settings, require_library

ERROR, WARNING, NOTE = "error", "warning", "ok"
_READ = (".file", ".location", ".keytab", ".path")
_NOT_READ = frozenset({"audit.log.file", "fetch.chunk.cache.path"})
"""Files of the service's own: it makes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line: how bad it is, and what it is. `text` begins with the key or file."""

    level: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was found, and the configuration, None where it cannot be used."""

    findings: tuple[Finding, ...]
    config: CommonConfig | None


def check_file(path: Path, role: str, environment: Mapping[str, str] = os.environ) -> Checked:
    """Read a file as a service of that role would, and check what it names."""
    refusals = CollectedRefusals(partial(naming_variables, environment=environment))
    with refusals.taken():
        chosen = chosen_file(path, environment)
        content = settings_in(chosen)
        build = build_reader if role == "reader" else build_service
        config = build(content, environment, refusals)
        if config is not None:
            given = (*_chosen(path, chosen), *_overrides(environment), *_drafts(config))
            answers = _answers(content, environment, type(config))
            found = (*given, *answers, *_libraries(config), *_files(config))
            return Checked(findings=(*found, *_settings_file(chosen.file, content)), config=config)
    found = tuple(Finding(level=ERROR, text=str(error)) for error in refusals.found)
    return Checked(findings=found, config=None)


def _overrides(environment: Mapping[str, str]) -> Iterator[Finding]:
    for name, row in given_variables(environment).items():
        yield Finding(level=NOTE, text=f"{row.key}: given by {name}")


def _drafts(config: CommonConfig) -> Iterator[Finding]:
    """What is given by its name in the first draft of KIP-405."""
    for name in config.draft_names:
        yield Finding(level=NOTE, text=f"{name}: {DRAFT_ROWS[name].doc}")


def _chosen(path: Path, chosen: Chosen) -> Iterator[Finding]:
    """Which file of a directory is read."""
    if chosen.file != path:
        why = f"cluster {chosen.cluster_id}, by {chosen.known_by}" if chosen.known_by else "alone"
        yield Finding(level=NOTE, text=f"{chosen.file}: chosen in {path}: {why}")


def _answers(
    content: Mapping[str, Any], environment: Mapping[str, str], config: type[CommonConfig]
) -> Iterator[Finding]:
    """What the environment provider gives, and what it says in vain."""
    answers, given, taken = answers_for(content, environment, config)
    by = f"{CLASS_KEY} {answers.provider}"
    for key, value in answers.values.items():
        if key in taken:
            yield Finding(level=NOTE, text=f"{key}: {_text(value)}, given by {by}")
        elif key in given:
            yield Finding(level=NOTE, text=f"{key}: given, so {_text(value)} of {by} is not used")
    if answers.zookeeper:
        text = f"{by}: ZooKeeper {answers.zookeeper} is not used; brokers are found by bootstrap"
        yield Finding(level=NOTE, text=text)


def _text(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)


def _libraries(config: CommonConfig) -> Iterator[Finding]:
    """What `rlm serve` refuses at its start on a machine that lacks the library."""
    for store in config.stores:
        try:
            require_library(store.kind)
        except Invalid as error:
            yield Finding(level=ERROR, text=f"{store.where}plugin: {error}")


def _files(config: CommonConfig) -> Iterator[Finding]:
    """Each file that a setting names."""
    for key, file in _named_files(config):
        if not os.access(file, os.R_OK):
            yield Finding(level=ERROR, text=f"{key}: {file} {_why_unreadable(file)}")
        elif names_secret_file(key):
            yield _secret_file(key, file)


def _why_unreadable(file: Path) -> str:
    """Not by `exists`, which fails itself in a folder that this user may not search."""
    try:
        file.stat()
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:
        return f"cannot be read by this user: {error.strerror}"
    return "cannot be read by this user"


def _named_files(config: CommonConfig) -> Iterator[tuple[str, Path]]:
    """Paths of settings that are files to read, with their keys; of stores, too."""
    for name, row in rows_of(type(config)).items():
        value = getattr(config, name)
        if isinstance(value, Path) and row.key.endswith(_READ) and row.key not in _NOT_READ:
            yield row.key, value
    for store in config.stores:
        if store.tls is not None:
            ca, cert, key = store.tls.ca_file, store.tls.cert_file, store.tls.key_file
            for part, file in (("ca", ca), ("cert", cert), ("key", key)):
                if file is not None:
                    yield f"{store.where}plugin.tls.{part}.file", file
        for setting, given in store.config.items():
            if store.kind and setting.endswith(_READ):
                read = kind_settings(store.kind)[setting].read(given)
                if isinstance(read, Path):
                    yield f"{store.where}{setting}", read


def _settings_file(path: Path, content: Mapping[str, Any]) -> Iterator[Finding]:
    """The file of settings itself, where it has a secret; one in the environment is not in it."""
    secrets = {row.key for row in variables().values() if row.secret}
    stores = content.get("stores")
    parts = (content, *(stores.values() if isinstance(stores, dict) else ()))
    given = {key for part in parts if isinstance(part, dict) for key in part if part[key]}
    if secrets & given:
        yield _secret_file("the settings have a secret", path)


def _secret_file(what: str, path: Path) -> Finding:
    """Who may read it; others than its owner and group must not."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        return Finding(level=ERROR, text=f"{what}: {path}: {error.strerror}")
    said = f"{what}: {path} has mode {mode:04o}"
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        return Finding(level=WARNING, text=f"{said}, so that every user can read it: chmod o-rwx")
    return Finding(level=NOTE, text=said)
