"""Sets up structlog for a process of this project: services and plugins log alike, on stderr.

Log lines are structlog events, one a line, with key=value fields: JSON for machines or console
format for people. Values that must stay secret are replaced in the rendered line.
"""

import logging
import sys
from collections.abc import Sequence
from typing import Any

import structlog

from kip405.settings import masked

_LEVELS = logging.getLevelNamesMapping()


class _LowestLevel:
    """Drops what is below a level, which can be changed while loggers are in use: those that
    structlog makes for a level keep it for ever.
    """

    def __init__(self) -> None:
        self.level = logging.INFO

    def __call__(self, logger: object, name: str, event: Any) -> Any:
        if _LEVELS["ERROR" if name == "exception" else name.upper()] < self.level:
            raise structlog.DropEvent
        return event


_LOWEST = _LowestLevel()


def change_log_level(level: str) -> None:
    """From now on nothing below that level is logged by this process."""
    _LOWEST.level = _LEVELS[level.upper()]


def configure_logs(*, level: str, log_format: str = "json", secrets: Sequence[str] = ()) -> None:
    """Set up structlog for this process; the format is json or console."""

    def mask(logger: object, name: str, line: Any) -> str:
        return masked(line, secrets)

    change_log_level(level)
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer()
    )
    structlog.configure(
        processors=[
            _LOWEST,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
            mask,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
