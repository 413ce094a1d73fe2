"""Three brokers on which a service is adopted step by step: what each step does, and how it is
killed and done again.
"""

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from rlm_sandbox.files import write_atomically
from rlm_sandbox.sandbox import Sandbox
from tests.builders import secured_clients
from tests.scenarios.adoption_page import AdoptionPage
from tests.scenarios.cluster import Cluster, Row, row_of
from tests.scenarios.replicas import isr, replicas
from tests.scenarios.test_secured import PrincipalCluster

_TIERED = "TIERED:"
_LISTS = ("listeners", "advertised.listeners", "listener.security.protocol.map")
_KILLED_AFTER_S = (0.3, 2.5)
"""A command starts within the first of it, and most have ended by the last."""
_AGAIN_S = 240


def without_tiered(text: str) -> str:
    """server.properties without what the page has an operator add."""
    kept = []
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key.startswith("listener.name.tiered."):
            continue
        if key in _LISTS:
            value = ",".join(one for one in value.split(",") if not one.startswith(_TIERED))
            line = f"{key}={value}"
        kept.append(line)
    return "".join(f"{line}\n" for line in kept)


class Brokers:
    """Those of a sandbox, whose listener TIERED comes and goes with a restart."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        paths = {node: sandbox.layout.server_properties(node) for node in sandbox.state.ports}
        self._texts = {node: path.read_text(encoding="utf-8") for node, path in paths.items()}

    def take_out_of_all(self) -> None:
        """Before there are clients."""
        for node in self._texts:
            self._sandbox.stop(f"broker:{node}")
        for node in self._texts:
            self._write(node, has_tiered=False)
            self._sandbox.start(f"broker:{node}", wait=node == max(self._texts))

    def restart(self, cluster: Cluster, node: int, *, has_tiered: bool) -> None:
        """Returns when its replicas are in sync again: the next one may follow."""
        self._sandbox.stop(f"broker:{node}")
        self._write(node, has_tiered=has_tiered)
        self._sandbox.start(f"broker:{node}")
        wait_in_sync(cluster)

    def _write(self, node: int, *, has_tiered: bool) -> None:
        text = self._texts[node] if has_tiered else without_tiered(self._texts[node])
        path = self._sandbox.layout.server_properties(node)
        write_atomically(path, text, private=True)


def wait_in_sync(cluster: Cluster) -> None:
    """All replicas of all topics."""

    def is_so() -> bool:
        topics = cluster.admin.list_topics(timeout=10).topics
        return all(
            isr(cluster, name, number) == set(replicas(cluster, name, number))
            for name, one in topics.items()
            for number in one.partitions
        )

    cluster.wait_for(is_so, "all replicas are in sync")


class Steps:
    """Commands of the page, each killed twice before it is run to its end: once alone, and once
    together with the service that carries it out.
    """

    def __init__(self, cluster: Cluster, page: AdoptionPage, chance: random.Random) -> None:
        self.cluster = cluster
        self.page = page
        self.kills = 0
        self._chance = chance

    def do(
        self,
        heading: str,
        command: str,
        *options: str,
        killed: int,
        is_over: str = "",
        **names: str,
    ) -> None:
        """`killed`: the node of the service. `is_over`: how it is refused where one that was killed
        has come to its end.
        """
        words = [*self.page.words(heading, command, **names), *options]
        self._kill(words, None)
        self._kill(words, killed)
        self._again(words, is_over)

    def kill_service(self, node: int) -> None:
        """Start it, kill it at any moment, and start it again."""
        self.cluster.sandbox.start(f"rlm:{node}", wait=False)
        time.sleep(self._chance.uniform(*_KILLED_AFTER_S))
        self.kill_running(node)

    def kill_running(self, node: int) -> None:
        """Returns when it is ready again."""
        self.cluster.sandbox.kill(f"rlm:{node}")
        self.kills += 1
        self.cluster.sandbox.start(f"rlm:{node}")

    def _kill(self, words: Iterable[str], node: int | None) -> None:
        environ = {**os.environ, "RLM_SANDBOX": str(self.cluster.sandbox.json["dir"])}
        with subprocess.Popen(
            [sys.executable, "-m", "rlm.cli.main", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environ,
        ) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self._chance.uniform(*_KILLED_AFTER_S))
            if node is not None:
                self.cluster.sandbox.kill(f"rlm:{node}")
            process.kill()
        self.kills += 1
        if node is not None:
            self.cluster.sandbox.start(f"rlm:{node}")

    def _again(self, words: list[str], is_over: str) -> None:
        """Until it succeeds: services that have just begun have not heard of each other yet."""
        deadline = time.monotonic() + _AGAIN_S
        while True:
            done = self.cluster.rlm(*words, check=False, timeout_s=_AGAIN_S)
            if done.returncode == 0 or (is_over and is_over in done.stderr):
                return
            shown = f"rlm {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
            assert time.monotonic() < deadline, shown
            time.sleep(0.5)


class TestConsumer:
    """The one of the page's third step: a member of a group of its own, which commits."""

    __test__ = False

    def __init__(self, cluster: PrincipalCluster, topic: str, group: str) -> None:
        self.group = group
        self._past = secured_clients.librdkafka(cluster.sandbox.json, "admin")
        self._through = cluster.client
        self._topic = topic
        self.rows: list[Row] = []

    def read(self, ends: Mapping[int, int], on_row: Mapping[int, Any]) -> None:
        """Through the proxies, from the first remote record on, until it is at `ends`; what it has
        read then is committed.
        """
        self._read(self._through, ends, on_row, reset="earliest")

    def go_back(self, ends: Mapping[int, int]) -> None:
        """Past the proxies, from what is committed."""
        self._read(self._past, ends, {}, reset="error")

    def _read(
        self, client: Mapping[str, Any], ends: Mapping[int, int], on_row: Any, *, reset: str
    ) -> None:
        consumer: Any = Consumer(
            {
                **client,
                "group.id": self.group,
                "auto.offset.reset": reset,
                "enable.auto.commit": False,
                "fetch.message.max.bytes": 65_536,
                "log_level": 0,
            }
        )
        consumer.subscribe([self._topic])
        following = {row.partition: row.offset + 1 for row in self.rows}
        deadline = time.monotonic() + _AGAIN_S
        try:
            while any(following.get(one, 0) < end for one, end in ends.items()):
                assert time.monotonic() < deadline, f"at {following}, not at {ends}"
                message = consumer.poll(1.0)
                if message is None:
                    continue
                assert message.error() is None, message.error()
                self.rows.append(row_of(message))
                following[message.partition()] = message.offset() + 1
                on_row.get(len(self.rows), lambda: None)()
            at = [TopicPartition(self._topic, *one) for one in following.items()]
            consumer.commit(offsets=at, asynchronous=False)
        finally:
            consumer.close()


def group_at(cluster: Cluster, nodes: Iterable[int]) -> str:
    """A name for a new group whose coordinator is one of these brokers."""
    wanted = set(nodes)
    for number in range(100):
        name = f"test-consumer-{number}"
        asked = cluster.admin.describe_consumer_groups([name])[name]
        if asked.result(60).coordinator.id in wanted:
            return name
    raise AssertionError(f"none of 100 groups is coordinated at {wanted}")


def row_position(row: Row) -> tuple[int, int]:
    """In this order rows are compared."""
    return row.partition, row.offset


def wait_health(cluster: Cluster) -> None:
    """`rlm status` ends with status 0: no alarm, and every service is well."""
    shown: list[str] = []

    def is_well() -> bool:
        done = cluster.rlm("status", check=False)
        shown[:] = [done.stdout + done.stderr]
        return done.returncode == 0

    try:
        cluster.wait_for(is_well, "rlm status ends with 0", 240)
    except AssertionError as error:
        raise AssertionError("".join(shown)) from error


def wait_described(cluster: Cluster, topic: str, wanted: Mapping[str, Any]) -> None:
    """Until `rlm topics describe` says so."""
    cluster.wait_for(
        partial(_is_described, cluster, topic, wanted), f"{topic} is described as {wanted}"
    )


def _is_described(cluster: Cluster, topic: str, wanted: Mapping[str, Any]) -> bool:
    found = cluster.rlm_json("topics", "describe", topic)
    return {name: found.get(name) for name in wanted} == dict(wanted)
