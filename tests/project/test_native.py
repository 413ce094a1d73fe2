"""When the compiled decoder is built again: sources or compiler changed, or it was removed."""

from pathlib import Path

import pytest

from build_tools import native


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / native.FOLDER
    folder.mkdir(parents=True)
    (tmp_path / ".venv").mkdir()
    (folder / "_native.c").write_text("int a;")
    (folder / "some.h").write_text("int b;")
    return tmp_path


def built(root: Path) -> Path:
    return root / native.FOLDER / "_native.abi3.so"


def test_nothing_is_done_twice(root: Path) -> None:
    assert not native.is_current(root)
    built(root).touch()
    native.write_stamp(root)
    assert native.is_current(root)


@pytest.mark.parametrize("name", ["_native.c", "some.h", "new.h"])
def test_changed_sources_are_built_again(root: Path, name: str) -> None:
    built(root).touch()
    native.write_stamp(root)
    (root / native.FOLDER / name).write_text("int changed;")
    assert not native.is_current(root)


def test_a_failed_build_is_not_tried_again_and_leaves_nothing_old(root: Path) -> None:
    built(root).touch()
    native.remove(root)
    assert not native.is_built(root)
    native.write_stamp(root)
    assert native.is_current(root)


def test_what_was_removed_is_built_again(root: Path) -> None:
    built(root).touch()
    native.write_stamp(root)
    native.remove(root)
    assert not native.is_current(root)
