"""The benchmark of stores works from end to end; its numbers are not looked at."""

import json
from pathlib import Path

import pytest

from bench.stores.__main__ import main


@pytest.mark.integration
@pytest.mark.timeout(900)
def test_quick_copies_reads_and_times_over_s3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--quick", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "stores-quick.json").read_text(encoding="utf-8"))
    (run,) = result["read_runs"]
    assert (run["store"], run["delay_ms"]) == ("s3", 20)
    assert run["mib_s"] > 0
    assert run["requests_per_gib"]["GetObject log"] > 0
    assert all(row["ms"] >= row["delay_ms"] for row in result["first_record_rows"])
    (pair,) = result["copy_pairs"]
    assert pair["ours"]["requests"]["PutObject manifest"] > 0
    assert pair["plain"]["requests"]["PutObject other"] > 0
    assert str(Path.home()) not in json.dumps(result)
    assert "measured elsewhere" in capsys.readouterr().out
