"""Services of an older version of this software in a sandbox of ours.

The older version is a folder with its packages: a checkout, or the site-packages of an environment,
that RLM_OLDER_TREE names, or else commit RLM_OLDER_COMMIT of this repository, taken out with `git
archive`. It runs with the libraries and the Python of these tests. Every Python process of a
service that is started within `older()` reads a `sitecustomize` that puts the folder first; it
writes down from where it imports, so that a test is sure of it.
"""

import contextlib
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
LAST_WITHOUT_FORMATS = "828ed572c8a549e1e2d8bd3ca43f6f850653f480"
"""The last commit whose heartbeats do not say which formats they write."""
_AT_START = """
import os
import sys
from pathlib import Path

if any(part in ("rlm.cli.main", "rlm.workers.worker") for part in sys.orig_argv):
    sys.path.insert(0, {tree!r})
    import rlm

    Path(__file__).with_name(str(os.getpid())).write_text(rlm.__file__)
"""


class OlderServices:
    """`tree`: the packages of the older version. `folder` is empty and of this alone."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self.tree = tree
        self._folder = folder
        folder.mkdir()
        text = _AT_START.format(tree=str(tree))
        (folder / "sitecustomize.py").write_text(text, encoding="utf-8")

    @contextlib.contextmanager
    def older(self) -> Iterator[None]:
        """Services that are started meanwhile are of the older version."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(self._folder))
            yield

    def is_older(self, pid: int) -> bool:
        """Whether that process has the older version's code."""
        noted = self._folder / str(pid)
        return noted.exists() and Path(noted.read_text()).is_relative_to(self.tree)


def older_tree(folder: Path) -> Path:
    """What RLM_OLDER_TREE or RLM_OLDER_COMMIT name; skips the test where there is neither."""
    if named := os.environ.get("RLM_OLDER_TREE"):
        return Path(named).resolve()
    commit = os.environ.get("RLM_OLDER_COMMIT") or LAST_WITHOUT_FORMATS
    packed, tree = folder / "older.tar", folder / "older"
    done = subprocess.run(
        ["git", "-C", str(_ROOT), "archive", "--output", str(packed), commit],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"there is no git that has an older version: {done.stderr.strip()}")
    with tarfile.open(packed) as archive:
        archive.extractall(tree, filter="data")
    return tree
