"""The compiled part of the tree: whether it is as its sources say, and what to say of it.

pip builds it with the tree itself (pyproject.toml: ext-modules, optional). Where it cannot be
built, the same is done in Python, more slowly.
"""

import hashlib
import platform
import shutil
import sysconfig
from pathlib import Path

from build_tools.locks import ROOT

FOLDER = Path("rlm_spark/decode")
STAMP = Path(".venv/native-decoder")


def is_current(root: Path = ROOT) -> bool:
    """Whether the last attempt to build was of these sources, by this compiler."""
    try:
        stamp = (root / STAMP).read_text(encoding="utf-8")
    except OSError:
        return False
    return stamp == stamp_text(root)


def stamp_text(root: Path = ROOT) -> str:
    """The content of a valid stamp: a digest of the sources, and whether they were built."""
    digest = hashlib.sha256(f"{platform.python_version()} {_compiler()}".encode())
    for source in sorted((root / FOLDER).glob("*.[ch]")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return f"{digest.hexdigest()} {'compiled' if is_built(root) else 'python'}\n"


def is_built(root: Path = ROOT) -> bool:
    """Whether the compiled decoder is in the tree."""
    return bool(_built(root))


def remove(root: Path = ROOT) -> None:
    """Remove what an earlier source gave, so that it cannot stay where this one fails."""
    for path in _built(root):
        path.unlink()


def write_stamp(root: Path = ROOT) -> None:
    """Say that this was tried."""
    (root / STAMP).write_text(stamp_text(root), encoding="utf-8")


def _built(root: Path) -> list[Path]:
    return [path for end in ("so", "pyd") for path in (root / FOLDER).glob(f"_native.*.{end}")]


def _compiler() -> str:
    """The path of the compiler that builds extensions; empty where there is none."""
    command = str(sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(command) or ""
