"""The store, its plugin or the service fail for a while: new data goes on, old data waits.

What "read-only" means here: the modes of all directories of the store lose their w, and the plugin
runs without CAP_DAC_OVERRIDE (tests.scenarios.faults), since modes alone do not stop root.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pytest

from rlm.sandbox.sandbox import Sandbox
from tests.scenarios.cluster import Cluster, Row, assert_same, fresh
from tests.scenarios.faults import plugin_that_obeys_modes, read_only_store, whole
from tests.scenarios.traffic import SteadyProducer, TailConsumer

pytestmark = pytest.mark.integration

_MIB = 3
_FAULT_S = 3.0
_KIB_PER_S = 700
# Nothing of a fault's partition was read before, so no cache of the service can answer for it.
_SLOW_READ: dict[str, Any] = {"log_level": 0, "reconnect.backoff.max.ms": 500}
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


# Of each fault a partition; the one behind them is the live one.
FAULTS: dict[str, Fault] = {
    "store moved away": lambda cluster: _killed(cluster, "store"),
    "plugin killed": lambda cluster: _killed(cluster, "plugin:1"),
    "plugin paused": lambda cluster: _paused(cluster, "plugin:1"),
    "service paused": lambda cluster: _paused(cluster, "rlm:1"),
    "service killed": lambda cluster: _killed(cluster, "rlm:1"),
    "store read-only": _read_only,
}
_NAMES = list(FAULTS)
_LIVE = len(FAULTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A topic with trimmed data in a partition per fault, and a live partition."""

    topic: str
    rows: dict[int, list[Row]]


@pytest.fixture(scope="module")
def archive(one_broker: Sandbox) -> Archive:
    cluster = Cluster(one_broker)
    whole(cluster)
    topic = fresh("faults")
    cluster.create_topic(topic, partitions=_LIVE + 1)
    cluster.enable(topic)
    rows = {one: cluster.fill(topic, mib=_MIB, partition=one) for one in range(_LIVE)}
    for partition in rows:
        cluster.wait_trimmed(topic, partition)
    return Archive(topic=topic, rows=rows)


@pytest.mark.parametrize("name", _NAMES, ids=lambda name: name.replace(" ", "-"))
def test_new_data_is_undisturbed_and_old_data_waits(
    one: Cluster, archive: Archive, name: str
) -> None:
    topic, partition = archive.topic, _NAMES.index(name)
    of_service = name.startswith("service")
    through = one.direct if of_service else one.bootstrap
    rows = archive.rows[partition]
    with (
        SteadyProducer(one, topic, [_LIVE], kib_per_s=_KIB_PER_S, bootstrap=through) as load,
        SteadyProducer(one, topic, [_LIVE], kib_per_s=50) as proxied,
        TailConsumer(one, topic, _LIVE) as tail,
        ThreadPoolExecutor(1) as reader,
    ):
        one.wait_for(lambda: len(tail.offsets) > 0, "the tail consumer reads")
        with FAULTS[name](one):
            old = reader.submit(one.read_all, topic, end={partition: len(rows)}, **_SLOW_READ)
            began, before, tailed = time.monotonic(), len(load.rows), len(tail.offsets)
            time.sleep(_FAULT_S)
            produced, consumed = len(load.rows) - before, len(tail.offsets) - tailed
            lasted_s = time.monotonic() - began
            log_start, was_waiting = one.log_start(topic, _LIVE), not old.done()
        assert_same(old.result(90), rows)
        recovered = one.wait_trimmed(topic, _LIVE, beyond=log_start)
    assert recovered > log_start
    assert (load.failures, proxied.failures, tail.problems) == ([], [], [])
    assert produced > 0.8 * _KIB_PER_S * lasted_s
    assert was_waiting is (name != "store read-only")
    if not of_service:
        assert consumed > 0.8 * _KIB_PER_S * lasted_s


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
