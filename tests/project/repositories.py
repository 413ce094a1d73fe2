"""Git repositories that tests make; a machine without git leaves these tests out."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest


def require_git(of: Path | None = None) -> None:
    """Skip the test where there is none, or none that reads `of`: it may be another user's."""
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    if of is not None and (of / ".git").exists():
        command = ["git", "-C", str(of), "rev-parse", "HEAD"]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip(f"there is no git that reads {of}")


def committed(folder: Path, files: Mapping[str, str], tag: str | None = None) -> Path:
    """A repository of one commit, which may have a tag."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    _git(folder, "init", "-q")
    _git(folder, "add", "--all")
    _git(folder, "commit", "-q", "-m", "One")
    if tag is not None:
        _git(folder, "tag", tag)
    return folder


def _git(folder: Path, *arguments: str) -> None:
    """One command of git, which has to succeed. Nobody's own settings count."""
    require_git()
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "tests"),
        **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "tests@example"),
        **dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-03-02T23:00:00+00:00"),
    }
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, env=environment)
