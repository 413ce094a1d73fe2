"""Settings of `rlm serve`: one typed table, from which checks and docs follow."""

from rlm.config.errors import ConfigError
from rlm.config.loader import load
from rlm.config.service import ServiceConfig
from rlm.config.values import Address

__all__ = ["Address", "ConfigError", "ServiceConfig", "load"]
