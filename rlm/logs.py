"""How log lines look: one structlog event a line, key=value, JSON for machines or console for
people.
"""

import logging
import sys
from typing import Any

import structlog

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure_logs(*, level: str, log_format: str) -> None:
    """Set up structlog for this process, on stderr; foreign libraries speak from warnings on."""
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
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    # aiokafka logs every failed connection as an error; what matters of it we log ourselves.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    logging.basicConfig(stream=sys.stderr, level=logging.ERROR, format="%(name)s %(message)s")
