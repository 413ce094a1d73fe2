"""What a plugin removes at its start: what crashed copies have left, unless it never may."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kip405.errors import Unavailable
from rsm_plugins.local.manager import LocalRemoteStorageManager
from rsm_plugins.process.config import SWEEP_NEVER_MS
from rsm_plugins.process.plugin import sweep_leftovers
from rsm_plugins.store_kinds import OpenStore


class Swept:
    """A store that says what it was asked to remove."""

    def __init__(self, folder: Path, fails: bool = False) -> None:
        self.graces_ms: list[int] = []
        self._fails = fails
        manager = LocalRemoteStorageManager(folder)
        self.store = OpenStore(manager=manager, uri="file:///x", sweep=self._sweep)

    async def _sweep(self, grace_ms: int) -> int:
        self.graces_ms.append(grace_ms)
        if self._fails:
            raise Unavailable("AccessDenied")
        return 3


@pytest.mark.parametrize(
    ("grace_ms", "asks"), [(SWEEP_NEVER_MS, False), (SWEEP_NEVER_MS - 1, True)]
)
async def test_a_plugin_that_never_sweeps_asks_the_store_nothing(
    grace_ms: int, asks: bool, tmp_path: Path
) -> None:
    """A reader has no right to look for uploads, and a command leaves them to the services."""
    swept = Swept(tmp_path)
    with capture_logs() as logs:
        await sweep_leftovers(swept.store, grace_ms)
    assert swept.graces_ms == ([grace_ms] if asks else [])
    assert [line["event"] for line in logs] == (["sweep_done"] if asks else [])


async def test_a_refused_sweep_is_a_line_in_the_log(tmp_path: Path) -> None:
    swept = Swept(tmp_path, fails=True)
    with capture_logs() as logs:
        await sweep_leftovers(swept.store, 0)
    assert [(line["event"], line["what"]) for line in logs] == [("sweep_failed", "AccessDenied")]
