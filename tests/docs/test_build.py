"""The generator of the site: a broken link fails the build. `make check` builds the real pages."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.site import DOCS


def build(folder: Path, index: str) -> subprocess.CompletedProcess[str]:
    """Build a site of one page with the settings of ours, as the Makefile does."""
    folder.mkdir()
    shutil.copy(DOCS / "conf.py", folder)
    (folder / "index.md").write_text(index, encoding="utf-8")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    return subprocess.run(
        [*command, str(folder), str(folder / "out")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_page_becomes_html(tmp_path: Path) -> None:
    done = build(tmp_path / "site", "# A page\n\n[here](#a-page) `--option`\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert 'id="a-page"' in (tmp_path / "site/out/index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("target", ["nowhere.svg", "#no-such-heading", "../outside.svg"])
def test_a_broken_link_fails_the_build(tmp_path: Path, target: str) -> None:
    done = build(tmp_path / "site", f"# A page\n\n[there]({target})\n")
    assert done.returncode == 1
    assert "WARNING" in done.stderr
