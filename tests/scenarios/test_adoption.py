"""docs/adoption.md on three brokers under load: all steps up, all the way down, uninstall; kill -9
of command and service in every step. Then the cluster is as it was.

SEED= kills at the same moments again.
"""

import os
import random
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer

from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import Override, SandboxSpec
from tests.builders import secured_clients
from tests.sandbox_fixtures import with_workers
from tests.scenarios.adoption_page import AdoptionPage
from tests.scenarios.cluster import Acknowledged, Row, assert_same, text_value
from tests.scenarios.cluster_state import (
    ClusterState,
    base_offset_of,
    closed_segments,
    commit,
    names_on_disk,
    state_of,
)
from tests.scenarios.ladder import (
    Brokers,
    Steps,
    TestConsumer,
    group_at,
    row_position,
    wait_described,
    wait_health,
)
from tests.scenarios.objects import finished_segments, names_of, objects_of
from tests.scenarios.test_secured import PrincipalCluster
from tests.scenarios.traffic import SteadyProducer, TailConsumer

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(3_600)]

NODES = (1, 2, 3)
CLICKS, LOGS, OTHERS = "clicks", ("logs-app", "logs-web"), "others"
PAST, THROUGH = (0, 1), (2, 3)
"""Partitions of `clicks` that are written past the proxies, and through them."""
_DAY_MS = 86_400_000
_AGE_MS = 4 * _DAY_MS
_RETENTION = {"retention.ms": str(7 * _DAY_MS)}
_KIB_PER_S = 40
_READ_S = 300.0
_STAY = (
    Override.parse("broker.auto.leader.rebalance.enable=false"),
    Override.parse("broker.broker.session.timeout.ms=30000"),
)
"""No broker dies here, and a group keeps the coordinator that was chosen."""
FIRST = "Before the first step"
BESIDE = "1. A service beside some brokers"
COPY = "2. Copy one topic"
TEST = "3. One test consumer"
COVER = "4. Cover all brokers"
TRIM = "5. Trim one topic and move its readers"
END = "Uninstall"


@dataclass
class Walk:
    """The cluster, what it was before, and what clients have written since."""

    cluster: PrincipalCluster
    brokers: Brokers
    steps: Steps
    old: list[Row]
    before: ClusterState
    names: dict[int, set[str]]
    segments: dict[int, dict[str, str]]
    load: ExitStack = field(default_factory=ExitStack)
    producers: list[SteadyProducer] = field(default_factory=list)
    tails: list[TailConsumer] = field(default_factory=list)

    @property
    def page(self) -> AdoptionPage:
        return self.steps.page

    @property
    def past(self) -> dict[str, Any]:
        """A client that comes past the proxies."""
        return secured_clients.librdkafka(self.cluster.sandbox.json, "admin")

    def begin_load(self, partitions: tuple[int, ...], client: dict[str, Any], stack: Any) -> None:
        """A producer, and consumers at the tail of what it writes."""
        for one in partitions:
            tail = TailConsumer(self.cluster, CLICKS, one, client=client)
            self.tails.append(stack.enter_context(tail))
        made = SteadyProducer(
            self.cluster, CLICKS, list(partitions), kib_per_s=_KIB_PER_S, client=client
        )
        self.producers.append(stack.enter_context(made))

    def rows(self) -> list[Row]:
        """What was acknowledged so far, to all partitions of `clicks`."""
        return sorted(
            [*self.old, *(row for one in self.producers for row in one.rows)], key=row_position
        )

    def read_through(self) -> None:
        """Everything is there once, from the first offset on."""
        rows = self.rows()
        ends = {row.partition: row.offset + 1 for row in rows}
        read = self.cluster.read_all(CLICKS, end=ends, timeout_s=_READ_S)
        known = {row_position(row) for row in rows}
        assert {row_position(row) for row in read} >= known, "records are missing"
        assert_same([row for row in read if row_position(row) in known], rows)

    def leader(self) -> int:
        """Whose service carries out what is asked of `clicks`."""
        return self.cluster.wait_led(CLICKS)

    def clicks_config(self) -> dict[str, Any]:
        return self.cluster.topic_config(CLICKS)


@pytest.fixture
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    """Brokers without TIERED and without services, some topics, and a group that has committed."""
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"SEED={seed}")
    later = tuple(f"rlm:{node}" for node in NODES)
    spec = SandboxSpec(
        brokers=3,
        security="sasl_plaintext",
        jvm="quick",
        heap_mib=256,
        without=later,
        overrides=_STAY,
    )
    made = Sandbox.up(tmp_path_factory.mktemp("ladder"), with_workers(spec))
    try:
        brokers = Brokers(made)
        brokers.take_out_of_all()
        with PrincipalCluster.of_sandbox(made) as cluster:
            instead = {"rlm.yaml": str(made.layout.rlm_config(1))}
            steps = Steps(cluster, AdoptionPage(cluster, instead), random.Random(seed))
            walk = _at_first(cluster, brokers, steps)
            with walk.load:
                yield walk
            walk.producers.clear()  # pytest holds the walk, and so their clients, for longer
            walk.tails.clear()
    finally:
        made.down(delete=not os.environ.get("RLM_KEEP_SANDBOX"))


def _at_first(cluster: PrincipalCluster, brokers: Brokers, steps: Steps) -> Walk:
    past = secured_clients.librdkafka(cluster.sandbox.json, "admin")
    pairs = [[1, 2], [2, 1], [1, 2], [2, 1]]
    cluster.create_topic(CLICKS, assignment=pairs, configs=_RETENTION)
    for name in (*LOGS, OTHERS):
        cluster.create_topic(name, assignment=[[1, 2, 3], [2, 3, 1]])
        cluster.fill(name, mib=3, **past)
    old = _old_records(past, CLICKS, partitions=len(pairs), each=3_000)
    commit(cluster, past, "readers", OTHERS, 17)
    return Walk(
        cluster=cluster,
        brokers=brokers,
        steps=steps,
        old=old,
        before=state_of(cluster),
        names={node: names_on_disk(cluster, node) for node in NODES},
        segments={node: closed_segments(cluster, node) for node in NODES},
    )


def _old_records(client: dict[str, Any], topic: str, *, partitions: int, each: int) -> list[Row]:
    """Of four days ago, as far as their timestamps say."""
    acked, stamp = Acknowledged(), int(time.time() * 1000) - _AGE_MS

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        acked.add(message, stamp)

    producer = Producer({**client, "acks": "all", "linger.ms": 5, "batch.size": 32_768})
    for number in range(each * partitions):
        producer.produce(
            topic,
            key=b"old-%d" % number,
            value=text_value(),
            partition=number % partitions,
            timestamp=stamp,
            on_delivery=delivered,
        )
        producer.poll(0)
    assert producer.flush(_READ_S) == 0
    assert len(acked.rows) == each * partitions
    return sorted(acked.rows, key=row_position)


def test_the_ladder_is_walked_up_and_down_under_load(walk: Walk) -> None:
    began = time.monotonic()
    walk.begin_load(PAST, walk.past, walk.load)
    with ExitStack() as through:
        for name, step in (
            ("beside", partial(_beside_some_brokers, walk)),
            ("copy", partial(_copy_one_topic, walk)),
            ("test", partial(_one_test_consumer, walk)),
            ("load", partial(walk.begin_load, THROUGH, walk.cluster.client, through)),
            ("cover", partial(_cover_all_brokers, walk)),
            ("trim", partial(_trim_and_move, walk)),
            ("down", partial(_trim_no_more, walk)),
        ):
            step()
            print(f"{name}: {time.monotonic() - began:.0f} s, {walk.steps.kills} kills")
    _uninstall(walk)
    walk.load.close()
    print(f"all: {time.monotonic() - began:.0f} s, {walk.steps.kills} kills")
    assert [one.failures for one in walk.producers] == [[], []]
    assert [problem for tail in walk.tails for problem in tail.problems] == []
    _is_as_before(walk)
    assert walk.page.unused == set(), "nobody has run these commands of the page"


def _beside_some_brokers(walk: Walk) -> None:
    online = "rlm config check --online rlm.yaml"
    assert "no listener TIERED" in walk.page.run(FIRST, online, status=walk.page.REFUSED).stdout
    for node in (1, 2):
        walk.brokers.restart(walk.cluster, node, has_tiered=True)
    walk.page.run(FIRST, online)
    checked = "rlm acls --principal User:rlm --topics clicks --check --config rlm.yaml"
    walk.page.run(FIRST, checked)
    for node in (1, 2):
        walk.steps.kill_service(node)
    walk.page.run(FIRST, "rlm doctor --store --config rlm.yaml")
    wait_health(walk.cluster)
    walk.page.run(BESIDE, "rlm status")
    walk.page.run(FIRST, "rlm plan clicks")
    assert walk.clicks_config() == walk.before.topic_configs[CLICKS]


def _copy_one_topic(walk: Walk) -> None:
    """Copied, given up, and copied again: the topic's configuration is its own all the time."""
    steps, cluster = walk.steps, walk.cluster
    for is_to_stay in (False, True):
        steps.do(COPY, "rlm topics enable clicks", killed=walk.leader())
        steps.do(COPY, "rlm copy clicks", killed=walk.leader())
        wait_described(cluster, CLICKS, {"mode": "copy", "state": "enabled", "originals": {}})
        if not is_to_stay:
            steps.do(COPY, "rlm topics disable clicks", killed=walk.leader())
            wait_described(cluster, CLICKS, {"state": "kept"})
    wait_health(cluster)
    for command in (
        "rlm status clicks",
        "rlm status --health clicks",
        "rlm segments clicks",
        "rlm verify clicks --deep",
    ):
        walk.page.run(COPY, command)
    steps.do(COPY, "rlm copy-limit 32MiB", killed=2)
    assert walk.clicks_config() == walk.before.topic_configs[CLICKS]
    assert [cluster.log_start(CLICKS, one) for one in (*PAST, *THROUGH)] == [0, 0, 0, 0]


def _one_test_consumer(walk: Walk) -> None:
    """Both services are killed while it reads; then it goes on past the proxies."""
    consumer = TestConsumer(walk.cluster, CLICKS, group_at(walk.cluster, (1, 2)))
    kills = {500: partial(walk.steps.kill_running, 1), 4_000: partial(walk.steps.kill_running, 2)}
    wanted = walk.rows()
    consumer.read({row.partition: row.offset + 1 for row in wanted}, kills)
    known = {row_position(row) for row in wanted}
    read = sorted(consumer.rows, key=row_position)
    assert_same([row for row in read if row_position(row) in known], wanted)
    walk.page.run(TEST, "rlm clients clicks")
    shown = walk.page.run(TEST, "rlm fetch clicks -p 0 -o earliest -n 1").stdout
    assert shown.split()[:2] == ["remote", "0"] or shown.split()[:2] == ["local", "0"], shown
    consumer.go_back({row.partition: row.offset + 1 for row in walk.rows()})
    positions = [row_position(row) for row in sorted(consumer.rows, key=row_position)]
    for partition in (*PAST, *THROUGH):
        offsets = [offset for one, offset in positions if one == partition]
        assert offsets == list(range(len(offsets))), "missing, or twice"
    _delete_group(walk, consumer.group)


def _delete_group(walk: Walk, group: str) -> None:
    def is_deleted() -> bool:
        walk.cluster.admin.delete_consumer_groups([group])[group].result(60)
        return True

    walk.cluster.wait_for(is_deleted, f"group {group} is deleted")


def _cover_all_brokers(walk: Walk) -> None:
    walk.brokers.restart(walk.cluster, 3, has_tiered=True)
    walk.steps.kill_service(3)
    wait_health(walk.cluster)
    pattern = "rlm topics enable 'logs-.*'"
    shown = walk.page.run(COVER, pattern, status=walk.page.REFUSED)
    assert all(name in shown.stdout + shown.stderr for name in LOGS)
    walk.steps.do(COVER, pattern, "--yes", killed=3)
    for name in LOGS:
        for partition in (0, 1):
            walk.cluster.wait_copied(name, partition)
    wait_health(walk.cluster)
    assert "peer-absent" not in walk.page.run(COVER, "rlm status").stdout


def _trim_and_move(walk: Walk) -> None:
    steps, cluster = walk.steps, walk.cluster
    walk.page.run(TRIM, "rlm clients clicks")
    steps.do(TRIM, "rlm topics enable clicks --trim --local-retention 3d", killed=walk.leader())
    wait_described(cluster, CLICKS, {"mode": "tier", "trim": True, "originals": _RETENTION})
    config = walk.clicks_config()
    assert [config[name][0] for name in ("retention.ms", "retention.bytes")] == ["-1", "-1"]
    for partition in (*PAST, *THROUGH):
        cluster.wait_trimmed(CLICKS, partition, beyond=1_024)
    for node in NODES:
        steps.kill_running(node)
    wait_health(cluster)
    for command in (
        "rlm status",
        "rlm status clicks",
        "rlm topics describe clicks",
        "rlm explain clicks -p 0",
    ):
        walk.page.run(TRIM, command)
    walk.read_through()


def _trim_no_more(walk: Walk) -> None:
    """Copies only, with the brokers' retention; then none, and old records are readable still."""
    steps, cluster = walk.steps, walk.cluster
    off = "rlm topics trim clicks off"
    steps.do(TRIM, off, killed=walk.leader())
    assert walk.clicks_config()["retention.ms"][0] == "-1"
    steps.do(TRIM, off, "--giveback", killed=walk.leader())
    assert walk.clicks_config() == walk.before.topic_configs[CLICKS]
    steps.do(TRIM, "rlm topics disable clicks --confirm", killed=walk.leader())
    wait_described(cluster, CLICKS, {"state": "kept", "originals": {}})
    assert walk.clicks_config() == walk.before.topic_configs[CLICKS]
    walk.read_through()


def _uninstall(walk: Walk) -> None:
    steps, cluster = walk.steps, walk.cluster
    listed = walk.page.run(END, "rlm topics list").stdout
    assert all(name in listed for name in (CLICKS, *LOGS))
    for name in LOGS:
        disable = "rlm topics disable T --confirm"
        steps.do(END, disable, killed=cluster.wait_led(name), T=name)
    delete = "rlm topics disable clicks --delete --yes"
    steps.do(COPY, delete, killed=walk.leader(), is_over="is not enabled")
    cluster.wait_for(lambda: not finished_segments(cluster, CLICKS), "all copies are deleted", 300)
    cluster.wait_for(
        lambda: CLICKS not in walk.page.run(END, "rlm deletions list").stdout, "nothing is to do"
    )
    walk.page.run(END, "rlm purge")
    objects = objects_of(cluster)
    assert names_of(objects, CLICKS) == []
    assert all(names_of(objects, name) for name in LOGS), "copies that are kept"
    for node in NODES:
        cluster.sandbox.stop(f"rlm:{node}")
        cluster.sandbox.stop(f"plugin:{node}")
        shutil.rmtree(cluster.sandbox.layout.rlm_state(node))
    for node in NODES:
        walk.brokers.restart(cluster, node, has_tiered=False)
    _delete_own_topics(walk)


def _delete_own_topics(walk: Walk) -> None:
    """By the command of the page, as who may do so."""
    [command] = walk.page.kafkas(END)
    broker = "broker-1.example:9092"
    assert broker in command
    words = walk.page.words(END, command, **{broker: walk.cluster.direct})
    who = walk.cluster.sandbox.json["security"]["admin"]["client_properties"]
    done = walk.cluster.sandbox.dist.run_tool("topics", *words, "--command-config", who)
    assert done.returncode == 0, done.stdout + done.stderr


def _is_as_before(walk: Walk) -> None:
    cluster = walk.cluster
    for node in NODES:
        cluster.wait_for(
            lambda node=node: names_on_disk(cluster, node) == walk.names[node],  # type: ignore[misc]
            f"folders of broker {node} are as before",
        )
    assert state_of(cluster) == walk.before
    starts = {partition: cluster.log_start(CLICKS, partition) for partition in (*PAST, *THROUGH)}
    for node in NODES:
        now = closed_segments(cluster, node)
        for name, digest in walk.segments[node].items():
            topic, _, partition = name.partition("/")[0].rpartition("-")
            is_trimmed = topic == CLICKS and base_offset_of(name) < starts[int(partition)]
            assert is_trimmed or now.get(name) == digest, f"broker {node}: {name}"
    read = cluster.read_all(CLICKS, start=starts, timeout_s=_READ_S, **walk.past)
    left = [row for row in walk.rows() if row.offset >= starts[row.partition]]
    assert_same(read, left)
