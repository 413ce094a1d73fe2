"""Which brokers a command connects to, and how, where it asks Kafka and no service."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kip405.addresses import Address
from kip405.errors import Invalid

if TYPE_CHECKING:  # a command loads what it needs
    from kafka_clients.security import KafkaSecurity


def chosen_brokers(
    config: Path | None, bootstrap: str | None
) -> "tuple[Sequence[Address], KafkaSecurity]":
    """By the `kafka.*` settings of a YAML file, and by addresses that replace those in it."""
    from rlm.config import kafka_clients_from_mapping, read_settings

    addresses, security = kafka_clients_from_mapping(
        {} if config is None else read_settings(config)
    )
    if bootstrap is not None:
        addresses = tuple(Address.parse(one.strip()) for one in bootstrap.split(","))
    if not addresses:
        raise Invalid("kafka.bootstrap.servers: missing; give --bootstrap HOST:PORT")
    return addresses, security
