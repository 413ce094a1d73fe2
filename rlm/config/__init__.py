"""Settings of `rlm serve`: the rows of its tables, and what is read by them."""

from rlm.config.attached import AttachedConfig
from rlm.config.common import CommonConfig
from rlm.config.directory import read_settings, read_yaml
from rlm.config.loader import (
    kafka_clients_from_mapping,
    load,
    load_attached,
    load_reader,
)
from rlm.config.service import ReaderConfig, ServiceConfig

__all__ = [
    "AttachedConfig",
    "CommonConfig",
    "ReaderConfig",
    "ServiceConfig",
    "kafka_clients_from_mapping",
    "load",
    "load_attached",
    "load_reader",
    "read_settings",
    "read_yaml",
]
