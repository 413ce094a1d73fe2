"""The class archive: made once of what a JVM noted, and never needed."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rlm_sandbox.kafka_dist import ClassArchive

# Replaces Java: writes its class list, argument by argument, where the archive is to be.
JAVA = """#!/bin/sh
for one in "$@"; do
  case "$one" in
    -XX:SharedClassListFile=*) classes="${one#*=}" ;;
    -XX:SharedArchiveFile=*) made="${one#*=}" ;;
  esac
done
cp "$classes" "$made"
"""
REFUSES = "#!/bin/sh\nexit 1\n"


@pytest.fixture
def archive(tmp_path: Path) -> ClassArchive:
    jar = tmp_path / "kafka.jar"
    jar.write_bytes(b"jar")
    return ClassArchive(java=java(tmp_path, JAVA), jars=(jar,), cache=tmp_path / "cache")


def java(folder: Path, text: str) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def noted(folder: Path, text: str) -> Path:
    path = folder / "loaded-classes"
    path.write_text(text, encoding="utf-8")
    return path


def kept(archive: ClassArchive) -> list[Path]:
    return [path for path in archive.cache.rglob("*") if path.is_file()]


def test_a_jvm_uses_it_once_it_is_made(archive: ClassArchive, tmp_path: Path) -> None:
    assert archive.options() == ()
    archive.make(noted(tmp_path, "java/lang/Object\nkafka/Kafka\n"))
    assert kept(archive) == [archive.path]
    assert archive.options()[0] == f"-XX:SharedArchiveFile={archive.path}"
    assert archive.path.read_text() == "java/lang/Object\nkafka/Kafka\n"


def test_a_line_that_is_being_written_is_left_out(archive: ClassArchive, tmp_path: Path) -> None:
    archive.make(noted(tmp_path, "java/lang/Object\nkafka/Ka"))
    assert archive.path.read_text() == "java/lang/Object\n"


def test_another_jar_or_java_has_another_one(archive: ClassArchive, tmp_path: Path) -> None:
    archive.make(noted(tmp_path, "java/lang/Object\n"))
    first = archive.path
    os.utime(archive.jars[0], (1, 1))
    second = archive.path
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.9"', encoding="utf-8")
    assert len({first, second, archive.path}) == 3
    assert archive.options() == ()


def test_the_same_java_installed_elsewhere_has_the_same_one(
    archive: ClassArchive, tmp_path: Path
) -> None:
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.9"', encoding="utf-8")
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "bin", other / "bin")
    shutil.copy(tmp_path / "release", other)
    assert replace(archive, java=other / "bin" / "java").path == archive.path


def test_there_is_none_where_java_makes_none(archive: ClassArchive, tmp_path: Path) -> None:
    java(tmp_path, REFUSES)
    archive.make(noted(tmp_path, "java/lang/Object\n"))
    assert kept(archive) == []
    assert archive.options() == ()


def test_there_is_none_of_files_that_are_away(archive: ClassArchive) -> None:
    archive.jars[0].unlink()
    assert archive.options() == ()
