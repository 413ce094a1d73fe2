"""The benchmark of the ledger works from end to end; its numbers are not looked at."""

import json
from pathlib import Path

from bench import ledger_snapshot
from bench.ledger import main


def test_quick_measures_memory_replay_lookups_and_views(tmp_path: Path) -> None:
    assert main(["--quick", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "ledger-quick.json").read_text(encoding="utf-8"))
    assert result["many_partitions"]["records"] == 2 * result["many_partitions"]["segments"]
    assert result["many_partitions"]["lookup_us"]["cpu_p99"] > 0
    assert len(result["one_partition"]["view_ms"]) == 5


def test_quick_is_ready_from_the_snapshot_that_it_wrote(tmp_path: Path) -> None:
    assert ledger_snapshot.main(["--quick", "--times", "1", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "ledger-snapshot-quick.json").read_text(encoding="utf-8"))
    [restored] = result["restores"]
    # each day one partition of the ledger is not read from it
    assert 0.9 < restored["segments"] / (result["records"] / 2) <= 1
    assert restored["wall_s"] > 0
