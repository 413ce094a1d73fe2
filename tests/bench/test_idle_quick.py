"""The benchmark of an idle service works from end to end; its numbers are not looked at."""

import json
from pathlib import Path

import pytest

from bench.idle import main

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_quick_measures_a_few_partitions_without_problems(tmp_path: Path) -> None:
    assert main(["--quick", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "idle-quick.json").read_text(encoding="utf-8"))
    [run] = result["runs"]
    assert (run["partitions"], run["problems"]) == (20, [])
