"""What a query takes from the driver's machine: the user's name and the text of a token file.

A module of its own because `legacy` needs it on Spark 3.5, which cannot import `source`.
"""

import getpass
from pathlib import Path


def user() -> str:
    """The user of this process; a fixed name if the system has no name for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def read_text(path: str) -> str:
    """The text of a small file of the driver."""
    return Path(path).read_text(encoding="utf-8")
