"""The least that a configuration of a broker's service has."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    """All that is needed without a store and without files of the broker."""
    return {
        "node.id": 3,
        "cluster.id": "c1",
        "log.dirs": [str(tmp_path / "logs")],
        "state.dir": str(tmp_path / "state"),
        "broker.direct.address": "127.0.0.1:19092",
        "broker.tiered.address": "127.0.0.1:19093",
        "proxy.listen": "127.0.0.1:9092",
        "grpc.listen": "127.0.0.1:9095",
        "http.listen": "localhost:9096",
    }
