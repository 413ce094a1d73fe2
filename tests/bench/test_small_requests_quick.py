"""The benchmark of small requests works from end to end; its numbers are not looked at."""

import json
from pathlib import Path

from bench.plan import DIRECT, PROXY
from bench.small_requests import main


def test_quick_passes_small_requests_through_a_worker(tmp_path: Path) -> None:
    assert main(["--quick", "--out", str(tmp_path)]) == 0
    runs = json.loads((tmp_path / "small-requests-quick.json").read_text("utf-8"))["runs"]
    assert [run["variant"] for run in runs] == [PROXY, DIRECT]
    assert all(run["requests_s"] > 0 for run in runs)
    assert runs[0]["worker_user_us"] > 0
    assert runs[1]["worker_user_us"] is None
