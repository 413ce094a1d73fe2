"""The console of a real service shows faults within ten seconds: a store that is gone, a dead
plugin, a partition that is stuck behind it, and an unreadable directory. It also does something.

The service has the intervals that services have outside of a sandbox, but for the ones named here.
The page asks every three seconds, so the data has it three seconds earlier.
"""

import json
import re
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlm.console.routes import read_assets
from tests.busy import busy_factor
from tests.scenarios.cluster import Cluster, fresh
from tests.scenarios.faults import service_that_obeys_modes, store_dir, unreadable
from tests.scenarios.slowness import Slowness

pytestmark = pytest.mark.integration
SHOWN_WITHIN_S = 10
_PAGE_ASKS_EVERY_S = 3
_STUCK_AFTER_S = 15
"""When the problem `nothing-copied` begins here; by default after 90 s (problem.copy.intervals)."""
_SETTINGS = {
    "console.actions": True,
    "remote.log.manager.task.interval.ms": 15_000,
    "problem.copy.intervals": 1,
    "remote.log.manager.task.retry.backoff.max.ms": 2_000,
}
_LIMIT_S = 120


class Page:
    """What the page gets."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._url = f"http://127.0.0.1:{cluster.sandbox.state.ports[1].http}/console"

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._url}/{path}", timeout=_LIMIT_S) as answer:
            return json.loads(answer.read())

    def act(self, name: str, **fields: object) -> list[dict[str, Any]]:
        """All lines of an action."""
        headers = {"Content-Type": "application/json", "Origin": self._url.rpartition("/")[0]}
        request = urllib.request.Request(
            f"{self._url}/actions/{name}", json.dumps(fields).encode(), headers
        )
        with urllib.request.urlopen(request, timeout=_LIMIT_S) as answer:
            return [json.loads(line) for line in answer]

    def row(self, topic: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"data/partition?topic={topic}&partition=0")
        problems = {one["kind"]: found["now_ms"] - one["since_ms"] for one in found["problems"]}
        return {**(found["row"] or {}), "problems": problems}

    def failing(self, topic: str) -> int:
        """As the first page shows it."""
        [row] = self.get(f"data/cluster?search={topic}")["topics"]["rows"]
        return int(row["failing"])

    def store(self) -> dict[str, Any]:
        [service] = self.get("data/cluster?count=1")["services"]
        [store] = service["stores"]
        return {**store, "health": service["health"]}

    def is_well(self, topic: str) -> bool:
        row = self.row(topic)
        is_copied = row.get("lag_bytes") == 0 and row["remote_segments"] > 0
        return is_copied and not (row["last_error"] or row["alarms"] or row["problems"])

    def shows(
        self, what: str, is_shown: Callable[[], bool], began_s: float, due_after_s: int = 0
    ) -> None:
        """`due_after_s`: from when on it is a fault."""
        with Slowness(self._folder) as slowness:
            self._cluster.wait_for(is_shown, what, _LIMIT_S)
        took_s = time.monotonic() - began_s - slowness.late_s
        late = f"{slowness.late_s:.1f} s of a busy machine"
        print(f"{what} is in the data after {took_s:.1f} s, and {late}")
        limit_s = due_after_s + SHOWN_WITHIN_S - _PAGE_ASKS_EVERY_S
        assert took_s <= limit_s * busy_factor(), f"{what}: {took_s:.1f} s"


def test_faults_are_shown_within_ten_seconds(one: Cluster, tmp_path: Path) -> None:
    idle, written = fresh("idle"), fresh("written")
    for topic in (idle, written):
        one.create_topic(topic)
        one.enable(topic)
    page = Page(one, tmp_path)
    asks = re.search(rb"const POLL_MS = (\w+);", read_assets()["app.js"].body)
    assert asks and int(asks[1]) <= _PAGE_ASKS_EVERY_S * 1000
    with service_that_obeys_modes(one, tmp_path / "service.log", _SETTINGS):
        for topic in (idle, written):
            one.fill(topic, mib=3)
        for topic in (idle, written):
            one.wait_for(lambda: page.is_well(topic), f"{topic} is copied", _LIMIT_S)  # noqa: B023
        assert page.row(idle)["local_bytes"] > 0
        # A status of the cluster may be a second older than that of the topic.
        one.wait_for(lambda: page.failing(idle) == 0, "nothing of it fails", _LIMIT_S)
        assert page.get(f"data/segments?topic={idle}&partition=0")["count"] > 0
        assert page.get(f"data/explanation?topic={idle}&partition=0")["sentences"]
        _assert_acts(one, page, idle)
        gone = _assert_shows_a_store_that_is_gone(one, page)
        began_s = time.monotonic()
        one.sandbox.kill("plugin:1")
        page.shows("the dead plugin", lambda: page.store()["problem"] not in ("", gone), began_s)
        one.wait_for(lambda: page.store()["health"] == "alarm", "the alarm", _LIMIT_S)
        one.fill(written, mib=3)
        began_s = time.monotonic()
        page.shows("the copy that fails", lambda: page.failing(written) > 0, began_s)
        _assert_shows_an_unreadable_directory(one, page, idle)
        page.shows(
            "the stuck partition",
            lambda: "nothing-copied" in page.row(written)["problems"],
            began_s,
            _STUCK_AFTER_S,
        )
        assert page.row(written)["lag_bytes"] > 0
        one.sandbox.start("plugin:1")
        for topic in (idle, written):
            one.wait_for(lambda: page.is_well(topic), f"{topic} is well", _LIMIT_S)  # noqa: B023


def _assert_acts(one: Cluster, page: Page, topic: str) -> None:
    """Of a partition that is copied and whole."""
    *_, copied, end = page.act("copy", topic=topic, partition=0)
    assert (copied["error"], copied["doing"], end) == ("", "done", {"end": True})
    unchecked: list[str] = []

    def is_verified() -> bool:
        """What cannot be asked in this moment is not verified."""
        *lines, end = page.act("verify", topic=topic)
        [verified] = [line for line in lines if "findings" in line]
        assert (verified["findings"], end) == (0, {"end": True}), str(lines)
        unchecked[:] = verified["unchecked"]
        return not unchecked

    one.wait_for(is_verified, f"all of {topic} is verified", _LIMIT_S)


def _assert_shows_a_store_that_is_gone(one: Cluster, page: Page) -> str:
    """What the page says of it."""
    store, began_s = store_dir(one), time.monotonic()
    moved = store.with_name("store-moved")
    store.rename(moved)
    try:
        page.shows("the store that is gone", lambda: bool(page.store()["problem"]), began_s)
        return str(page.store()["problem"])
    finally:
        moved.rename(store)


def _assert_shows_an_unreadable_directory(one: Cluster, page: Page, topic: str) -> None:
    """Of a partition that nobody writes, so nothing but the directory's mode changes."""
    [directory] = [
        path / f"{topic}-0" for path in one.sandbox.log_dirs() if (path / f"{topic}-0").is_dir()
    ]
    began_s = time.monotonic()
    with unreadable(directory):
        page.shows(
            "the unreadable directory",
            lambda: "Permission denied" in page.row(topic)["last_error"],
            began_s,
        )
        # A status of the cluster may be a second older than that of the topic.
        one.wait_for(lambda: page.failing(topic) == 1, "the topic is one that fails", _LIMIT_S)
