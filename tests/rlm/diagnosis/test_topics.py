"""Faults of enabled topics, and of who reads them, that `rlm doctor` finds."""

from dataclasses import replace
from pathlib import Path

import pytest

from kip405.ids import Uuid
from rlm.diagnosis.observed import Unasked
from rlm.plans.problems import Severity
from rlmm.settings_records import GivenBack
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.rlm.diagnosis.world import WELL, World, described, topic_record

RECREATED_ID = Uuid(b"\x77" * 16)


async def test_h14_a_retention_that_another_broker_bounds(world: World) -> None:
    """A value of its own file: only this broker says so, and it may lead next."""
    world.other.topic_configs[TOPIC]["retention.ms"] = "3600000"
    found = await world.findings()
    [finding] = found["broker-retention"]
    assert finding.severity is Severity.ALARM
    assert "broker 4 is retention.ms=3600000" in finding.text
    assert "accept-retention" in finding.remedy


async def test_h14_a_topic_whose_configuration_has_another_owner(world: World) -> None:
    world.set_topic("retention.bytes", "1000")
    [finding] = (await world.findings())["config-owner"]
    assert finding.severity is Severity.WARNING
    assert "retention.bytes=1000" in finding.text and "external" in finding.remedy


async def test_h14_an_external_takeover_has_its_owner(tmp_path: Path) -> None:
    world = World(tmp_path, **{"retention.takeover": "external"})
    world.set_topic("retention.bytes", "1000")
    assert set(await world.findings()) == {"broker-retention"}


async def test_h18_a_retention_that_was_given_back_is_no_fault(world: World) -> None:
    limits = {"retention.ms": "3600000", "retention.bytes": "1000"}
    given = GivenBack(limits=limits, since_ms=1)
    world.settings.write(replace(topic_record(), given_back=given))
    for name, value in limits.items():
        world.set_topic(name, value)
    assert await world.findings() == {}


async def test_a_topic_in_mode_copy_keeps_its_brokers_retention(world: World) -> None:
    world.settings.write(topic_record(mode="copy", trim=False, originals={}))
    world.set_topic("retention.ms", "3600000")
    assert await world.findings() == {}


@pytest.mark.parametrize(
    ("name", "value"), [("cleanup.policy", "compact,delete"), ("remote.storage.enable", "true")]
)
async def test_h35_a_topic_that_must_not_be_enabled(world: World, name: str, value: str) -> None:
    world.set_topic(name, value)
    finding = await world.only("topic-rules")
    assert name in finding.text and "topics disable" in finding.remedy


@pytest.mark.parametrize(
    ("name", "value"), [("min.insync.replicas", "1"), ("unclean.leader.election.enable", "true")]
)
async def test_h35_a_topic_whose_leader_may_lack_records(
    world: World, name: str, value: str
) -> None:
    world.set_topic(name, value)
    finding = await world.only("durability")
    assert finding.severity is Severity.WARNING
    assert name in finding.text and name in finding.remedy


async def test_h14_a_delay_of_deletions_that_is_shorter_than_copies_take_to_begin(
    world: World,
) -> None:
    world.set_topic("file.delete.delay.ms", "1000")
    finding = await world.only("delete-delay")
    assert "copies begin every 30" in finding.text
    assert "log.segment.delete.delay.ms" in finding.remedy


async def test_h39_a_topic_that_was_recreated(world: World) -> None:
    for node in (world.own, world.other):
        node.topics[TOPIC] = described(TOPIC, RECREATED_ID)
    finding = await world.only("recreated-topics")
    assert f"id {RECREATED_ID}" in finding.text and "Enable the present topic" in finding.remedy


async def test_h39_a_topic_that_is_gone(world: World) -> None:
    for node in (world.own, world.other):
        del node.topics[TOPIC]
    finding = await world.only("recreated-topics")
    assert f"enabled under id {TOPIC_ID}" in finding.text
    assert "rlm topics disable" in finding.remedy


async def test_h19_a_share_group_on_a_topic_that_is_trimmed(world: World) -> None:
    world.share_starts = {0: 12}
    finding = await world.only("share-groups")
    assert f"{TOPIC}-0 at 12" in finding.text and "topics trim T off" in finding.remedy
    world.settings.write(topic_record(trim=False))
    assert await world.findings() == {}


async def test_h19_a_group_that_reads_past_the_proxies(world: World) -> None:
    world.service = replace(WELL, direct_groups={TOPIC: ("nightly",)})
    finding = await world.only("direct-groups")
    assert finding.severity is Severity.WARNING
    assert "(nightly)" in finding.text and "to the proxies" in finding.remedy


async def test_h38_groups_are_unknown_where_a_proxy_does_not_say_whom_it_serves(
    world: World,
) -> None:
    unasked = Unasked(reason="clients of the proxy of node 4: away")
    world.service = replace(WELL, direct_groups={TOPIC: unasked})
    assert (await world.examined())["direct-groups"].unasked == unasked.reason
