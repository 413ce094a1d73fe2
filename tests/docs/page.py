"""The commands and the code of docs/read-it-without-us.md, cut out of it and run unchanged."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.project.tree import ROOT

PAGE = (ROOT / "docs" / "read-it-without-us.md").read_text(encoding="utf-8")
SCRIPT = ROOT / "docs" / "read_without_us.py"


def block(kind: str, containing: str) -> str:
    """The one block of that kind with the words in it."""
    blocks = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (found,) = [one for one in blocks if containing in one]
    return str(found)


def run_shell(
    text: str, folder: Path, *, path: Path | None = None, check: bool = True, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a block in a folder, by a plain shell that stops at the first error."""
    first = f"{path}{os.pathsep}" if path else ""
    here = f"{Path(sys.executable).parent}{os.pathsep}"
    environ = {**os.environ, **variables, "PATH": f"{first}{here}{os.environ.get('PATH', '')}"}
    done = subprocess.run(
        ["sh", "-eu", "-c", text],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if check:
        assert done.returncode == 0, f"{text}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done


def decode(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the sixty lines as the page says, by an interpreter that finds none of our packages."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(SCRIPT), "fetched"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def offsets_printed(done: subprocess.CompletedProcess[str]) -> list[int]:
    assert done.returncode == 0, done.stderr
    return [int(line.split("\t")[0]) for line in done.stdout.splitlines()]
