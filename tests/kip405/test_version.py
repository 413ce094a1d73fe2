"""The version of the software, where it is installed and where it is not."""

import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import kip405.process
from kip405.process import software_name, software_version


def test_the_version_is_that_of_the_installed_distribution() -> None:
    assert software_version() == version("kafka-rlm")
    assert software_name() == f"kafka-rlm {version('kafka-rlm')}"


def test_a_bare_tree_has_no_version(tmp_path: Path) -> None:
    shutil.copy(kip405.process.__file__, tmp_path / "version.py")
    code = "from version import software_version; print(software_version())"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "0+unknown\n"
