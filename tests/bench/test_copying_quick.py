"""The benchmark of copies works from end to end; its numbers are not looked at."""

import json
from pathlib import Path

import pytest

from bench.copying import main


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.timeout(600)
def test_quick_copies_one_partition_and_eight(tmp_path: Path) -> None:
    assert main(["--quick", "--segment-mib", "1", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "copying-quick.json").read_text(encoding="utf-8"))
    assert [run["partitions"] for run in result["runs"]] == [1, 8]
    assert all(run["seconds"] > 0 and run["segments"] > 0 for run in result["runs"])
    assert str(Path.home()) not in json.dumps(result)
