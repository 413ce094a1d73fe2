"""Programs built from Go modules: once, whole or not at all, and one clear line where it fails."""

import os
import stat
from pathlib import Path

import pytest

from rlm_sandbox.spec import SandboxError
from rlm_sandbox.store_servers.versitygw import go_binary, go_command

MODULE = "example.test/tool/cmd/server"
BUILDS = """#!/bin/sh
echo "$@" >> {asked}
for n in 1 2 3 4 5 6 7 8 9 10 11; do echo "go: downloading m$n v1" >&2; done
printf 'built' > "$GOBIN/server"
chmod +x "$GOBIN/server"
"""
FAILS = """#!/bin/sh
echo "go: example.test/tool@v1.0.0: dial tcp: lookup proxy: no such host" >&2
exit 1
"""


@pytest.fixture
def path_of_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH besides the system's, where there is no Go."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return folder


def put_go(folder: Path, script: str) -> None:
    go = folder / "go"
    go.write_text(script)
    go.chmod(go.stat().st_mode | stat.S_IXUSR)


def left(cache: Path) -> list[str]:
    """What is in the cache, locks aside."""
    return sorted(path.name for path in (cache / "go-tools").iterdir() if path.name != ".lock")


def test_it_is_built_once(tmp_path: Path, path_of_tools: Path) -> None:
    asked = tmp_path / "asked"
    put_go(path_of_tools, BUILDS.format(asked=asked))
    lines: list[str] = []
    first = go_binary(MODULE, "v1.0.0", "tool", tmp_path, lines.append)
    again = go_binary(MODULE, "v1.0.0", "tool", tmp_path, lines.append)
    assert first == again == tmp_path / "go-tools" / "tool-v1.0.0"
    assert first.read_text() == "built"
    assert os.access(first, os.X_OK)
    assert asked.read_text() == f"install {MODULE}@v1.0.0\n"
    assert left(tmp_path) == ["tool-v1.0.0"]
    assert lines[0].startswith("tool v1.0.0 is built once")
    assert lines[1:] == ["tool: 10 Go modules downloaded"]


def test_the_compiler_on_path_serves_others_too(tmp_path: Path, path_of_tools: Path) -> None:
    put_go(path_of_tools, FAILS)
    assert go_command(tmp_path, print) == path_of_tools / "go"


def test_another_version_is_another_program(tmp_path: Path, path_of_tools: Path) -> None:
    put_go(path_of_tools, BUILDS.format(asked=tmp_path / "asked"))
    for version in ("v1.0.0", "v2.0.0"):
        go_binary(MODULE, version, "tool", tmp_path, print)
    assert left(tmp_path) == ["tool-v1.0.0", "tool-v2.0.0"]


def test_a_failed_build_leaves_nothing_and_says_why(tmp_path: Path, path_of_tools: Path) -> None:
    put_go(path_of_tools, FAILS)
    with pytest.raises(SandboxError, match="cannot be built") as failed:
        go_binary(MODULE, "v1.0.0", "tool", tmp_path, print)
    assert "no such host" in str(failed.value)
    assert "\n" not in str(failed.value)
    assert left(tmp_path) == []


def test_neither_go_nor_the_package_index(
    tmp_path: Path, path_of_tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    with pytest.raises(SandboxError, match="no go on PATH") as failed:
        go_binary(MODULE, "v1.0.0", "tool", tmp_path, print)
    assert "\n" not in str(failed.value)
    assert left(tmp_path) == []
