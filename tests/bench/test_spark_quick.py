"""The benchmark of the connector works from end to end; its numbers are not looked at."""

import json
from pathlib import Path

import pytest

from bench.spark.__main__ import main
from bench.spark.options import DEFAULT, EXPORT, OURS, SUM, TUNED, VALUE


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.timeout(900)
def test_quick_times_every_task_by_every_variant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--quick", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "spark-quick.json").read_text(encoding="utf-8"))
    ran = {(run["task"], run["variant"]) for run in result["runs"]}
    assert ran == {
        *((SUM, variant) for variant in (OURS, TUNED, DEFAULT)),
        *((task, variant) for task in (VALUE, EXPORT) for variant in (OURS, TUNED)),
    }
    assert all(run["wall_s"] > 0 and run["cpu_s"]["spark"] > 0 for run in result["runs"])
    assert all(share > 0.5 for share in result["remote_share"].values())
    assert str(Path.home()) not in json.dumps(result)
    assert "tuned/ours" in capsys.readouterr().out
