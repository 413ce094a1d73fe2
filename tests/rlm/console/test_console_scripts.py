"""The console's scripts that decide without a page, run by Node.js, and the syntax of all."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import rlm.console

ASSETS = Path(rlm.console.__file__).parent / "assets"
CHECKS = Path(__file__).with_name("checks.mjs")


def _node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("there is no Node.js to run the console's scripts with")
    return found


def _run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Beside a package.json that says so, .js files are modules for every Node.js.
    assets = tmp_path / "assets"
    shutil.copytree(ASSETS, assets)
    (assets / "package.json").write_text('{"type": "module"}')
    return subprocess.run(
        [_node(), *arguments],
        env=os.environ | {"CONSOLE_ASSETS": str(assets)},
        cwd=assets,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_scripts_decide_as_they_should(tmp_path: Path) -> None:
    done = _run(tmp_path, "--test", str(CHECKS))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", sorted(ASSETS.glob("*.js")), ids=lambda path: path.name)
def test_the_scripts_are_modules_without_faults(tmp_path: Path, path: Path) -> None:
    done = _run(tmp_path, "--check", path.name)
    assert done.returncode == 0, done.stderr
