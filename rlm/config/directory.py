"""A directory of settings instead of one file: the file of the cluster that the service is beside.

`--config DIR` chooses `<cluster id>.properties` or `<cluster id>.yaml` there, so that one directory
serves the brokers of many clusters, as with Pinterest's uploader. The id comes from what is known
before a file is read: variables of the environment. A file of lines `key=value` has the same keys
as one in YAML, and its values are written as those of variables are.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kip405.checkpoints import parse_properties
from kip405.errors import Corrupt, Invalid
from rlm.config.broker_files import read_meta_properties, read_server_properties
from rlm.config.environment import value_of, variables
from rlm.config.provider import CLASS_KEY, PATH_KEY, SERVER_PROPERTIES_KEY, answers_of
from rlm.config.secured import environment_name
from rlm.config.service import settings
from rsm_plugins.process.yaml_text import read_text

_CLUSTER_ID = "cluster.id"
_PROPERTIES = ".properties"
_SUFFIXES = (_PROPERTIES, ".yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The file to read. `cluster_id`: by which it was chosen in a directory, else None; `known_by`
    says where the id is from.
    """

    file: Path
    cluster_id: str | None = None
    known_by: str = ""


def read_settings(path: Path, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The settings in a file, or in the file of this cluster in a directory; Invalid."""
    return settings_in(chosen_file(path, environment))


def settings_in(chosen: Chosen) -> dict[str, Any]:
    """The settings of a chosen file. One that was chosen by a cluster's id is of that cluster."""
    is_properties = chosen.file.suffix == _PROPERTIES
    content = _read_properties(chosen.file) if is_properties else read_yaml(chosen.file)
    if chosen.cluster_id is not None:
        own = content.setdefault(_CLUSTER_ID, chosen.cluster_id)
        if own != chosen.cluster_id:
            raise Invalid(f"{_CLUSTER_ID}: is {own} in {chosen.file}, the file of another cluster")
    return content


def chosen_file(path: Path, environment: Mapping[str, str]) -> Chosen:
    """The file itself, or the one of a directory; Invalid where none can be chosen."""
    if not path.is_dir():
        return Chosen(file=path)
    try:
        found = sorted(one for one in path.iterdir() if _is_candidate(one))
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}") from error
    if not found:
        raise Invalid(f"{path} has no file CLUSTER.properties or CLUSTER.yaml")
    cluster_id, known_by = _known_cluster(environment)
    if cluster_id is None:
        if len(found) == 1:
            return Chosen(file=found[0])
        raise Invalid(
            f"{path} has {_named(found)}, and it is not known which cluster this is: set "
            f"{environment_name(_CLUSTER_ID)}, {environment_name(CLASS_KEY)} or "
            f"{environment_name(SERVER_PROPERTIES_KEY)}"
        )
    fitting = [one for one in found if one.stem == cluster_id]
    if len(fitting) == 1:
        return Chosen(file=fitting[0], cluster_id=cluster_id, known_by=known_by)
    if fitting:
        raise Invalid(f"{path} has two files of cluster {cluster_id}: {_named(fitting)}")
    raise Invalid(
        f"{path} has no {cluster_id}.properties or {cluster_id}.yaml, for the cluster that "
        f"{known_by} names; it has {_named(found)}"
    )


def _is_candidate(path: Path) -> bool:
    """Not what Kubernetes and editors keep beside files, whose names begin with a dot."""
    return path.suffix in _SUFFIXES and not path.name.startswith(".") and path.is_file()


def _known_cluster(environment: Mapping[str, str]) -> tuple[str | None, str]:
    """The id of the cluster and what says so, by the variables alone: the setting, then the
    provider, then the broker's files.
    """
    keys = (_CLUSTER_ID, CLASS_KEY, PATH_KEY, SERVER_PROPERTIES_KEY, "log.dirs")
    names = {key: environment_name(key) for key in keys}
    given = {
        key: value_of(variables()[name], environment[name], name)
        for key, name in names.items()
        if environment.get(name)
    }
    if _CLUSTER_ID in given:
        return str(given[_CLUSTER_ID]), names[_CLUSTER_ID]
    answer = answers_of(given, environment).values.get(_CLUSTER_ID)
    if answer is not None:
        return str(answer), names[CLASS_KEY]
    rows = {row.key: row for row in settings().values()}
    log_dirs: tuple[Path, ...] = ()
    said = names["log.dirs"]
    if "log.dirs" in given:
        log_dirs = rows["log.dirs"].read(given["log.dirs"], said)
    elif SERVER_PROPERTIES_KEY in given:
        said = names[SERVER_PROPERTIES_KEY]
        log_dirs = read_server_properties(
            rows[SERVER_PROPERTIES_KEY].read(given[SERVER_PROPERTIES_KEY], said)
        ).log_dirs
    ids = {meta.cluster_id for meta in read_meta_properties(log_dirs).values()} - {None}
    if len(ids) > 1:
        raise Invalid(
            f"{said}: the log directories are of clusters {', '.join(sorted(map(str, ids)))}"
        )
    return (next(iter(ids)), said) if ids else (None, "")


def _read_properties(path: Path) -> dict[str, Any]:
    try:
        pairs = parse_properties(path.read_bytes())
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}") from error
    except Corrupt as error:
        raise Invalid(f"{path}: {error}") from error
    known = {row.key: row for row in variables().values()}
    content: dict[str, Any] = {}
    for key, text in pairs.items():
        row = known.get(key)
        content[key] = text if row is None or not text else value_of(row, text, key)
    return {key: value for key, value in content.items() if value != ""}


def read_yaml(path: Path, like: str = "node.id: 1") -> dict[str, Any]:
    """The mapping in a file of lines like `like`; raises Invalid with one line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Invalid(f"{path} cannot be read: {reason}") from error
    content = read_text(text, str(path))
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise Invalid(f"{path} must hold lines like `{like}`")
    return content


def _named(files: Iterable[Path]) -> str:
    return ", ".join(one.name for one in files)
