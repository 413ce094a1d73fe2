"""Settings of `rlm serve`: the rows of its tables, and what is read by them."""

from rlm.config.common import CommonConfig
from rlm.config.loader import load, load_reader
from rlm.config.service import ReaderConfig, ServiceConfig

__all__ = ["CommonConfig", "ReaderConfig", "ServiceConfig", "load", "load_reader"]
