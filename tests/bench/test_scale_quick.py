"""The benchmark of many segments works from end to end; its numbers are not looked at."""

import json
from pathlib import Path

from bench.scale import main


def test_quick_reports_plans_and_statuses_of_a_few_partitions(tmp_path: Path) -> None:
    assert main(["--partitions", "3,5", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "scale.json").read_text(encoding="utf-8"))
    assert [run["segments"] for run in result["runs"]] == [300, 500]
    assert all(run["metrics"]["again_s"] and run["status"]["again_s"] for run in result["runs"])
    assert str(Path.home()) not in json.dumps(result)
