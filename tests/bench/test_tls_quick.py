"""The benchmark of TLS on a socket measures all three ways."""

import json
from pathlib import Path

from bench import tls_transport


def test_each_way_is_measured(tmp_path: Path) -> None:
    assert tls_transport.main(["--quick", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "tls-transport-quick.json").read_text(encoding="utf-8"))
    assert [run["variant"] for run in result["runs"]] == list(tls_transport.VARIANTS)
    memory = {run["variant"]: run["kib_a_connection"] for run in result["runs"]}
    assert memory["proxy"] < memory["asyncio"] / 2
