"""Reads the YAML file of a role, fills gaps from the broker's files, and checks every rule."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from kafka_clients.security import KafkaSecurity
from kip405.addresses import Address
from kip405.errors import Invalid
from kip405.settings import Table, missing, rows_of
from rlm.config.broker_files import (
    PLAINTEXT,
    BrokerIdentity,
    read_meta_properties,
    read_server_properties,
)
from rlm.config.common import BY_FILE, BY_KAFKA, NOBODY_ASKS, CommonConfig
from rlm.config.history import read_history_rules
from rlm.config.offload import read_offload_rules
from rlm.config.proxy_clients import check_proxy_clients
from rlm.config.secured import (
    KafkaClientConfig,
    add_secrets_of_environment,
    check_kafka_clients,
    refuse_what_kafka_has,
)
from rlm.config.service import REWRITE, ReaderConfig, ServiceConfig, settings
from rlm.config.stores import STORE_ROWS, is_store_key, read_rules, read_stores
from rsm_plugins.contract.tls import require_both
from rsm_plugins.process.config import yaml_fault

_UNFIT_VALUES = (ValueError, TypeError, AttributeError, LookupError, OverflowError, RecursionError)
"""What PyYAML raises, besides its own errors, for a value that is not of the type it looks like."""


class _KeyIsNoText(Exception):
    """A key is a list or a mapping; `line` counts from 1."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML in which a duplicate key is an error, so that no value is ignored."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise _KeyIsNoText(key_node.start_mark.line + 1)
            if key_node.value in seen:
                raise Invalid(f"{key_node.value}: given twice")
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def load(path: Path) -> ServiceConfig:
    """Read and check the configuration of `rlm serve`; raises Invalid with one line."""
    return from_mapping(read_yaml(path))


def load_reader(path: Path) -> ReaderConfig:
    """Read and check the configuration of `rlm serve --role reader`, likewise."""
    return reader_from_mapping(read_yaml(path))


def kafka_clients_from_mapping(
    content: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> tuple[tuple[Address, ...], KafkaSecurity]:
    """Bootstrap servers, and how to connect there, from the settings of any role; others are not
    looked at, so this works on machines without the broker's files. Empty: no servers are given.
    """
    given = _given(content, environment)
    values = {
        name: row.read(given[row.key])
        for name, row in rows_of(KafkaClientConfig).items()
        if row.key in given
    }
    check_kafka_clients(content)
    rows = settings(ReaderConfig)
    servers, insecure = rows["kafka_bootstrap_servers"], rows["allow_insecure"]
    addresses = servers.read(given[servers.key]) if servers.key in given else ()
    allow_insecure = insecure.read(given[insecure.key]) if insecure.key in given else False
    return addresses, KafkaClientConfig(**values).secured_by(allow_insecure=allow_insecure)


def read_yaml(path: Path, like: str = "node.id: 1") -> dict[str, Any]:
    """The mapping in a file of lines like `like`; raises Invalid with one line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Invalid(f"{path} cannot be read: {reason}") from error
    try:
        content = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise Invalid(f"{path} is not YAML: {yaml_fault(error)}") from None
    except _KeyIsNoText as error:
        raise Invalid(
            f"{path}: line {error.line} has a key that is no text: if the file is a template "
            "({{...}}), render it first; else put the key in quotes"
        ) from None
    except _UNFIT_VALUES as error:
        raise Invalid(
            f"{path} has a value that YAML cannot read ({type(error).__name__}), such as a date "
            "that does not exist or a wrong tag (!!int): put texts in quotes"
        ) from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise Invalid(f"{path} must hold lines like `{like}`")
    return content


def from_mapping(
    content: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> ServiceConfig:
    """Check the given settings, fill what is missing, and build the configuration."""
    given = _given(content, environment)
    values = _values(given, ServiceConfig)
    check_kafka_clients(content)
    _fill_from_broker(values)
    _fill_computed(values)
    _require(values, ServiceConfig)
    config = ServiceConfig(**values)
    config.kafka_security()
    _check_provider(config)
    _check_tls(config)
    _check_peers(config)
    _check_authorization(config)
    check_proxy_clients(config)
    _check_exposure(config)
    _check_grace(config)
    _check_disk_pressure(config)
    return config


def reader_from_mapping(
    content: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> ReaderConfig:
    """The same for a reader: no broker's setting, and the stores that it reads from."""
    given = _given(content, environment)
    known = {row.key for row in settings(ReaderConfig).values()}
    for row in settings().values():
        if row.key in given and row.key not in known:
            raise Invalid(f"{row.key}: a reader has no broker and copies nothing; take it out")
    values = _values(given, ReaderConfig)
    check_kafka_clients(content)
    _fill_advertised(values)
    values.setdefault("principal", "rlm-reader")
    _require(values, ReaderConfig)
    if not values["stores"]:
        raise Invalid(
            "stores: missing; a reader reads from stores: give `plugin` and rsm.config.*, "
            "`plugin.address` or `stores` as the brokers' services have them"
        )
    config = ReaderConfig(**values)
    config.kafka_security()
    _check_tls(config)
    _check_authorization(config)
    _check_exposure(config)
    return config


def _given(content: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The values that are given. A key that is a setting of no role is refused."""
    given = {key: one for key, one in content.items() if one is not None}
    refuse_what_kafka_has(given)
    known = Table(*settings().values(), *STORE_ROWS, listed_in="docs/reference/settings.md")
    known.refuse_unknown(key for key in given if not is_store_key(key))
    add_secrets_of_environment(given, environment)
    return given


def _values(given: Mapping[str, Any], config: type[CommonConfig]) -> dict[str, Any]:
    """The checked values that are given, by attribute."""
    rows = settings(config)
    values = {name: row.read(given[row.key]) for name, row in rows.items() if row.key in given}
    _read_stores(values, given)
    if "offload_rules" in values:
        values["offload_rules"] = read_offload_rules(values["offload_rules"])
    if "proxy_history_rules" in values:
        values["proxy_history_rules"] = read_history_rules(values["proxy_history_rules"])
    return values


def _require(values: Mapping[str, Any], config: type[CommonConfig]) -> None:
    for name, row in settings(config).items():
        if row.is_required and name not in values:
            raise Invalid(missing(row))


def _check_disk_pressure(config: ServiceConfig) -> None:
    if config.on_disk_pressure == "giveback" and config.retention_takeover == "external":
        raise Invalid(
            "on.disk.pressure: must be alarm where retention.takeover is external: the service "
            "alters no topic's configuration then, and can give no retention back"
        )


def _read_stores(values: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Read the stores, and the rules that choose among them."""
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


def _check_provider(config: ServiceConfig) -> None:
    try:
        config.provider()
    except Invalid as error:
        raise Invalid(f"storage.endpoint.provider.class: {error}") from error


def _check_grace(config: ServiceConfig) -> None:
    """H12: what may still be at work must not be swept."""
    if config.copy_deadline_ms >= config.sweep_grace_ms:
        raise Invalid(
            f"copy.deadline.ms: must be below sweep.grace.ms, which is {config.sweep_grace_ms}, "
            f"got {config.copy_deadline_ms}"
        )


def _check_tls(config: CommonConfig) -> None:
    """A certificate goes with its key, and all else about TLS with both."""
    cert, key = config.grpc_tls_cert_file, config.grpc_tls_key_file
    try:
        require_both("grpc.tls.cert.file", cert, "grpc.tls.key.file", key)
    except Invalid as error:
        raise Invalid(str(error)) from error
    http = config.http_tls_cert_file, config.http_tls_key_file
    require_both("http.tls.cert.file", http[0], "http.tls.key.file", http[1])
    for name in ("grpc_tls_client_ca_file", "grpc_tls_ca_file", "grpc_tls_server_name"):
        if cert is None and getattr(config, name):
            raise Invalid(f"{settings()[name].key}: goes with grpc.tls.cert.file")


def _check_peers(config: ServiceConfig) -> None:
    """Whoever writes the settings topic names the addresses of peers, and they get the token."""
    if config.api_token_file and config.grpc_tls and config.grpc_tls_ca_file is None:
        raise Invalid(
            "grpc.tls.ca.file: missing; the service sends the token of api.token.file to its "
            "peers, whose addresses the settings topic names, and without this file a certificate "
            "of any public authority would be enough to get it. Name the authorities of your "
            "services' certificates"
        )


def _check_authorization(config: CommonConfig) -> None:
    """Where callers have rights, each must be known, and services know each other by a token."""
    config.principal_mapping()
    asked = config.authorization
    if asked == NOBODY_ASKS:
        if config.api_principals_file is not None:
            raise Invalid(
                "api.principals.file: goes with api.authorization `file` or `kafka`, which is none"
            )
        return
    if asked == BY_FILE and config.api_principals_file is None:
        raise Invalid("api.principals.file: missing; api.authorization is file")
    if config.api_token_file is None:
        raise Invalid(
            f"api.token.file: missing; api.authorization is {asked}, and services know each other "
            "by the token in that file. Give it to no other caller"
        )
    has_certificates = config.grpc_tls_client_ca_file is not None
    if asked == BY_KAFKA and config.api_principals_file is None and not has_certificates:
        raise Invalid(
            "api.authorization: kafka, but no caller has a principal; give api.principals.file for "
            "tokens, or grpc.tls.client.ca.file for client certificates"
        )


def _check_exposure(config: CommonConfig) -> None:
    """A listener without TLS must be loopback, unless allow_insecure is set."""
    if config.allow_insecure:
        return
    _check_api(config)
    _check_http(config)
    for store in config.stores:
        if store.address and not store.address.is_private and store.tls is None:
            raise Invalid(
                f"{store.where}plugin.address: {store.address} is not loopback; give "
                "plugin.tls.ca.file, use a loopback address, or set allow_insecure: true"
            )


def _check_http(config: CommonConfig) -> None:
    """Beyond loopback HTTP needs TLS and a token."""
    if config.http_listen.is_private:
        return
    what = f"http.listen: {config.http_listen} is not loopback"
    if config.http_tls_cert_file is None:
        raise Invalid(
            f"{what} and has no TLS; give http.tls.cert.file and http.tls.key.file, use a loopback "
            "address, or set allow_insecure: true"
        )
    if config.http_token_file is None:
        raise Invalid(
            f"{what} and everybody could read metrics there; give http.token.file, or set "
            "allow_insecure: true"
        )


def _check_api(config: CommonConfig) -> None:
    """Beyond loopback the API needs TLS, and tokens or client certificates."""
    if config.grpc_listen.is_private:
        return
    what = f"grpc.listen: {config.grpc_listen} is not loopback"
    if config.grpc_tls is None:
        raise Invalid(
            f"{what} and has no TLS; give grpc.tls.cert.file and grpc.tls.key.file, "
            "use a loopback address, or set allow_insecure: true"
        )
    if config.api_token_file is None and config.grpc_tls_client_ca_file is None:
        raise Invalid(
            f"{what} and everybody could call there; give api.token.file or "
            "grpc.tls.client.ca.file, or set allow_insecure: true"
        )
