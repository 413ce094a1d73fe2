"""Where code that runs in processes of this project and of others logs its events.

Services and plugins configure structlog, and so may a program that embeds one. A program that only
reads a store (a consumer, a command) does not, and structlog would print to its standard output,
which is the program's own. There, events are lines of Python's logging.
"""

import logging
from typing import Any

import structlog


class EventLog:
    """Of one module, by its name. It asks at each event whether structlog is configured."""

    def __init__(self, name: str) -> None:
        self._name = name

    def info(self, event: str, **fields: Any) -> None:
        """What is normal."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """What someone may have to see to."""
        self._write(logging.WARNING, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if structlog.is_configured():
            write = getattr(structlog.get_logger(self._name), logging.getLevelName(level).lower())
            write(event, **fields)
            return
        text = " ".join(f"{key}={value}" for key, value in {"event": event, **fields}.items())
        logging.getLogger(self._name).log(level, "%s", text)
