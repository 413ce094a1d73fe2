"""The environment provider: who says which cluster, broker and log directories a service is beside.

`environment.provider.class` names one of three that are built in, or a user's own class. Its
answers fill settings that are not given; what is given wins, and what the broker and its files say
is compared with both as before. It is asked whenever settings are read: at the start, by a reload,
by commands and probes. Pinterest's KafkaEnvironmentProvider is the model.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from kip405.errors import Invalid
from kip405.settings import rows_of
from rlm.config.broker_files import read_meta_properties, read_server_properties
from rlm.config.common import CommonConfig
from rlm.config.service import ServiceConfig

CLASS_KEY = "environment.provider.class"
PATH_KEY = "environment.provider.path"
SERVER_PROPERTIES_KEY = "broker.server.properties"
PODINFO = Path("/etc/podinfo")
ANNOTATION = "kafka-rlm/"
"""Beginning of the annotations of a pod that `kubernetes` reads."""

_POD_INDEX = "apps.kubernetes.io/pod-index"
_ORDINAL = re.compile(r".*-([0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaEnvironment:
    """What a provider answers; None and empty: it does not know. Lists may be comma-separated
    texts. `zookeeper` is never connected to: see `settings_of`.
    """

    cluster_id: str | None = None
    broker_id: int | None = None
    log_dirs: Sequence[str | Path] | str = ()
    bootstrap_servers: Sequence[str] | str = ()
    zookeeper: str | None = None


class EnvironmentProvider(Protocol):
    """Fast, without a network: it is asked by every probe. A user's own class is created as
    `Class(variables={name: text})`, with the variables of the process.
    """

    def environment(self) -> KafkaEnvironment:
        """What is known now; ValueError with one line where that cannot be found out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What a provider gives to settings, by key; `provider` is its name in the settings.

    `zookeeper` is answered and not used.
    """

    provider: str = ""
    values: Mapping[str, Any]
    zookeeper: str | None = None


NO_ANSWERS = Answers(values={})


def answers_of(given: Mapping[str, Any], variables: Mapping[str, str]) -> Answers:
    """What the provider of these settings answers. Invalid: it cannot be used, or what it answers
    cannot be a setting. Settings of the provider that are wrong themselves are refused elsewhere.
    """
    rows = {row.key: row for row in rows_of(ServiceConfig).values()}
    read = {}
    for key in (CLASS_KEY, PATH_KEY, SERVER_PROPERTIES_KEY):
        if given.get(key) is None:
            continue
        try:
            read[key] = rows[key].read(given[key])
        except Invalid:
            return NO_ANSWERS
    if CLASS_KEY not in read:
        if PATH_KEY in read:
            raise Invalid(f"{PATH_KEY}: it is of {CLASS_KEY}, which is not set")
        return NO_ANSWERS
    name = read[CLASS_KEY]
    where = f"{CLASS_KEY}: {name}"
    path = read.get(PATH_KEY)
    if name == "server.properties":
        path = path or read.get(SERVER_PROPERTIES_KEY)
    provider = _provider(name, path, variables)
    try:
        found = provider.environment()
    except Exception as error:  # code of users, which may raise anything
        raise Invalid(f"{where}: {_said(error)}") from error
    if not isinstance(found, KafkaEnvironment):
        raise Invalid(f"{where} has no KafkaEnvironment, but {found!r:.100}")
    values = settings_of(found, where)
    return Answers(provider=name, values=values, zookeeper=found.zookeeper or None)


def settings_of(found: KafkaEnvironment, where: str) -> dict[str, Any]:
    """The settings that the answers give, by key, as a file would have them; Invalid.

    No service asks ZooKeeper for anything, also beside brokers that have one: brokers are found by
    bootstrap servers. An answer with ZooKeeper alone therefore leads to no broker, and is refused.
    """
    if found.zookeeper and not found.bootstrap_servers:
        raise Invalid(
            f"{where} answers ZooKeeper {found.zookeeper} and no bootstrap servers: brokers are "
            "never found through ZooKeeper, with KRaft or without; answer bootstrap servers"
        )
    answers = {
        "cluster.id": found.cluster_id,
        "node.id": found.broker_id,
        "log.dirs": _listed(found.log_dirs),
        "kafka.bootstrap.servers": _listed(found.bootstrap_servers),
    }
    rows = {row.key: row for row in rows_of(ServiceConfig).values()}
    values = {key: value for key, value in answers.items() if value not in (None, "", [])}
    for key, value in values.items():
        rows[key].read(value, f"{where}: {key}")
    return values


def filled(
    given: Mapping[str, Any], answers: Answers, config: type[CommonConfig]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What is given with the answers for settings of a role that are not, and the keys of those."""
    known = {row.key for row in rows_of(config).values()}
    taken = {key: one for key, one in answers.values.items() if key in known and key not in given}
    return {**given, **taken}, tuple(taken)


def _provider(name: str, path: Path | None, variables: Mapping[str, str]) -> EnvironmentProvider:
    built_in: Mapping[str, Callable[[], EnvironmentProvider]] = {
        "server.properties": lambda: OfServerProperties(path),
        "variables": lambda: OfVariables(variables),
        "kubernetes": lambda: OfKubernetes(path or PODINFO, variables),
    }
    if name in built_in:
        return built_in[name]()
    where = f"{CLASS_KEY}: {name}"
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise Invalid(f"{where} is none of {', '.join(built_in)}, and not module:Class")
    try:
        made = getattr(import_module(module), attribute)(variables=dict(variables))
    except Exception as error:  # code of users, which may raise anything
        raise Invalid(f"{where} cannot be used: {_said(error)}") from error
    if not callable(getattr(made, "environment", None)):
        raise Invalid(f"{where} has no method environment()")
    provider: EnvironmentProvider = made
    return provider


class OfServerProperties:
    """The broker's server.properties, and the meta.properties of the log directories it names."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def environment(self) -> KafkaEnvironment:
        """See EnvironmentProvider; the inter-broker listener is the bootstrap server."""
        if self._path is None:
            raise Invalid(f"needs {PATH_KEY} or {SERVER_PROPERTIES_KEY}, the path of that file")
        identity = read_server_properties(self._path, key=PATH_KEY)
        metas = read_meta_properties(identity.log_dirs)
        ids = sorted({one.cluster_id for one in metas.values() if one.cluster_id})
        if len(ids) > 1:
            raise Invalid(f"the log directories of {self._path} are of clusters {', '.join(ids)}")
        nodes = {one.node_id for one in metas.values() if one.node_id is not None}
        node_id = identity.node_id
        if node_id is None and len(nodes) == 1:
            node_id = next(iter(nodes))
        direct = identity.listeners.get(identity.inter_broker_listener or "")
        return KafkaEnvironment(
            cluster_id=ids[0] if ids else None,
            broker_id=node_id,
            log_dirs=identity.log_dirs,
            bootstrap_servers=() if direct is None else (str(direct),),
        )


class OfVariables:
    """The variables that Kafka's own container image is configured with."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def environment(self) -> KafkaEnvironment:
        """See EnvironmentProvider."""
        of = self._variables.get
        return KafkaEnvironment(
            cluster_id=of("KAFKA_CLUSTER_ID") or of("CLUSTER_ID"),
            broker_id=_number(
                "KAFKA_NODE_ID or KAFKA_BROKER_ID",
                _first(of("KAFKA_NODE_ID"), of("KAFKA_BROKER_ID")),
            ),
            log_dirs=of("KAFKA_LOG_DIRS") or of("KAFKA_LOG_DIR") or "",
            bootstrap_servers=of("KAFKA_BOOTSTRAP_SERVERS") or "",
            zookeeper=of("KAFKA_ZOOKEEPER_CONNECT"),
        )


class OfKubernetes:
    """The downward API of the pod that the broker is in: a volume with `labels`, `annotations` and
    `name`, and variables. Annotations come first, then labels, variables and the pod's name.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._folder = folder
        self._variables = variables

    def environment(self) -> KafkaEnvironment:
        """See EnvironmentProvider. A folder that is not mounted has nothing to say."""
        said = self._pairs("annotations")
        other = OfVariables(self._variables).environment()
        node_id = _first(
            said.get(f"{ANNOTATION}node-id"),
            self._pairs("labels").get(_POD_INDEX),
            self._variables.get("POD_INDEX"),
        )
        broker_id = _number("the pod's index", node_id)
        if broker_id is None:
            broker_id = self._ordinal() if other.broker_id is None else other.broker_id
        return KafkaEnvironment(
            cluster_id=said.get(f"{ANNOTATION}cluster-id") or other.cluster_id,
            broker_id=broker_id,
            log_dirs=said.get(f"{ANNOTATION}log-dirs") or other.log_dirs,
            bootstrap_servers=said.get(f"{ANNOTATION}bootstrap-servers") or other.bootstrap_servers,
            zookeeper=other.zookeeper,
        )

    def _ordinal(self) -> int | None:
        """The number at the end of the name of a StatefulSet's pod."""
        name = self._text("name").strip() or self._variables.get("POD_NAME", "")
        match = _ORDINAL.fullmatch(name)
        return int(match[1]) if match else None

    def _pairs(self, file: str) -> dict[str, str]:
        """The lines `key="value"` as the kubelet writes them."""
        found = {}
        for line in self._text(file).splitlines():
            key, equals, value = line.partition("=")
            if not equals:
                continue
            try:
                read = json.loads(value)
            except ValueError as error:
                raise Invalid(f"{self._folder / file}: the value of {key} is not quoted") from error
            found[key] = str(read)
        return found

    def _text(self, file: str) -> str:
        path = self._folder / file
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(f"{path} cannot be read: {_said(error)}") from error


def _first(*texts: str | None) -> str | None:
    return next((text for text in texts if text), None)


def _number(what: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise Invalid(f"{what} is {text!r}, which is no node id")
    return int(text)


def _listed(values: Sequence[str | Path] | str) -> list[str] | str:
    return values if isinstance(values, str) else [str(one) for one in values]


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, Invalid) else f"{type(error).__name__}: {error}"
