"""Reads a broker's own files, to fill in missing settings and to compare the configured ones.

The files are server.properties and the meta.properties of each log directory. Whether the running
broker agrees is checked later, through its direct listener (H13).
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kip405.addresses import Address
from kip405.checkpoints import MetaProperties, parse_meta_properties, parse_properties
from kip405.errors import Corrupt, Invalid

_DEFAULT_LISTENERS = "PLAINTEXT://:9092"
PLAINTEXT = "PLAINTEXT"
_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdentity:
    """From server.properties; None and empty where the file does not say. `protocols` are those of
    the listeners, as far as the file names them.
    """

    node_id: int | None
    log_dirs: tuple[Path, ...]
    listeners: Mapping[str, Address]
    protocols: Mapping[str, str]
    inter_broker_listener: str | None
    controller_listeners: frozenset[str]


def read_server_properties(path: Path, key: str = "broker.server.properties") -> BrokerIdentity:
    """Raises Invalid naming the file, and the setting that names it."""
    try:
        return broker_identity(parse_properties(path.read_bytes()))
    except OSError as error:
        raise Invalid(f"{key}: {path} cannot be read: {error.strerror}") from error
    except (Corrupt, Invalid, ValueError) as error:
        raise Invalid(f"{key}: {path}: {error}") from error


def broker_identity(properties: Mapping[str, str]) -> BrokerIdentity:
    """From parsed server.properties; ValueError or Invalid: a value makes no sense."""
    node_id = properties.get("node.id", properties.get("broker.id"))
    dirs = properties.get("log.dirs") or properties.get("log.dir") or ""
    listeners = _listeners(properties.get("listeners", _DEFAULT_LISTENERS))
    protocol_map = properties.get("listener.security.protocol.map", "")
    protocols = {name: protocol_of(name, protocol_map) for name in listeners}
    return BrokerIdentity(
        node_id=int(node_id) if node_id is not None else None,
        log_dirs=tuple(Path(item.strip()) for item in dirs.split(",") if item.strip()),
        listeners=listeners,
        protocols={name: protocol for name, protocol in protocols.items() if protocol},
        inter_broker_listener=_inter_broker_listener(properties),
        controller_listeners=frozenset(_names(properties.get("controller.listener.names", ""))),
    )


def protocol_of(listener: str, protocol_map: str) -> str:
    """Security protocol of a listener by listener.security.protocol.map; without a row there it is
    named by its protocol, else not known (empty).
    """
    pairs = (pair.partition(":") for pair in protocol_map.split(","))
    protocols = {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}
    default = listener.upper() if listener.upper() in _PROTOCOLS else ""
    return protocols.get(listener.upper(), default)


def advertised_address(listener: str, advertised_listeners: str) -> Address | None:
    """The address that a broker advertises for a listener; None where the files do not say."""
    for item in _names(advertised_listeners):
        name, _, address = item.partition("://")
        if name.strip().upper() == listener.upper():
            with suppress(Invalid):
                return _address(address)
    return None


def read_meta_properties(log_dirs: tuple[Path, ...]) -> dict[Path, MetaProperties]:
    """meta.properties of each log directory that has one (an emptied disk has none, H4)."""
    found = {}
    for log_dir in log_dirs:
        path = log_dir / "meta.properties"
        try:
            found[path] = parse_meta_properties(path.read_bytes())
        except FileNotFoundError:
            continue
        except OSError as error:
            raise Invalid(f"log.dirs: {path} cannot be read: {error.strerror}") from error
        except Corrupt as error:
            raise Invalid(f"log.dirs: {path}: {error}") from error
    return found


def _listeners(text: str) -> dict[str, Address]:
    """`NAME://host:port,...`; no host means all interfaces, which here is loopback."""
    listeners = {}
    for item in _names(text):
        name, separator, rest = item.partition("://")
        if not separator:
            raise ValueError(f"listeners has {item!r}")
        has_host = bool(rest.rpartition(":")[0])
        address = _address(rest if has_host else f"127.0.0.1{rest}")
        reachable = "127.0.0.1" if address.is_wildcard else address.host
        listeners[name.upper()] = Address(host=reachable, port=address.port)
    return listeners


def _address(text: str) -> Address:
    """`host:port`, where Kafka takes IPv6 without brackets too. Invalid likewise."""
    host, _, port = text.rpartition(":")
    is_bare_v6 = ":" in host and not host.startswith("[")
    return Address.parse(f"[{host}]:{port}" if is_bare_v6 else text)


def _inter_broker_listener(properties: Mapping[str, str]) -> str | None:
    """By name, or by protocol when the listener has the protocol's name (Kafka's default)."""
    name = properties.get("inter.broker.listener.name")
    if name is None:
        name = properties.get("security.inter.broker.protocol", "PLAINTEXT")
    return name.upper()


def _names(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
