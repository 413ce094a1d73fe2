"""The benchmark of the socket between core and worker measures both ways."""

import json
from pathlib import Path

from bench import worker_link


def test_each_way_is_measured(tmp_path: Path) -> None:
    assert worker_link.main(["--quick", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "worker-link-quick.json").read_text(encoding="utf-8"))
    found = [(run["variant"], run["in_flight"]) for run in result["runs"]]
    assert found == [(one, number) for number in (1, 8) for one in worker_link.VARIANTS]
    assert all(run["core_cpu_s_gb"] > 0 and run["worker_cpu_s_gb"] > 0 for run in result["runs"])
