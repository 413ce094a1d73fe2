"""The benchmark of the ledger works from end to end; its numbers are not looked at."""

import json
from pathlib import Path

from bench.ledger import main


def test_quick_measures_memory_replay_lookups_and_views(tmp_path: Path) -> None:
    assert main(["--quick", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "ledger-quick.json").read_text(encoding="utf-8"))
    assert result["many_partitions"]["records"] == 2 * result["many_partitions"]["segments"]
    assert result["many_partitions"]["lookup_us"]["cpu_p99"] > 0
    assert len(result["one_partition"]["view_ms"]) == 5
