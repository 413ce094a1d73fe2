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


def configure_logs(*, level: str, log_format: str = "json", secrets: Sequence[str] = ()) -> None:
    """Set up structlog for this process; the format is json or console."""

    def mask(logger: object, name: str, line: Any) -> str:
        return masked(line, secrets)

    renderer: Any = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
            mask,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
