"""The ledger topic is deleted under load: nothing goes, and the stores bring it back (H6)."""

import itertools
import threading
from collections.abc import Callable

import pytest

from rlmm.topic import LEDGER_TOPIC
from rsm_plugins.files.store_tree import TEMPORARY_SUFFIX
from tests.scenarios.cluster import Cluster, Row, assert_same, fresh, text_value
from tests.scenarios.objects import finished_segments, names_of, objects_of

pytestmark = pytest.mark.integration


class _Load:
    """Producing in a thread until told to stop; `rows` is what was acknowledged."""

    def __init__(self, cluster: Cluster, topic: str, first: int) -> None:
        self._cluster, self._topic, self._first = cluster, topic, first
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.rows: list[Row] = []

    def _run(self) -> None:
        numbers = itertools.takewhile(
            lambda _: not self._is_over.wait(0.002), itertools.count(self._first)
        )
        self.rows = self._cluster.produce(
            self._topic, ((0, b"key-%d" % number, text_value()) for number in numbers)
        )

    def __enter__(self) -> "_Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(240)
        assert not self._thread.is_alive(), "the producer hangs"


def _listed(cluster: Cluster, topic: str) -> set[str]:
    """Ids of the segments that the ledger lists as finished."""
    rows = cluster.rlm_json("segments", topic)["segments"]
    return {row["segment_id"] for row in rows if row["state"] == "COPY_SEGMENT_FINISHED"}


def _objects(cluster: Cluster, topic: str) -> set[str]:
    """Names of the topic's objects, without those that are being written."""
    names = names_of(objects_of(cluster), topic)
    return {name for name in names if not name.endswith(TEMPORARY_SUFFIX)}


def _says_missing(cluster: Cluster) -> Callable[[], bool]:
    def says() -> bool:
        shown = cluster.rlm("status").stdout
        return f"topic {LEDGER_TOPIC} is missing" in " ".join(shown.split())

    return says


def test_h06_a_ledger_deleted_under_load_comes_back_from_the_stores(one: Cluster) -> None:
    topic = fresh("rebuilt")
    one.create_topic(topic)
    one.enable(topic)
    rows = one.fill(topic, mib=5)
    one.wait_trimmed(topic)
    one.wait_for(lambda: len(finished_segments(one, topic)) >= 4, "segments copied")
    segments = _listed(one, topic)
    config = str(one.sandbox.layout.rlm_config(1))
    with _Load(one, topic, first=len(rows)) as load:
        one.admin.delete_topics([LEDGER_TOPIC])[LEDGER_TOPIC].result(120)
        names = _objects(one, topic)
        one.wait_for(_says_missing(one), "the alarm")
        start = one.log_start(topic)  # a trim that was decided before the deletion is over
        dry = one.rlm_json("ledger", "rebuild", "--from-store", "--config", config)
        assert dry["written"] is None
        assert LEDGER_TOPIC not in one.admin.list_topics(timeout=120).topics
        done = one.rlm(
            "ledger", "rebuild", "--from-store", "--config", config, "--yes", check=False
        )
        assert "restart every service now" in done.stdout, done.stderr
    assert load.rows
    assert one.log_start(topic) == start
    assert names <= _objects(one, topic)
    for _ in range(2):  # soon again: what the first one read is stored before whose ids it read
        one.sandbox.stop("rlm:1")
        one.sandbox.start("rlm:1")
    assert segments <= _listed(one, topic)
    assert_same(one.read_all(topic), [*rows, *load.rows])
    one.wait_trimmed(topic, beyond=start)
    one.rlm("verify", topic, "--deep")
