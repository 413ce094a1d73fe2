"""What the driver's machine tells about a query: whom it runs as, the text of a token file."""

import getpass
from pathlib import Path


def user() -> str:
    """Whom this process runs as; a fixed name where the system knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def read_text(path: str) -> str:
    """A small text file of the driver."""
    return Path(path).read_text(encoding="utf-8")
