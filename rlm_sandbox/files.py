"""Small files written whole or not at all, the text of Java properties, and folders that one
process fills at a time.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait until no other process fills `folder`, and let no other begin meanwhile.

    The lock ends with its process, whatever becomes of it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def encode_properties(properties: Mapping[str, str]) -> str:
    """Text of a Java properties file: backslashes doubled, everything outside ASCII as \\uXXXX."""
    return "".join(f"{key}={_escape(value)}\n" for key, value in properties.items())


def _escape(value: str) -> str:
    text = value.replace("\\", "\\\\")
    units = text.encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
    return "".join(chr(code) if code < 0x80 else f"\\u{code:04x}" for code in codes)
