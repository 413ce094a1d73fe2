"""Token files: what they may hold, and that a changed one is taken without a moment of refusal."""

from pathlib import Path

import pytest

from kip405.errors import Invalid
from rlm.api.call_metadata import read_tokens
from rlm.api.calls import TokenFile, token_source
from tests.builders.clock import ManualClock


@pytest.mark.parametrize("content", ["", "\n \n", "a\nb\nc\n", "ä\n", "a\x07b\n"])
def test_files_that_cannot_be_used(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    with pytest.raises(Invalid, match=r"api\.token\.file: .*token cannot be read"):
        token_source(path, ManualClock())
    path.write_text(content, encoding="utf-8")
    with pytest.raises(Invalid, match="one or two lines of printable ASCII"):
        token_source(path, ManualClock())


def test_no_file_is_no_token() -> None:
    assert token_source(None, ManualClock())() == ()


def test_the_first_line_is_shown_and_both_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(" old \r\nnew\n\n")
    assert read_tokens(path, "x") == ("old", "new")


async def test_a_changed_file_is_taken_and_a_broken_one_is_not(tmp_path: Path) -> None:
    clock, path = ManualClock(), tmp_path / "token"
    path.write_text("old\n")
    tokens = TokenFile(path, clock)
    for content, expected in (
        ("old\nnew\n", ("old", "new")),
        ("", ("old", "new")),  # a moment of the editor's
        ("new\n", ("new",)),
    ):
        path.write_text(content)
        await clock.sleep_ms(1_000)
        assert tokens() == expected
    path.unlink()
    await clock.sleep_ms(1_000)
    assert tokens() == ("new",)
