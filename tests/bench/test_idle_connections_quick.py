"""The benchmark of silent connections works from end to end; its numbers are not looked at."""

import json
from pathlib import Path

import pytest

from bench.idle_connections import main

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_quick_measures_silent_connections_without_and_with_tls(tmp_path: Path) -> None:
    assert main(["--quick", "--workers", "1", "--out", str(tmp_path)]) == 0
    document = json.loads((tmp_path / "idle-connections-quick.json").read_text(encoding="utf-8"))
    runs = {run["security"]: run for run in document["runs"]}
    assert list(runs) == ["plaintext", "sasl_ssl"]
    assert all(run["mib_after"] > 0 and run["connections"] == 50 for run in runs.values())
