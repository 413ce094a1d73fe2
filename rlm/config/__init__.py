"""Settings of `rlm serve`: one typed table, from which checks and documentation are derived."""

from rlm.config.loader import load, load_reader
from rlm.config.service import CommonConfig, ReaderConfig, ServiceConfig
from rlm.config.values import ConfigError

__all__ = [
    "CommonConfig",
    "ConfigError",
    "ReaderConfig",
    "ServiceConfig",
    "load",
    "load_reader",
]
