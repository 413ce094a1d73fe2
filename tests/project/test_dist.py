"""What `make dist` decides: versions of tags, tags of wheels, and what each distribution needs."""

import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from build_tools.dist import KAFKA_RLM, KAFKA_RLM_SPARK, clear, main, version_here
from build_tools.versions import version_of
from build_tools.wheel_tags import platform_of, tagged
from build_tools.wheelhouse import WheelhouseError, fill
from tests.project.repositories import committed, require_git
from tests.project.tree import PACKAGES, ROOT


@pytest.mark.parametrize(
    ("described", "version"),
    [
        ("v1.2.0-0-gabc1234", "1.2.0"),
        ("v1.2.0rc1-0-gabc1234", "1.2.0rc1"),
        ("v1.2.0-0-gabc1234-dirty", "1.2.1.dev0+gabc1234.dirty"),
        ("v1.2.9-7-gabc1234", "1.2.10.dev7+gabc1234"),
        ("v1.2.0rc1-3-gabc1234", "1.2.0rc2.dev3+gabc1234"),
        ("abc1234", "0.1.0.dev0+gabc1234"),
        ("abc1234-dirty", "0.1.0.dev0+gabc1234.dirty"),
        ("", "0.1.0"),
    ],
)
def test_the_version_is_that_of_the_tag(described: str, version: str) -> None:
    assert version_of(described, "0.1.0") == version
    assert str(Version(version)) == version, "pip would write it otherwise"


def test_what_comes_after_a_release_is_newer_and_before_the_next_one() -> None:
    described = ("v1.2.0rc1-0-gabc1234", "v1.2.0rc1-3-gabc1234", "v1.2.0-0-gabc1234")
    versions = [Version(version_of(one, "0")) for one in described]
    after = Version(version_of("v1.2.0-1-gabc1234", "0"))
    assert sorted(versions) == versions
    assert versions[-1] < after < Version("1.2.1")


def test_a_tag_that_is_no_version_is_refused() -> None:
    with pytest.raises(ValueError, match=r"v1-beta-0-gabc1234: a tag of a release is v and"):
        version_of("v1-beta-0-gabc1234", "0.1.0")


def test_this_tree_has_a_version_that_pip_accepts() -> None:
    require_git(ROOT)
    assert Version(version_here()).release >= (0, 1)


def test_without_a_repository_the_version_is_the_declared_one(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "3.1.4"\n')
    assert version_here(tmp_path) == "3.1.4"


def test_where_git_fails_no_version_is_made_up(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "3.1.4"\n')
    (tmp_path / ".git").write_text("gitdir: nowhere\n")
    with pytest.raises(ValueError, match="is a repository, and git "):
        version_here(tmp_path)


@pytest.mark.parametrize(
    ("unknown", "version"),
    [("notes.txt", "1.2.0"), ("rlm/__pycache__/a.pyc", "1.2.0"), ("rlm/more.py", "1.2.1.dev0+g")],
)
def test_a_file_in_no_commit_is_in_no_release(tmp_path: Path, unknown: str, version: str) -> None:
    files = {
        "pyproject.toml": '[project]\nversion = "0.1.0"\n',
        "rlm/__init__.py": "",
        ".gitignore": "__pycache__/\n",
    }
    root = committed(tmp_path, files, "v1.2.0")
    assert version_here(root) == "1.2.0"
    (root / unknown).parent.mkdir(exist_ok=True)
    (root / unknown).touch()
    found = version_here(root)
    assert found.startswith(version) and found.endswith(".dirty") == (version != "1.2.0")


GLIBC = b"\0libc.so.6\0GLIBC_2.2.5\0GLIBC_2.%d\0"


@pytest.mark.parametrize(
    ("platform", "body", "expected"),
    [
        ("linux_x86_64", GLIBC % 14, "manylinux_2_17_x86_64"),
        ("linux_aarch64", GLIBC % 28, "manylinux_2_28_aarch64"),
        ("linux_x86_64", GLIBC % 34 + b"\0libm.so.6\0", "manylinux_2_34_x86_64"),
        ("linux_x86_64", GLIBC % 17 + b"\0libz.so.1\0", "linux_x86_64"),
        ("linux_x86_64", b"\0libc.musl-x86_64.so.1\0", "linux_x86_64"),
        ("linux_x86_64", b"\0libc.so\0libpthread.so.0\0", "linux_x86_64"),
        ("linux_x86_64", b"\0nothing\0", "linux_x86_64"),
        ("macosx_14_0_arm64", b"\0libz.1.dylib\0", "macosx_14_0_arm64"),
    ],
)
def test_the_platform_follows_from_what_the_extension_asks_for(
    platform: str, body: bytes, expected: str
) -> None:
    assert platform_of(platform, [body]) == expected


def wheel(folder: Path, *, extension: bytes | None) -> Path:
    """A wheel as setuptools names and writes one of a tree that has an extension."""
    path = folder / "example-1.0-cp311-abi3-linux_x86_64.whl"
    head = "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-abi3-linux_x86_64\n"
    record = "example.py,sha256=x,1\nexample-1.0.dist-info/WHEEL,sha256=y,90\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("example.py", "1")
        if extension is not None:
            archive.writestr("native.abi3.so", extension)
        archive.writestr("example-1.0.dist-info/WHEEL", head)
        archive.writestr("example-1.0.dist-info/RECORD", record)
    return path


def test_a_wheel_without_the_decoder_fits_every_platform(tmp_path: Path) -> None:
    made = tagged(wheel(tmp_path, extension=None))
    assert [path.name for path in tmp_path.iterdir()] == ["example-1.0-py3-none-any.whl"]
    with zipfile.ZipFile(made) as archive:
        head = archive.read("example-1.0.dist-info/WHEEL").decode()
        lines = archive.read("example-1.0.dist-info/RECORD").decode().splitlines()
    assert "Tag: py3-none-any\n" in head and "Root-Is-Purelib: true\n" in head
    assert lines[0] == "example.py,sha256=x,1"
    assert lines[1].startswith("example-1.0.dist-info/WHEEL,sha256=")
    assert lines[1].endswith(f",{len(head)}") and "=y," not in lines[1]


def test_a_wheel_with_the_decoder_says_which_glibc_it_needs(tmp_path: Path) -> None:
    made = tagged(wheel(tmp_path, extension=GLIBC % 25))
    assert made.name == "example-1.0-cp311-abi3-manylinux_2_25_x86_64.whl"
    with zipfile.ZipFile(made) as archive:
        assert archive.read("native.abi3.so") == GLIBC % 25
        head = archive.read("example-1.0.dist-info/WHEEL").decode()
    assert "Root-Is-Purelib: false\n" in head
    assert tagged(made) == made, "a second time there is nothing to do"


def project(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / name).read_text(encoding="utf-8"))


def test_the_executors_need_what_the_service_and_the_extra_ask_for_without_pyspark() -> None:
    whole = project(KAFKA_RLM.project)["project"]
    small = set(project(KAFKA_RLM_SPARK.project)["project"]["dependencies"])
    with_spark = {*whole["dependencies"], *whole["optional-dependencies"]["spark"]}
    assert small < with_spark
    assert {one for one in with_spark - small if "spark" in one} == {"pyspark>=3.5"}
    assert set(whole["optional-dependencies"]["spark"]) - small == {"pyspark>=3.5"}


def test_both_build_the_decoder_in_the_same_way() -> None:
    whole, small = project(KAFKA_RLM.project), project(KAFKA_RLM_SPARK.project)
    for key in ("ext-modules", "package-dir"):
        assert whole["tool"]["setuptools"][key] == small["tool"]["setuptools"][key]
    files = whole["tool"]["setuptools"]["package-data"]
    assert {name: files[name] for name in files if name != "rlm.console"} == small["tool"][
        "setuptools"
    ]["package-data"]
    assert whole["tool"]["distutils"] == small["tool"]["distutils"]
    assert whole["build-system"] == small["build-system"]


def test_a_release_has_every_package() -> None:
    assert set(PACKAGES) < set(KAFKA_RLM.content)


def test_only_what_an_earlier_build_has_made_is_removed(tmp_path: Path) -> None:
    others = ("notes.txt", "other-1.0-py3-none-any.whl", "kafka_rlm.txt")
    ours = ("kafka_rlm-1.0-py3-none-any.whl", "kafka_rlm_spark-1.0.tar.gz", "kafka_rlm-1.0.tar.gz")
    for name in (*others, *ours):
        (tmp_path / name).touch()
    (tmp_path / "photos").mkdir()
    (tmp_path / "wheelhouse").mkdir()
    (tmp_path / "wheelhouse" / "other-1.0-py3-none-any.whl").touch()
    clear(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*others, "photos"}
    clear(tmp_path / "not there")


def test_a_lock_with_a_source_distribution_gives_no_wheelhouse(tmp_path: Path) -> None:
    with pytest.raises(WheelhouseError, match=r"demo-spark\.txt has pyspark, which has no wheel"):
        fill(tmp_path / "wheelhouse", "demo-spark", tmp_path / "x.whl")


@pytest.mark.parametrize("arguments", [["--wheelhouse", "tape"], ["a", "b"], ["--wheelhouse"]])
def test_wrong_use_is_said_before_anything_is_removed(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().out.startswith("kafka-rlm: ")
