"""Faults of ledger, settings, heartbeats, rights and this machine that `rlm doctor` finds."""

from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Unavailable
from kip405.ids import Uuid
from rlm.diagnosis.observed import ObservedHost, ServiceProblem
from rlm.plans.problems import Severity
from rlmm.settings_records import ClusterRecord, ReaderRecord, ServiceRecord
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC, ledger_spec
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.builders.service import NODE_ID
from tests.rlm.diagnosis.world import (
    LEDGER_ID,
    OTHER_NODE,
    SECONDS_MS,
    SETTINGS_ID,
    WELL,
    World,
    described,
)

ALL_BUT_DELETE = frozenset(("Read", "Write", "Describe", "DescribeConfigs", "AlterConfigs"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "delete"),
        ("unclean.leader.election.enable", "true"),
        ("min.insync.replicas", "1"),
    ],
)
@pytest.mark.parametrize("topic", [LEDGER_TOPIC, SETTINGS_TOPIC])
async def test_h06_a_topic_of_ours_that_may_lose_records(
    world: World, topic: str, name: str, value: str
) -> None:
    world.set_topic(name, value, topic)
    finding = await world.only("own-topics")
    assert (finding.severity, finding.subject) == (Severity.ALARM, f"topic {topic}")
    assert name in finding.text and "formats.md" in finding.remedy


async def test_h06_a_ledger_that_is_missing(world: World) -> None:
    del world.own.topics[LEDGER_TOPIC]
    finding = await world.only("own-topics")
    assert "is missing" in finding.text and "rlm ledger rebuild" in finding.remedy


async def test_h06_a_settings_topic_that_is_lost_beside_a_ledger(world: World) -> None:
    del world.own.topics[SETTINGS_TOPIC]
    finding = await world.only("own-topics")
    assert (finding.severity, finding.subject) == (Severity.ALARM, f"topic {SETTINGS_TOPIC}")
    assert f"{LEDGER_TOPIC} exists" in finding.text and "backup" in finding.remedy


async def test_h06_a_settings_topic_that_is_lost_with_the_ledger_by_the_state(
    world: World,
) -> None:
    world.before_the_first_service()
    world.remembered.write({SETTINGS_TOPIC: SETTINGS_ID})
    assert "remembers the topics" in (await world.only("own-topics")).text


async def test_h06_a_settings_topic_that_is_lost_with_the_ledger_by_a_store(world: World) -> None:
    used = world.store
    world.before_the_first_service()
    world.store = used
    assert "store default at file:store is of this" in (await world.only("own-topics")).text


async def test_h38_whether_the_settings_topic_is_lost_is_unknown_while_a_store_is_silent(
    world: World,
) -> None:
    world.before_the_first_service()
    world.store = replace(world.store, problem="no route to host")
    assert "no route to host" in (await world.examined())["own-topics"].unasked


async def test_h06_a_settings_topic_that_was_recreated(world: World) -> None:
    """Nothing rebuilds it."""
    world.own.topics[SETTINGS_TOPIC] = described(SETTINGS_TOPIC, LEDGER_ID, 1, (1, 2, 3))
    finding = await world.only("own-topics")
    assert "was recreated" in finding.text and "backup" in finding.remedy


async def test_h06_a_ledger_that_was_recreated(world: World) -> None:
    count = ledger_spec(3).partition_count
    world.own.topics[LEDGER_TOPIC] = described(LEDGER_TOPIC, Uuid(b"\x09" * 16), count, (1, 2, 3))
    assert "was recreated" in (await world.only("own-topics")).text


async def test_h06_a_ledger_with_one_replica(world: World) -> None:
    count = ledger_spec(3).partition_count
    world.own.topics[LEDGER_TOPIC] = described(LEDGER_TOPIC, LEDGER_ID, count, (1,))
    finding = await world.only("own-topics")
    assert finding.severity is Severity.WARNING
    assert "has 1 replicas" in finding.text and "kafka-reassign" in finding.remedy


async def test_h43_a_record_of_a_later_version(world: World) -> None:
    world.settings.spoil("topic/unreadable")
    finding = await world.only("settings")
    assert "nothing is trimmed or deleted" in finding.text and "upgrade" in finding.remedy


async def test_a_settings_topic_that_was_mirrored_from_another_cluster(world: World) -> None:
    world.settings.write(
        ClusterRecord(cluster_id="theirs", ledger_topic_id=LEDGER_ID, settings_topic_id=SETTINGS_ID)
    )
    finding = await world.only("settings")
    assert "belongs to cluster theirs" in finding.text and "mirrored" in finding.remedy


async def test_h18_a_broker_whose_service_is_silent(world: World) -> None:
    for _ in range(4):
        world.clock.advance(10 * SECONDS_MS)
        world.beat(NODE_ID)
    finding = await world.only("heartbeats")
    assert finding.subject == f"node {OTHER_NODE}"
    assert "was not heard for 40" in finding.text and "rlm serve" in finding.remedy


async def test_h18_all_services_are_silent(world: World) -> None:
    """Nobody's heartbeat shows the time at the brokers any more."""
    world.settings.restart()
    world.clock.advance(600 * SECONDS_MS)
    found = (await world.findings())["heartbeats"]
    assert [one.subject for one in found] == [f"node {NODE_ID}", f"node {OTHER_NODE}"]


async def test_h18_a_broker_that_never_had_a_service(world: World) -> None:
    world.settings.remove(f"{ServiceRecord.KIND}/{OTHER_NODE}")
    assert "has never published a heartbeat" in (await world.only("heartbeats")).text


async def test_h16_a_clock_that_is_wrong(world: World) -> None:
    world.beat(OTHER_NODE, skew_ms=-90 * SECONDS_MS)
    finding = await world.only("clocks")
    assert finding.subject == f"node {OTHER_NODE}"
    assert "behind the brokers'" in finding.text and "chrony" in finding.remedy


async def test_services_and_readers_of_different_versions(world: World) -> None:
    world.beat(OTHER_NODE, version="2.0")
    finding = await world.only("versions")
    assert finding.text.endswith("1.0 at node 3; 2.0 at node 4") and "Upgrade" in finding.remedy
    world.beat(OTHER_NODE)
    assert await world.findings() == {}
    world.settings.write(ReaderRecord(grpc_address="r:1", http_address="r:2", version="0.9"))
    assert "0.9 at reader r:1" in (await world.only("versions")).text


async def test_h40_an_acl_that_is_missing_is_named(world: World) -> None:
    world.rights.operations[TOPIC] = ALL_BUT_DELETE
    finding = await world.only("acls")
    assert finding.severity is Severity.ALARM
    assert f"operation Delete, resource Topic:{TOPIC}" in finding.text
    assert "rlm acls" in finding.remedy


async def test_h38_a_broker_that_does_not_say_what_it_allows(world: World) -> None:
    world.rights.operations[TOPIC] = None
    assert "does not say" in (await world.examined())["acls"].unasked


@pytest.mark.parametrize(
    ("libc", "said"),
    [(("musl", "1.2.4"), "it is musl"), (("glibc", "2.17"), "glibc 2.17 is older than 2.28")],
)
async def test_a_c_library_that_is_not_supported(
    world: World, libc: tuple[str, str], said: str
) -> None:
    world.host = ObservedHost(libc=libc, open_files=None)
    finding = await world.only("c-library")
    assert said in finding.text and "glibc 2.28" in finding.remedy
    world.host = ObservedHost(libc=("", ""), open_files=None)
    assert await world.findings() == {}


async def test_h36_too_few_open_files_for_all_clients(tmp_path: Path) -> None:
    world = World(tmp_path, **{"proxy.max.connections": 1000})
    world.host = ObservedHost(libc=("glibc", "2.36"), open_files=1024)
    finding = await world.only("open-files")
    assert finding.severity is Severity.WARNING
    assert "2000 are needed" in finding.text and "LimitNOFILE" in finding.remedy


async def test_what_running_services_report_is_found_too(world: World) -> None:
    """As the growth of a disk, which only time shows."""
    full = ServiceProblem(
        severity=Severity.WARNING,
        kind="log-dir-fills",
        subject="log dir /data",
        text="1.0 GiB are free; full in 2 h",
    )
    world.service = replace(WELL, problems=(full,))
    finding = await world.only("problems")
    assert (finding.severity, finding.subject) == (Severity.WARNING, full.subject)
    assert finding.text == f"{full.text} [log-dir-fills]" and "problems.md" in finding.remedy


async def test_h38_a_service_that_does_not_answer_is_not_sound(world: World) -> None:
    world.service_refusal = Unavailable("connection refused")
    examined = await world.examined()
    for name in ("problems", "direct-groups"):
        assert examined[name].unasked == "connection refused"


async def test_a_service_that_has_never_run_is_not_asked(world: World) -> None:
    world.service = None
    assert await world.findings() == {}


async def test_h21_where_addresses_are_rewritten_every_broker_needs_a_service(
    tmp_path: Path,
) -> None:
    """Also one without a replica of an enabled topic."""
    rewriting = {"proxy.attach": "rewrite", "broker.tiered.listener.name": "DIRECT"}
    world = World(tmp_path, **rewriting)
    for node in (world.own, world.other):
        node.topics[TOPIC] = described(TOPIC, TOPIC_ID, replicas=[NODE_ID])
    assert await world.findings() == {}
    world.settings.remove(f"{ServiceRecord.KIND}/{OTHER_NODE}")
    assert (await world.only("heartbeats")).subject == f"node {OTHER_NODE}"


async def test_h40_an_acl_without_which_the_settings_cannot_be_read_is_named(world: World) -> None:
    world.settings_refusal = Unavailable("not read")
    assert (await world.examined())["acls"].unasked
    world.rights.operations[SETTINGS_TOPIC] = frozenset(("Write", "Describe", "DescribeConfigs"))
    [finding] = (await world.examined())["acls"].findings
    assert f"operation Read, resource Topic:{SETTINGS_TOPIC}" in finding.text
