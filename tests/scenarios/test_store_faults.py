"""The store, its plugin or the service fail for a while: new data goes on, old data waits.

Each fault strikes in the middle of copying, of a read that has begun, and before one that begins.

What "read-only" means here: the modes of all directories of the store lose their w, and the plugin
runs without CAP_DAC_OVERRIDE (tests.scenarios.faults), since modes alone do not stop root.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlm_sandbox.sandbox import Sandbox
from tests.scenarios.cluster import Cluster, Row, assert_same, fresh
from tests.scenarios.faults import plugin_that_obeys_modes, read_only_store, whole
from tests.scenarios.slowness import Slowness
from tests.scenarios.traffic import SteadyProducer, TailConsumer

pytestmark = pytest.mark.integration

_MIB = 3
_FAULT_S = 3.0
_KIB_PER_S = 700
_GOES_ON = 0.5
"""A busy machine slows a paced producer, and the fault lasts until so much was written of what the
producer's rate is; one that waits for the store stands still.
"""
_STOP_AT_ROW = 200
_READ_LIMIT_S = 150
# Nothing of a fault's partition was read before, so no cache of the service can answer for it.
_SLOW_READ: dict[str, Any] = {
    "log_level": 0,
    "reconnect.backoff.max.ms": 500,
    "timeout_s": _READ_LIMIT_S,
}
Fault = Callable[[Cluster], AbstractContextManager[None]]


@contextlib.contextmanager
def _killed(cluster: Cluster, part: str) -> Iterator[None]:
    cluster.sandbox.kill(part)
    yield
    cluster.sandbox.start(part)


@contextlib.contextmanager
def _paused(cluster: Cluster, part: str) -> Iterator[None]:
    cluster.sandbox.pause(part)
    yield
    cluster.sandbox.resume(part)


@contextlib.contextmanager
def _read_only(cluster: Cluster) -> Iterator[None]:
    with plugin_that_obeys_modes(cluster), read_only_store(cluster):
        yield


# By store. Of each fault two partitions; the one behind them is the live one.
LOCAL_FAULTS: dict[str, Fault] = {
    "store moved away": lambda cluster: _killed(cluster, "store"),
    "plugin killed": lambda cluster: _killed(cluster, "plugin:1"),
    "plugin paused": lambda cluster: _paused(cluster, "plugin:1"),
    "service paused": lambda cluster: _paused(cluster, "rlm:1"),
    "service killed": lambda cluster: _killed(cluster, "rlm:1"),
    "store read-only": _read_only,
}
FAULTS: dict[str, dict[str, Fault]] = {
    "local": LOCAL_FAULTS,
    "s3": {
        "store killed": lambda cluster: _killed(cluster, "store"),
        "store paused": lambda cluster: _paused(cluster, "store"),
        "plugin killed": lambda cluster: _killed(cluster, "plugin:1"),
    },
    "hdfs": {
        "name node paused": lambda cluster: _paused(cluster, "store:namenode"),
        "data node killed": lambda cluster: _killed(cluster, "store:datanode"),
        "name node killed": lambda cluster: _killed(cluster, "store:namenode"),
        "data node paused": lambda cluster: _paused(cluster, "store:datanode"),
    },
}
# One store per kind of fault; all combinations run the long way.
_LONG = {("s3", "plugin killed"), ("hdfs", "name node killed"), ("hdfs", "data node paused")}
CASES = [
    pytest.param(
        store,
        name,
        id=f"{store}-{name.replace(' ', '-')}",
        marks=pytest.mark.long if (store, name) in _LONG else (),
    )
    for store, faults in FAULTS.items()
    for name in faults
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A topic with two partitions for each fault, and a live partition behind them."""

    cluster: Cluster
    topic: str
    names: list[str]

    @property
    def live(self) -> int:
        return 2 * len(self.names)

    def trimmed(self, name: str) -> tuple[list[Row], list[Row]]:
        """Trimmed data in the fault's partitions: of the read that has begun, and of the one that
        begins in the fault.
        """
        at = 2 * self.names.index(name)
        begun, other = (self.cluster.fill(self.topic, mib=_MIB, partition=at + i) for i in (0, 1))
        for rows in (begun, other):
            self.cluster.wait_trimmed(self.topic, rows[0].partition)
        return begun, other


@pytest.fixture(scope="module")
def archive(one_broker: Sandbox) -> Iterator[Archive]:
    cluster = Cluster(one_broker)
    whole(cluster)
    names = list(FAULTS[one_broker.state.spec.store])
    topic, live = fresh("faults"), 2 * len(names)
    cluster.create_topic(topic, partitions=live + 1)
    cluster.enable(topic)
    yield Archive(cluster=cluster, topic=topic, names=names)
    cluster.delete_topics()
    cluster.close()


class _SlowReader:
    """Stops in the middle of a read until it is resumed; little is read ahead."""

    config: dict[str, Any] = {  # noqa: RUF012 - never changed
        **_SLOW_READ,
        "fetch.message.max.bytes": 65_536,
        "queued.max.messages.kbytes": 64,
    }

    def __init__(self) -> None:
        self.is_in_the_middle = threading.Event()
        self.go_on = threading.Event()

    def on_row(self, count: int) -> None:
        if count == _STOP_AT_ROW:
            self.is_in_the_middle.set()
            assert self.go_on.wait(_READ_LIMIT_S)


@pytest.mark.parametrize(("one_broker", "name"), CASES, indirect=["one_broker"], scope="session")
def test_new_data_is_undisturbed_and_old_data_waits(
    one: Cluster, archive: Archive, tmp_path: Path, name: str
) -> None:
    topic, live = archive.topic, archive.live
    begun, rows = archive.trimmed(name)
    slow = _SlowReader()
    of_service, is_read = name.startswith("service"), name == "store read-only"
    through = one.direct if of_service else one.bootstrap
    with (
        SteadyProducer(one, topic, [live], kib_per_s=_KIB_PER_S, bootstrap=through) as load,
        SteadyProducer(one, topic, [live], kib_per_s=50) as proxied,
        TailConsumer(one, topic, live) as tail,
        ThreadPoolExecutor(2) as readers,
    ):
        one.wait_for(lambda: len(tail.offsets) > 0, "the tail consumer reads")
        middle = readers.submit(
            one.read_all,
            topic,
            end=_end(begun),
            on_row=slow.on_row,
            **slow.config,
        )
        assert slow.is_in_the_middle.wait(_READ_LIMIT_S)
        with FAULTS[one.store_kind][name](one), Slowness(tmp_path) as slowness:
            slow.go_on.set()
            old = readers.submit(one.read_all, topic, end=_end(rows), **_SLOW_READ)
            going_on = [_Counted(load.rows)] + ([] if of_service else [_Counted(tail.offsets)])
            took_s = [_goes_on_after(one, counted) for counted in going_on]
            time.sleep(max(0.0, _FAULT_S - max(took_s)))
            limit_s = _FAULT_S * slowness.times + slowness.late_s
            if is_read:
                one.wait_for(old.done, "a store that is read-only is read")
            log_start, was_waiting = one.log_start(topic, live), not old.done()
        assert_same(old.result(_READ_LIMIT_S + 30), rows)
        assert_same(middle.result(_READ_LIMIT_S + 30), begun)
        recovered = one.wait_trimmed(topic, live, beyond=log_start)
    assert recovered > log_start
    assert (load.failures, proxied.failures, tail.problems) == ([], [], [])
    assert max(took_s) <= limit_s
    assert was_waiting is not is_read


class _Counted:
    """How many have come to a list since this was made."""

    def __init__(self, given: list[Any]) -> None:
        self._given, self._before, self.began_s = given, len(given), time.monotonic()

    def __len__(self) -> int:
        return len(self._given) - self._before


def _goes_on_after(cluster: Cluster, counted: _Counted) -> float:
    """Seconds until as much was written, or read, as at least in the time of a fault."""
    enough = _GOES_ON * _KIB_PER_S * _FAULT_S
    cluster.wait_for(lambda: len(counted) > enough, "new data goes on in the fault")
    return time.monotonic() - counted.began_s


def _end(rows: list[Row]) -> dict[int, int]:
    return {rows[0].partition: len(rows)}


@pytest.mark.long
def test_a_store_that_was_read_only_keeps_nothing_of_the_attempts(one: Cluster) -> None:
    """While nothing can be written nothing is trimmed beyond what was stored before."""
    topic = fresh("readonly")
    one.create_topic(topic)
    one.enable(topic)
    with plugin_that_obeys_modes(one):
        with read_only_store(one):
            rows = one.fill(topic, mib=4)
            one.wait_for(lambda: _last_error(one, topic) != "", "the failure shown by status")
            assert one.log_start(topic) == 0
        start = one.wait_trimmed(topic)
    assert start > 0
    assert_same(one.read_all(topic), rows)


def _last_error(cluster: Cluster, topic: str) -> str:
    [row] = cluster.rlm_json("status", topic)["partitions"]
    return str(row.get("last_error", ""))
