"""Reads what a service has logged, also while it goes on."""

import json
from pathlib import Path
from typing import Any


def events_of(log: Path, position: int = 0) -> list[dict[str, Any]]:
    """The events from a position on, in order; a line that is still being written is not read."""
    lines = log.read_bytes()[position:].split(b"\n")[:-1]
    return [json.loads(line) for line in lines if line.startswith(b"{")]
