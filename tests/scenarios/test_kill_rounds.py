"""SIGKILL of broker, service, plugin and store on three brokers, while retention ends records.

Every round kills one of them under load, mostly several things at once over a few seconds, and
starts it again; clients delete records meanwhile. Afterwards `rlm verify --deep` finds nothing, and
everything that was acknowledged and has not ended is read once, with its bytes. What has ended was
old enough, or a client had it deleted (H1, H16, H26, H31).

SEED= runs the same rounds again. The long ones keep their raw numbers under bench/results/.
"""

import os
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import SandboxSpec
from tests.kept_results import keep_result
from tests.sandbox_fixtures import with_workers
from tests.scenarios.cluster import Cluster, Row, assert_same, fresh
from tests.scenarios.replicas import heal
from tests.scenarios.traffic import SteadyProducer

pytestmark = pytest.mark.integration

_PARTITIONS = (0, 1, 2)
_ASSIGNMENT = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
_NODES = (1, 2, 3)
_KINDS = ("broker", "rlm", "plugin", "store")
_KIB_PER_S = 1_200
_RETENTION_MS = 12_000
_LONGEST_LIFE_S = 2.0
_LONGEST_AWAY_S = 1.5
_SWEPT_WITHIN_S = 180.0


@dataclass(slots=True)
class Rounds:
    """What was killed, and what clients had deleted: by partition, the highest offset asked for."""

    killed: list[tuple[str, float]] = field(default_factory=list)
    asked: dict[int, int] = field(default_factory=dict)
    answered: int = 0


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(10, marks=pytest.mark.timeout(600)),
        pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(3_600)]),
    ],
)
def test_h31_kill_rounds_on_three_brokers(three: Cluster, rounds: int) -> None:
    _run(three, rounds)


@pytest.fixture
def three_on_servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Three brokers with a server as their store, for this test alone."""
    spec = SandboxSpec(brokers=3, store=request.param, jvm="quick", heap_mib=256)
    made = Sandbox.up(tmp_path_factory.mktemp(f"three-{request.param}"), with_workers(spec))
    try:
        with Cluster(made) as cluster:
            yield cluster
    finally:
        made.down(delete=not os.environ.get("RLM_KEEP_SANDBOX"))


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("three_on_servers", ["s3", "hdfs"], indirect=True)
def test_h31_kill_rounds_with_a_server_as_store(three_on_servers: Cluster) -> None:
    _run(three_on_servers, 20)


def _run(cluster: Cluster, count: int) -> None:
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"SEED={seed}")
    topic = fresh("rounds")
    cluster.create_topic(topic, assignment=_ASSIGNMENT, configs={"min.insync.replicas": "2"})
    cluster.enable(
        topic, "--trim", "--local-retention-bytes", "1048576", "--retention", f"{_RETENTION_MS}ms"
    )
    chance, done = random.Random(seed), Rounds()
    with SteadyProducer(cluster, topic, list(_PARTITIONS), kib_per_s=_KIB_PER_S) as load:
        cluster.wait_trimmed(topic, 0)
        for number in range(count):
            _round(cluster, topic, _KINDS[number % len(_KINDS)], chance, done)
        heal(cluster)
    assert not load.failures, load.failures[:3]
    _end(cluster, topic, load.rows, done)
    _keep(cluster, seed, count, done, len(load.rows))


def _round(cluster: Cluster, topic: str, kind: str, chance: random.Random, done: Rounds) -> None:
    target = kind if kind == "store" else f"{kind}:{chance.choice(_NODES)}"
    lived_s = chance.uniform(0.1, _LONGEST_LIFE_S)
    time.sleep(lived_s)
    cluster.sandbox.kill(target)
    done.killed.append((target, round(lived_s, 3)))
    try:
        if chance.random() < 0.4:
            _delete(cluster, topic, chance, done)
        time.sleep(chance.uniform(0.0, _LONGEST_AWAY_S))
    finally:
        cluster.sandbox.start(target, wait=kind == "broker")


def _delete(cluster: Cluster, topic: str, chance: random.Random, done: Rounds) -> None:
    """A client ends the first records of a partition, once; it may get no answer."""
    partition = chance.choice(_PARTITIONS)
    start = _earliest(cluster, topic, partition)
    if start is None:
        return
    offset = start + chance.randint(1, 400)
    done.asked[partition] = max(done.asked.get(partition, 0), offset)
    asked = TopicPartition(topic, partition, offset)
    with _admin(cluster) as admin:
        try:
            admin.delete_records([asked], request_timeout=5)[asked].result(6)
        except (KafkaException, TimeoutError):
            return
    done.answered += 1


def _admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def _earliest(cluster: Cluster, topic: str, partition: int) -> int | None:
    """As any client sees it, through the proxy; None where nobody answers now."""
    asked = TopicPartition(topic, partition)
    with _admin(cluster) as admin:
        try:
            found = admin.list_offsets({asked: OffsetSpec.earliest()}, request_timeout=5)
            return int(found[asked].result(6).offset)
        except (KafkaException, TimeoutError):
            return None


def _end(cluster: Cluster, topic: str, acked: list[Row], done: Rounds) -> None:
    """Nothing more ends, all attempts are settled, and what is left is whole."""
    cluster.enable(topic, "--retention", "-1")
    longer_ms = int(time.time() * 1000)
    starts = _settled_starts(cluster, topic)
    rows = sorted(acked, key=lambda row: (row.partition, row.offset))
    kept = [row for row in rows if row.offset >= starts[row.partition]]
    try:
        read = cluster.read_all(topic, start=starts, timeout_s=120)
    except AssertionError as error:
        now = {one: _earliest(cluster, topic, one) for one in _PARTITIONS}
        status = cluster.rlm("status", topic, "--json", check=False).stdout
        raise AssertionError(f"{error}; began at {starts}, now at {now}: {status}") from error
    assert_same(read, kept)
    assert any(starts.values()), "retention ended nothing"
    early = [
        (row.partition, row.offset)
        for row in rows
        if done.asked.get(row.partition, 0) <= row.offset < starts[row.partition]
        and row.timestamp_ms >= longer_ms - _RETENTION_MS + 1_000
    ]
    assert not early, (starts, early[:3])


def _settled_starts(cluster: Cluster, topic: str) -> dict[int, int]:
    """Where the partitions begin, once `rlm verify --deep` finds nothing and they begin where they
    did before it: what was decided to end before the retention was changed may be written later.
    """
    starts: dict[int, int | None] = {}

    def are_settled() -> bool:
        before, starts_now = dict(starts), {p: _earliest(cluster, topic, p) for p in _PARTITIONS}
        starts.update(starts_now)
        is_clean = cluster.rlm("verify", topic, "--deep", check=False).returncode == 0
        return is_clean and before == starts_now and None not in starts_now.values()

    cluster.wait_for(are_settled, f"{topic} is sound, and nothing more ends", _SWEPT_WITHIN_S)
    return {partition: start for partition, start in starts.items() if start is not None}


def _keep(cluster: Cluster, seed: int, rounds: int, done: Rounds, records: int) -> None:
    """Raw numbers of a long run."""
    if rounds < 20:
        return
    content = {
        "store": cluster.store_kind,
        "seed": seed,
        "rounds": rounds,
        "acknowledged_records": records,
        **asdict(done),
    }
    keep_result(f"kill-rounds-{cluster.store_kind}", content)
