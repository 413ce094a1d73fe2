"""The benchmark of many connections works from end to end; its numbers are not looked at."""

import json
from pathlib import Path

import pytest

from bench.connections import main

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_quick_measures_waiting_connections_and_readers_of_many_ranges(tmp_path: Path) -> None:
    assert main(["--quick", "--workers", "2", "--out", str(tmp_path)]) == 0
    runs = json.loads((tmp_path / "connections-quick.json").read_text(encoding="utf-8"))["runs"]
    seen = {(run["part"], run["readers"], run["variant"]) for run in runs}
    assert len(seen) == len(runs) == 6
    assert [run for run in runs if run["messages"] == 0] == []
    tails = [run for run in runs if run["part"] == "tails"]
    assert all(0 <= run["p50_ms"] <= run["p99_ms"] for run in tails)
    [remote] = [run for run in runs if (run["readers"], run["variant"]) == (50, "proxy")]
    assert remote["service_cpu_s"] > 0
