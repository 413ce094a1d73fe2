"""What the sandbox refuses before anything is started: one clear line, status 1."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlm_sandbox.command import sandbox


def refusal(*arguments: str) -> str:
    result = CliRunner().invoke(sandbox, list(arguments))
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_options_out_of_range(tmp_path: Path) -> None:
    where = ("up", "--dir", str(tmp_path / "s"))
    assert "--brokers 2: allowed are 1 and 3" in refusal(*where, "--brokers", "2")
    assert "--log-dirs 0" in refusal(*where, "--log-dirs", "0")
    assert "--store tape" in refusal(*where, "--store", "tape")
    assert "--jvm turbo" in refusal(*where, "--jvm", "turbo")
    assert "expected broker.KEY=V" in refusal(*where, "--set", "kafka.x=1")
    assert "expected broker.KEY=V" in refusal(*where, "--set", "broker.x")


def test_a_directory_that_cannot_hold_a_sandbox(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("x")
    assert "not empty and not a sandbox" in refusal("up", "--dir", str(tmp_path))
    assert "cannot hold a comma" in refusal("up", "--dir", str(tmp_path / "a,b"))
    assert "not a directory" in refusal("up", "--dir", str(tmp_path / "precious.txt"))


@pytest.mark.parametrize("verb", ["down", "status"])
def test_no_sandbox_there(tmp_path: Path, verb: str) -> None:
    assert "is not a sandbox" in refusal(verb, "--dir", str(tmp_path))


@pytest.mark.parametrize("verb", ["kill", "start", "stop", "pause", "resume"])
def test_no_sandbox_for_a_verb(tmp_path: Path, verb: str) -> None:
    assert "is not a sandbox" in refusal(verb, "--dir", str(tmp_path), "broker:1")


def test_a_store_whose_library_is_missing_names_the_extra_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    root = tmp_path / "s"
    without = "import sys; sys.modules['aiobotocore'] = None\n"
    code = f"{without}from rlm_sandbox.command import sandbox; sandbox()"
    done = subprocess.run(
        [sys.executable, "-c", code, "up", "--dir", str(root), "--store", "s3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "--store s3: plugin s3 needs aiobotocore" in done.stderr
    assert "pip install 'kafka-rlm[s3]'" in done.stderr
    assert not (root / "state.json").exists()


def test_kafka_home_and_java_home_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("up", "--dir", str(tmp_path / "s"))
    assert "libs/kafka-clients" in refusal(*where, "--kafka-home", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "JAVA_HOME is" in refusal(*where)
