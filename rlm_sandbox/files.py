"""Small files written whole or not at all."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str, *, private: bool = False) -> None:
    """Replace `path` by `text` (UTF-8) so that no reader ever sees half of it.

    `private`: only the owner may read it, from its first byte on.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    mode = 0o600 if private else 0o666
    made = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(made, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)
