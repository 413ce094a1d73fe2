"""The console of a real service shows faults within ten seconds: an unreadable directory, a store
that is gone, a dead plugin, and a partition that is stuck behind it.
"""

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.busy import busy_factor
from tests.scenarios.cluster import Cluster, fresh
from tests.scenarios.faults import service_that_obeys_modes, store_dir, unreadable

pytestmark = pytest.mark.integration
SHOWN_WITHIN_S = 10
_LIMIT_S = 120


class Page:
    """What the page would get of one topic."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._url = f"http://127.0.0.1:{cluster.sandbox.state.ports[1].http}/console"
        self._topic = topic

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._url}/{path}", timeout=30) as answer:
            return json.loads(answer.read())

    def row(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"data/partition?topic={self._topic}&partition=0")
        return {**(found["row"] or {}), "kinds": {one["kind"] for one in found["problems"]}}

    def store(self) -> dict[str, Any]:
        [service] = self.get("data/cluster")["services"]
        [store] = service["stores"]
        return {**store, "health": service["health"]}

    def is_well(self) -> bool:
        row = self.row()
        return (
            row.get("lag_bytes") == 0
            and not row["last_error"]
            and not row["kinds"]
            and not self.store()["problem"]
        )

    def is_troubled(self) -> bool:
        """Whether the page marks the partition, and says why."""
        row = self.row()
        return bool(row["last_error"] or row["alarms"] or row["kinds"])

    def shows(self, what: str, is_shown: Callable[[], bool]) -> None:
        began_s = time.monotonic()
        self._cluster.wait_for(is_shown, what, _LIMIT_S)
        took_s = time.monotonic() - began_s
        print(f"{what} is shown after {took_s:.1f} s")
        assert took_s <= SHOWN_WITHIN_S * busy_factor(), f"{what}: {took_s:.1f} s"


def test_faults_are_shown_within_ten_seconds(one: Cluster, tmp_path: Path) -> None:
    topic = fresh("console")
    one.create_topic(topic)
    one.enable(topic)
    one.fill(topic, mib=3)
    one.wait_copied(topic)
    page = Page(one, topic)
    [log_dir] = [
        path / f"{topic}-0" for path in one.sandbox.log_dirs() if (path / f"{topic}-0").is_dir()
    ]
    with service_that_obeys_modes(one, tmp_path / "service.log"):
        one.wait_for(page.is_well, "all is well", _LIMIT_S)
        assert page.row()["local_bytes"] > 0
        assert page.get(f"data/segments?topic={topic}&partition=0")["count"] > 0
        assert page.get(f"data/explanation?topic={topic}&partition=0")["sentences"]
        with unreadable(log_dir):
            page.shows("the unreadable directory", page.is_troubled)
            one.wait_for(lambda: "lag-unknown" in page.row()["kinds"], "the problem", _LIMIT_S)
            assert page.row()["lag_bytes"] is None
        moved = store_dir(one).with_name("store-moved")
        store_dir(one).rename(moved)
        try:
            page.shows("the store that is gone", lambda: bool(page.store()["problem"]))
            assert page.store()["health"] == "alarm"
        finally:
            moved.rename(store_dir(one))
        one.wait_for(page.is_well, "all is well again", _LIMIT_S)
        one.sandbox.kill("plugin:1")
        page.shows("the dead plugin", lambda: bool(page.store()["problem"]))
        one.fill(topic, mib=3)
        page.shows("the stuck partition", page.is_troubled)
        one.wait_for(lambda: "nothing-copied" in page.row()["kinds"], "the problem", _LIMIT_S)
        assert page.row()["lag_bytes"] > 0
        one.sandbox.start("plugin:1")
        one.wait_for(page.is_well, "all is copied in the end", _LIMIT_S)
