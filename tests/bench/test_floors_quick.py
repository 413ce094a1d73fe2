"""Each floor is measured from end to end; the numbers of a smoke are not looked at."""

import json
from pathlib import Path

import pytest

from bench.floor_turns import BULK, FILES
from bench.floors import FLOORS, FloorRun, main, summary


def test_quick_measures_each_floor(tmp_path: Path) -> None:
    assert main(["--quick", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "floors-quick.json").read_text(encoding="utf-8"))
    runs = result["runs"]
    assert [run["floor"] for run in runs] == list(FLOORS)
    assert all(run["mb_s"] > 0 and run["user_s_gb"] + run["system_s_gb"] > 0 for run in runs)
    counted = [run["floor"] for run in runs if run["requests_s"] is not None]
    assert counted == [name for name in FLOORS if name not in BULK]
    assert all(run["us_a_request"] > 0 for run in runs if run["floor"] in counted)
    assert result["options"]["rounds"] == 1


def test_a_file_without_a_whole_chunk_is_an_error_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--rounds", "1", "--size-mib", "1", "--file-mib", "0", "--floors", ",".join(FILES))
    assert main(["--out", str(tmp_path), *options]) == 1
    assert "ended with 1" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_floor_is_the_median_and_its_range_is_said() -> None:
    lines = list(summary([one(4.0, None), one(1.0, None), one(2.0, None), one(3.0, 31.5)]))
    [line] = lines
    assert "2.50 CPU s/GB (1.00 to 4.00): user 1.25, system 1.25" in line
    assert line.endswith("; 31.5 us a request")


def one(cpu_s_gb: float, us: float | None) -> FloorRun:
    return FloorRun(
        floor="relay",
        round_number=0,
        mb_s=1_000.0,
        user_s_gb=cpu_s_gb / 2,
        system_s_gb=cpu_s_gb / 2,
        faults_gb=0,
        requests_s=None,
        us_a_request=us,
        load="0",
    )
