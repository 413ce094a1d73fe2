"""The benchmark of copies beside Kafka's own works from end to end; nobody looks at its numbers."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import copying_native
from bench.plan import NATIVE

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def _measured(
    main: Callable[[Sequence[str]], int], stem: str, folder: Path, *options: str
) -> dict[str, Any]:
    """What the benchmark has written, without the name of anybody's home."""
    assert main(["--quick", "--out", str(folder), *options]) == 0
    text = (folder / f"{stem}-quick.json").read_text(encoding="utf-8")
    assert str(Path.home()) not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_quick_copies_a_backlog_both_ways(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--segment-mib", "1", "--partitions", "2")
    result = _measured(copying_native.main, "copying-native", tmp_path, *options)
    assert [run["variant"] for run in result["runs"]] == [copying_native.OURS, NATIVE]
    assert all(run["seconds"] > 0 and run["segments"] > 1 for run in result["runs"])
    assert "of the speed of Kafka's own" in capsys.readouterr().out
