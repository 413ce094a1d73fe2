"""Reads the settings of a role, fills gaps from the broker's files, and checks every rule."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kafka_clients.security import KafkaSecurity
from kip405.addresses import Address
from kip405.errors import Invalid
from kip405.settings import Table, missing, rows_of
from rlm.config.attached import AttachedConfig
from rlm.config.broker_files import (
    PLAINTEXT,
    BrokerIdentity,
    read_meta_properties,
    read_server_properties,
)
from rlm.config.common import CommonConfig
from rlm.config.directory import read_settings
from rlm.config.draft_names import DRAFT_TODAY, ENABLE, draft_names_in, under_todays_names
from rlm.config.environment import names_setting, naming_variables, overridden
from rlm.config.history import read_history_rules
from rlm.config.machine import usable_memory_bytes, usable_processors, worker_count
from rlm.config.memory import READER_PARTS, Memory, Part, service_parts
from rlm.config.offload import read_offload_rules
from rlm.config.provider import CLASS_KEY, NO_ANSWERS, Answers, answers_of, filled
from rlm.config.refusals import Refusals
from rlm.config.rules import ATTACHED_RULES, READER_RULES, SERVICE_RULES
from rlm.config.secured import KafkaClientConfig, check_kafka_clients, refuse_what_kafka_has
from rlm.config.service import REWRITE, ReaderConfig, ServiceConfig, settings
from rlm.config.stores import STORE_ROWS, is_store_key, read_rules, read_stores

C = TypeVar("C", bound=CommonConfig)
_KAFKA_KEYS = "kafka."


def load(path: Path) -> ServiceConfig:
    """Read and check the configuration of `rlm serve`; raises Invalid with one line."""
    return from_mapping(read_settings(path))


def load_reader(path: Path) -> ReaderConfig:
    """Read and check the configuration of `rlm serve --role reader`, likewise."""
    return reader_from_mapping(read_settings(path))


def load_attached(path: Path) -> AttachedConfig:
    """Read and check the configuration of `rlm attach`, likewise."""
    return attached_from_mapping(read_settings(path))


def kafka_clients_from_mapping(
    content: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> tuple[tuple[Address, ...], KafkaSecurity]:
    """Bootstrap servers, and how to connect there, from the settings of any role; others are not
    looked at, so this works on machines without the broker's files. Empty: no servers are given.
    """
    refusals = _refusals(environment)
    given = _given(content, environment, refusals)
    if rows_of(ReaderConfig)["kafka_bootstrap_servers"].key not in given:
        given = _answered(given, environment, refusals, ReaderConfig)
    values = {
        name: row.read(given[row.key])
        for name, row in rows_of(KafkaClientConfig).items()
        if row.key in given
    }
    check_kafka_clients(given, environment)
    rows = settings(ReaderConfig)
    servers, insecure = rows["kafka_bootstrap_servers"], rows["allow_insecure"]
    addresses = servers.read(given[servers.key]) if servers.key in given else ()
    allow_insecure = insecure.read(given[insecure.key]) if insecure.key in given else False
    return addresses, KafkaClientConfig(**values).secured_by(allow_insecure=allow_insecure)


def from_mapping(
    content: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> ServiceConfig:
    """Check the given settings, fill what is missing, and build the configuration."""
    return _built(build_service(content, environment, _refusals(environment)))


def reader_from_mapping(
    content: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> ReaderConfig:
    """The same for a reader: no broker's setting, and the stores that it reads from."""
    return _built(build_reader(content, environment, _refusals(environment)))


def attached_from_mapping(
    content: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> AttachedConfig:
    """The same for an attached reader, which asks no broker."""
    refusals = _refusals(environment)
    given = _given(content, environment, refusals)
    for key in (one for one in given if one.startswith(_KAFKA_KEYS)):
        with refusals.taken():
            raise Invalid(f"{key}: an attached reader asks no broker; take it out")
    return _built(_build_reader(given, AttachedConfig, ATTACHED_RULES, refusals))


def build_service(
    content: Mapping[str, Any], environment: Mapping[str, str], refusals: Refusals
) -> ServiceConfig | None:
    """See from_mapping. None: settings were refused. Rules between settings are checked once every
    setting by itself is right, as one that is wrong would break others.
    """
    given = _given(content, environment, refusals)
    given = _answered(given, environment, refusals, ServiceConfig)
    values = _values(given, ServiceConfig, refusals)
    for fill in (_fill_from_broker, _fill_computed, _fill_service_memory):
        with refusals.taken():
            fill(values)
    _require(values, given, ServiceConfig, refusals)
    with refusals.taken():
        check_kafka_clients(given, environment)
    if refusals.found:
        return None
    config = ServiceConfig(**values, draft_names=draft_names_in(content, environment))
    for rule in SERVICE_RULES:
        with refusals.taken():
            rule(config)
    return None if refusals.found else config


def build_reader(
    content: Mapping[str, Any], environment: Mapping[str, str], refusals: Refusals
) -> ReaderConfig | None:
    """See reader_from_mapping; otherwise as build_service."""
    given = _given(content, environment, refusals)
    given = _answered(given, environment, refusals, ReaderConfig)

    def check_clients() -> None:
        check_kafka_clients(given, environment)

    return _build_reader(given, ReaderConfig, READER_RULES, refusals, check_clients)


def _build_reader(
    given: Mapping[str, Any],
    config: type[C],
    rules: Sequence[Callable[[C], None]],
    refusals: Refusals,
    check_clients: Callable[[], None] = lambda: None,
) -> C | None:
    """The configuration of a service without a broker, by the rows and the rules of its role."""
    known = {row.key for row in settings(config).values()}
    for key in (ENABLE, *(row.key for row in settings().values())):
        if key in given and key not in known:
            with refusals.taken():
                raise Invalid(f"{key}: a reader has no broker and copies nothing; take it out")
    values = _values(given, config, refusals)
    for fill in (_fill_advertised, _fill_reader_memory):
        with refusals.taken():
            fill(values)
    values.setdefault("principal", "rlm-reader")
    _require(values, given, config, refusals)
    with refusals.taken():
        check_clients()
    with refusals.taken():
        if values.get("stores") == ():
            raise Invalid(
                "stores: missing; a reader reads from stores: give `plugin` and rsm.config.*, "
                "`plugin.address` or `stores` as the brokers' services have them"
            )
    if refusals.found:
        return None
    built = config(**values)
    for rule in rules:
        with refusals.taken():
            rule(built)
    return None if refusals.found else built


def _refusals(environment: Mapping[str, str]) -> Refusals:
    return Refusals(partial(naming_variables, environment=environment))


def _built(config: C | None) -> C:
    assert config is not None  # noqa: S101 - what is refused was raised
    return config


def _refuse_nested(key: str, value: Any, known: Table) -> None:
    """Invalid where names below `key` would be settings, with one of them as it must be written."""
    below = (f"{key}.{name}" for name in value) if isinstance(value, Mapping) else ()
    for full in below:
        if known.row(key) is None and known.row(full) is not None:
            raise Invalid(f"{key}: settings are not nested: write {full}: VALUE in one line")


def _given(
    content: Mapping[str, Any], environment: Mapping[str, str], refusals: Refusals
) -> dict[str, Any]:
    """The values that are given. A key that is a setting of no role is refused."""
    in_file = {key: one for key, one in content.items() if one is not None}
    refusals.complete_also(partial(_naming_drafts, names=draft_names_in(content, environment)))
    in_file = under_todays_names(in_file, refusals)
    known = Table(*settings().values(), *STORE_ROWS, listed_in="docs/reference/settings.md")
    for key, value in in_file.items():
        with refusals.taken():
            refuse_what_kafka_has(key)
            if not is_store_key(key) and key != ENABLE:
                _refuse_nested(key, value, known)
                known.refuse_unknown([key])
    return overridden(in_file, environment, refusals)


def _answered(
    given: dict[str, Any],
    environment: Mapping[str, str],
    refusals: Refusals,
    config: type[CommonConfig],
) -> dict[str, Any]:
    """What is given, with the answers of the environment provider for what is not."""
    answers = NO_ANSWERS
    with refusals.taken():
        answers = answers_of(given, environment)
    completed, keys = filled(given, answers, config)
    refusals.complete_also(partial(_naming_answers, answers=answers, keys=keys))
    return completed


def answers_for(
    content: Mapping[str, Any], environment: Mapping[str, str], config: type[CommonConfig]
) -> tuple[Answers, Mapping[str, Any], tuple[str, ...]]:
    """What the provider of settings that can be used answers, what is given besides, and the keys
    that are taken from it.
    """
    given = _given(content, environment, _refusals(environment))
    answers = answers_of(given, environment)
    return answers, given, filled(given, answers, config)[1]


def _naming_answers(text: str, answers: Answers, keys: Sequence[str]) -> str:
    """A refusal with the settings it names that the provider gives: they are in no file."""
    rows = (row for row in settings().values() if row.key in keys)
    said = [row.key for row in rows if CLASS_KEY not in text and names_setting(text, row)]
    if not said:
        return text
    return f"{text} ({CLASS_KEY} {answers.provider} gives {', '.join(said)})"


def _naming_drafts(text: str, names: Sequence[str]) -> str:
    """A refusal with the names of that draft that give the settings it names."""
    rows = {row.key: row for row in settings().values()}
    said = [
        f"{name} gives {DRAFT_TODAY[name]}"
        for name in names
        if name not in text and name in DRAFT_TODAY and names_setting(text, rows[DRAFT_TODAY[name]])
    ]
    return f"{text} ({', '.join(said)})" if said else text


def _values(
    given: Mapping[str, Any], config: type[CommonConfig], refusals: Refusals
) -> dict[str, Any]:
    """The checked values that are given, by attribute."""
    values: dict[str, Any] = {}
    for name, row in settings(config).items():
        if row.key in given:
            with refusals.taken():
                values[name] = row.read(given[row.key])
    with refusals.taken():
        _read_stores(values, given)
    for name, read in _RULE_READERS.items():
        if name in values:
            with refusals.taken():
                values[name] = read(values[name])
    return values


_RULE_READERS: Mapping[str, Callable[[Any], Any]] = {
    "offload_rules": read_offload_rules,
    "proxy_history_rules": read_history_rules,
}


def _require(
    values: Mapping[str, Any],
    given: Mapping[str, Any],
    config: type[CommonConfig],
    refusals: Refusals,
) -> None:
    """What is given and not among the values was refused before."""
    for name, row in settings(config).items():
        if row.is_required and name not in values and row.key not in given:
            with refusals.taken():
                raise Invalid(missing(row) + _unfound(name, values.get("log_dirs", ())))


def _unfound(name: str, log_dirs: Iterable[Path]) -> str:
    """Why the log directories do not give it: a volume is not mounted, or a disk is empty."""
    if name not in _OF_META_PROPERTIES:
        return ""
    where = [f"{one} {'has none' if one.is_dir() else 'is not there'}" for one in log_dirs]
    return f"; meta.properties of log.dirs gives it, and {', '.join(where)}" if where else ""


_OF_META_PROPERTIES = ("cluster_id", "node_id")


def _read_stores(values: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Read the stores, and the rules that choose among them."""
    values.pop("stores", None)  # until it is checked
    stores = values["stores"] = read_stores(given)
    if "storage_endpoint_rules" in values:
        values["storage_endpoint_rules"] = read_rules(values["storage_endpoint_rules"], stores)
        if "storage_endpoint_provider_class" in values:
            raise Invalid(
                "storage.endpoint.provider.class: it replaces storage.endpoint.rules; "
                "take one of them away"
            )


def _fill_from_broker(values: dict[str, Any]) -> None:
    """server.properties first, then meta.properties: fill gaps, and refuse what disagrees."""
    properties = values.get("broker_server_properties")
    if properties is not None:
        _fill_from_properties(values, read_server_properties(properties), properties)
    for path, meta in read_meta_properties(values.get("log_dirs", ())).items():
        _agree(values, "cluster_id", meta.cluster_id, path)
        _agree(values, "node_id", meta.node_id, path)


def _fill_from_properties(values: dict[str, Any], identity: BrokerIdentity, path: Path) -> None:
    _agree(values, "node_id", identity.node_id, path)
    if identity.log_dirs:
        known = values.setdefault("log_dirs", identity.log_dirs)
        if {item.resolve() for item in known} != {item.resolve() for item in identity.log_dirs}:
            listed = ",".join(map(str, identity.log_dirs))
            raise Invalid(f"log.dirs: must be {listed} as in {path}")
    tiered = str(values.get("broker_tiered_listener_name", "TIERED")).upper()
    is_shared = values.get("proxy_attach") == REWRITE
    _check_listeners(identity, tiered, path, is_shared=is_shared)
    values.setdefault("broker_tiered_address", identity.listeners[tiered])
    direct = identity.listeners.get(identity.inter_broker_listener or "")
    if direct is not None:
        values.setdefault("broker_direct_address", direct)
    _check_port(values, "broker_tiered_address", {identity.listeners[tiered].port}, path)
    own = {name: one for name, one in identity.listeners.items() if is_shared or name != tiered}
    _check_port(values, "broker_direct_address", {one.port for one in own.values()}, path)
    protocol = values.get("kafka_security_protocol", PLAINTEXT)
    _check_direct_protocol(values.get("broker_direct_address"), identity, own, path, protocol)


def _check_direct_protocol(
    direct: Address | None,
    identity: BrokerIdentity,
    listeners: Mapping[str, Address],
    path: Path,
    protocol: str,
) -> None:
    """A protocol that is not the listener's is refused at once, not retried."""
    if direct is None:
        return
    controllers = {name.upper() for name in identity.controller_listeners}
    own = {name: one for name, one in listeners.items() if name not in controllers}
    for name, address in own.items():
        there = identity.protocols.get(name, PLAINTEXT)
        if address.port != direct.port or there == protocol:
            continue
        fit = [
            f"broker.direct.address to {other} (listener {one})"
            for one, other in own.items()
            if identity.protocols.get(one) == protocol
        ]
        advice = " or ".join([f"kafka.security.protocol to {there}, with what it needs", *fit])
        raise Invalid(
            f"kafka.security.protocol: is {protocol}, and listener {name} of {path}, which is "
            f"broker.direct.address, is {there}; set {advice}"
        )


def _check_listeners(identity: BrokerIdentity, tiered: str, path: Path, *, is_shared: bool) -> None:
    """H21: answers spliced into a follower's fetch would corrupt its log. `is_shared`: brokers
    advertise the listener past the proxy, so followers come to it past the proxy too.
    """
    key = "broker.tiered.listener.name"
    if tiered == identity.inter_broker_listener and not is_shared:
        raise Invalid(f"{key}: {tiered} must not be the inter-broker listener of {path} (H21)")
    if tiered in {name.upper() for name in identity.controller_listeners}:
        raise Invalid(f"{key}: {tiered} must not be a controller listener of {path} (H21)")
    if tiered not in identity.listeners:
        names = ", ".join(identity.listeners)
        advice = "; name the one that clients use" if is_shared else ""
        raise Invalid(f"{key}: {path} has no listener {tiered}; it has {names}{advice}")


def _check_port(values: Mapping[str, Any], name: str, ports: set[int], path: Path) -> None:
    address = values.get(name)
    if isinstance(address, Address) and address.port not in ports:
        listed = " or ".join(str(port) for port in sorted(ports))
        key = settings()[name].key
        raise Invalid(f"{key}: {address} does not agree with {path}, which has port {listed}")


def _agree(values: dict[str, Any], name: str, found: Any, path: Path) -> None:
    if found is None:
        return
    known = values.setdefault(name, found)
    if known != found:
        raise Invalid(f"{settings()[name].key}: {known} does not agree with {found} of {path}")


def _fill_computed(values: dict[str, Any]) -> None:
    """Defaults that follow from other settings."""
    _fill_advertised(values)
    if "broker_direct_address" in values:
        values.setdefault("kafka_bootstrap_servers", (values["broker_direct_address"],))
    if "node_id" in values:
        values.setdefault("principal", f"rlm-{values['node_id']}")
    if "sweep_grace_ms" in values:
        longest = settings()["copy_deadline_ms"].default
        values.setdefault("copy_deadline_ms", min(longest, values["sweep_grace_ms"] * 3 // 4))


def _fill_service_memory(values: dict[str, Any]) -> None:
    workers = worker_count(values.get("proxy_workers", 0), usable_processors())
    name = "remote_log_manager_copier_thread_pool_size"
    copy_tasks = values.get(name, settings()[name].default)
    _fill_memory(values, service_parts(copy_tasks), workers)


def _fill_reader_memory(values: dict[str, Any]) -> None:
    _fill_memory(values, READER_PARTS, 0)


def _fill_memory(values: dict[str, Any], parts: Sequence[Part], workers: int) -> None:
    memory = Memory(
        parts=parts,
        max_bytes=values.get("memory_max_bytes"),
        limit_bytes=usable_memory_bytes(),
        workers=workers,
    )
    given = {part.name: values[part.name] for part in parts if part.name in values}
    values["memory_max_bytes"] = memory.whole_bytes(given)
    values |= memory.divided(given)


def _fill_advertised(values: dict[str, Any]) -> None:
    """The advertised address is the listening address, unless it is set."""
    for advertised, listen in (
        ("proxy_advertised", "proxy_listen"),
        ("grpc_advertised", "grpc_listen"),
    ):
        address = values.get(advertised, values.get(listen))
        if address is None:
            continue
        if address.is_wildcard:
            key = settings()[advertised].key
            raise Invalid(f"{key}: must be an address to connect to, got {address}")
        values[advertised] = address
