"""H14: the originals are written before the first alter, survive every crash and every race."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from kip405.errors import Invalid, RemoteStorageError
from rlm.topics.verbs import EnableOptions
from tests.builders.log_dir import TOPIC
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.hooks import Crash, CrashAt, PauseAt
from tests.rlm.topics.world import ServiceUnderTest

TIER = EnableOptions(trim=True)
TAKEN = {"retention.ms": "-1", "retention.bytes": "-1"}
CONFIGS: list[dict[str, str]] = [
    {},
    {"retention.ms": "60000"},
    {"retention.ms": "60000", "retention.bytes": "1000", "segment.ms": "5"},
    {"retention.bytes": "-1"},
]
Act = Callable[[ServiceUnderTest], Awaitable[object]]


def cluster_with(config: dict[str, str]) -> Cluster:
    return Cluster(configs={TOPIC: dict(config)})


def expected_originals(config: dict[str, str]) -> dict[str, str | None]:
    return {name: config.get(name) for name in TAKEN}


async def enable(service: ServiceUnderTest) -> None:
    await service.verbs.enable(TOPIC, TIER)


async def disable(service: ServiceUnderTest) -> None:
    await service.verbs.disable(TOPIC, confirm=True, delete_remote=False)


async def give_back(service: ServiceUnderTest) -> None:
    await service.verbs.trim_off(TOPIC, giveback=True)


def assert_consistent(cluster: Cluster, config: dict[str, str]) -> None:
    """After a repair: taken over with the right originals, or as it was before anybody came."""
    record = cluster.record()
    if record is not None and record.state == "enabled" and record.mode == "tier":
        assert cluster.own_config() == config | TAKEN
        assert dict(record.originals) == expected_originals(config)
    else:
        assert cluster.own_config() == config
        assert record is None or not record.originals


@pytest.mark.parametrize("config", CONFIGS)
async def test_h14_originals_are_kept_and_given_back(config: dict[str, str]) -> None:
    cluster = cluster_with(config)
    service = ServiceUnderTest(cluster)
    await enable(service)
    assert_consistent(cluster, config)
    assert cluster.own_config() == config | TAKEN
    await disable(service)
    assert cluster.own_config() == config
    record = cluster.record()
    assert record is not None
    assert (record.state, dict(record.originals)) == ("kept", {})


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("act", [enable, disable, give_back])
async def test_h14_crash_at_every_await_then_repair(config: dict[str, str], act: Act) -> None:
    for number in range(1, 200):
        cluster = cluster_with(config)
        if act is not enable:
            await enable(ServiceUnderTest(cluster))
        crash = CrashAt(number)
        with contextlib.suppress(Crash):
            await act(ServiceUnderTest(cluster, hook=crash))
        restarted = ServiceUnderTest(cluster)
        await restarted.repair()
        assert_consistent(cluster, config)
        await enable(restarted)
        await disable(restarted)
        assert cluster.own_config() == config, f"crash at await {number}"
        if not crash.reached:
            assert number > 5
            return
    raise AssertionError("the verb has no end")


async def test_h14_a_second_enable_never_takes_our_own_values_for_originals() -> None:
    cluster = cluster_with({"retention.ms": "60000"})
    service = ServiceUnderTest(cluster)
    await enable(service)
    await enable(service)
    record = cluster.record()
    assert record is not None
    assert record.originals["retention.ms"] == "60000"
    assert cluster.own_config() == TAKEN


CHOICES: list[dict[str, str]] = [
    TAKEN | {"retention.ms": "90000"},
    TAKEN | {"retention.bytes": "5000"},
    {"retention.ms": "90000", "retention.bytes": "5000"},
    {"retention.bytes": "-1"},
]
"""What an admin makes of a topic whose retention was taken over; the last unsets retention.ms."""


def expected_back(config: dict[str, str], choice: dict[str, str]) -> dict[str, str]:
    """What is chosen counts, where it is not our own -1."""
    chosen = {name: choice.get(name) for name in TAKEN}
    back = {name: config.get(name) if value == "-1" else value for name, value in chosen.items()}
    return {name: value for name, value in back.items() if value is not None}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("act", [enable, ServiceUnderTest.repair])
async def test_h14_what_an_admin_chose_last_is_given_back_through_every_crash(
    choice: dict[str, str], act: Act
) -> None:
    config = {"retention.ms": "60000"}
    for number in range(1, 200):
        cluster = cluster_with(config)
        await enable(ServiceUnderTest(cluster))
        cluster.configs[TOPIC] = dict(choice)
        crash = CrashAt(number)
        with contextlib.suppress(Crash):
            await act(ServiceUnderTest(cluster, hook=crash))
        restarted = ServiceUnderTest(cluster)
        await restarted.repair()
        assert cluster.own_config() == TAKEN, f"crash at await {number}"
        await disable(restarted)
        assert cluster.own_config() == expected_back(config, choice), f"crash at await {number}"
        if not crash.reached:
            assert number > 5
            return
    raise AssertionError("it has no end")


async def test_h14_the_last_of_several_choices_counts() -> None:
    cluster = cluster_with({"retention.ms": "60000"})
    service = ServiceUnderTest(cluster)
    await enable(service)
    for choice in ("90000", "70000", "80000"):
        cluster.configs[TOPIC]["retention.ms"] = choice
        await service.repair()
        assert cluster.own_config() == TAKEN
        service.clock.advance(1_200_000)
    await give_back(service)
    assert cluster.own_config() == {"retention.ms": "80000"}


async def test_h14_a_choice_is_remembered_before_it_is_reverted() -> None:
    """Whoever dies in between leaves the admin's value in the topic or in the settings."""
    cluster = cluster_with({"retention.ms": "60000"})
    service = ServiceUnderTest(cluster)
    await enable(service)
    cluster.configs[TOPIC]["retention.ms"] = "90000"
    seen: list[tuple[str, str | None]] = []

    async def snapshot() -> None:
        record = cluster.record()
        assert record is not None
        seen.append((cluster.own_config()["retention.ms"], record.originals["retention.ms"]))

    await ServiceUnderTest(cluster, hook=snapshot).repair()
    assert ("-1", "60000") not in seen
    assert seen[-1] == ("-1", "90000")


async def test_h14_two_enables_at_one_service() -> None:
    config = {"retention.ms": "60000"}
    cluster = cluster_with(config)
    service = ServiceUnderTest(cluster)
    await asyncio.gather(enable(service), enable(service), enable(service))
    assert_consistent(cluster, config)
    assert len(cluster.alters) == 1


@pytest.mark.parametrize("after", [[enable], [enable, disable], [enable, give_back]])
async def test_h14_a_paused_old_leader_does_no_harm(after: list[Act]) -> None:
    """Two services enable: the old leader stops at each of its awaits meanwhile."""
    config = {"retention.ms": "60000"}
    for number in range(1, 200):
        cluster = cluster_with(config)
        pause = PauseAt(number)
        zombie = ServiceUnderTest(cluster, node_id=1, hook=pause)
        work = asyncio.ensure_future(enable(zombie))
        waiting = asyncio.ensure_future(pause.paused.wait())
        await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not pause.paused.is_set():
            await work
            assert number > 5
            return
        cluster.elect(2)
        successor = ServiceUnderTest(cluster, node_id=2)
        for act in after:
            await act(successor)
        pause.resume.set()
        with contextlib.suppress(RemoteStorageError):
            await work
        await successor.repair()
        assert_consistent(cluster, config)
        if after[-1] is enable:
            await disable(successor)
        assert cluster.own_config() == config, f"paused at await {number}"


async def test_h14_policy_that_refuses_leaves_things_as_they_were() -> None:
    cluster = cluster_with({"retention.ms": "60000"})
    cluster.policy_refuses = True
    service = ServiceUnderTest(cluster)
    with pytest.raises(Invalid, match="POLICY_VIOLATION"):
        await enable(service)
    assert cluster.record() is None
    await service.verbs.enable(TOPIC, EnableOptions())
    with pytest.raises(Invalid, match="POLICY_VIOLATION"):
        await enable(service)
    record = cluster.record()
    assert record is not None
    assert (record.mode, record.trim) == ("copy", False)


async def test_h14_foreign_retention_is_an_alarm_and_set_back() -> None:
    cluster = cluster_with({})
    service = ServiceUnderTest(cluster)
    await enable(service)
    await service.repair()
    assert not service.keeper.alarms
    cluster.configs[TOPIC]["retention.ms"] = "60000"
    await service.repair()
    assert cluster.own_config() == TAKEN
    (alarm,) = service.keeper.alarms.values()
    assert "retention.ms=60000" in alarm.text
    await service.repair()
    assert service.keeper.alarms, "still shown"
    service.clock.advance(3_700_000)
    await service.repair()
    assert not service.keeper.alarms


async def test_h14_warn_leaves_a_foreign_retention_but_finishes_what_a_crash_left() -> None:
    cluster = cluster_with({"retention.ms": "60000"})
    await enable(ServiceUnderTest(cluster))
    cluster.configs[TOPIC] = {"retention.ms": "60000"}
    restarted = ServiceUnderTest(cluster, takeover="warn")
    await restarted.repair()
    assert cluster.own_config() == TAKEN
    cluster.configs[TOPIC]["retention.ms"] = "5"
    await restarted.repair()
    assert cluster.own_config() == TAKEN | {"retention.ms": "5"}
    assert "left as it is" in next(iter(restarted.keeper.alarms.values())).text


async def test_h14_only_the_leader_of_partition_0_repairs() -> None:
    cluster = cluster_with({})
    await enable(ServiceUnderTest(cluster))
    cluster.configs[TOPIC] = {}
    other = ServiceUnderTest(cluster, node_id=2)
    await other.repair()
    assert cluster.own_config() == {}
    cluster.elect(2)
    await other.repair()
    assert cluster.own_config() == TAKEN


async def test_h14_what_somebody_set_meanwhile_is_not_given_back_over() -> None:
    cluster = cluster_with({"retention.ms": "60000"})
    service = ServiceUnderTest(cluster, takeover="warn")
    await enable(service)
    cluster.configs[TOPIC]["retention.ms"] = "90000"
    await disable(service)
    assert cluster.own_config() == {"retention.ms": "90000"}


async def test_h14_what_another_leader_wrote_meanwhile_is_not_undone() -> None:
    """Our change was refused; the topic has been enabled by another leader since."""
    cluster = cluster_with({"retention.ms": "60000"})
    cluster.policy_refuses = True
    service, successor = ServiceUnderTest(cluster), ServiceUnderTest(cluster, node_id=2)
    alter = service.broker.alter_topic_config

    async def overtaken(*args: Any, **changes: Any) -> None:
        record = cluster.record()
        if record is not None and cluster.leader == 1:
            cluster.elect(2)
            await successor.settings.barrier(1_000)
            await successor.settings.publish(
                replace(record, mode="copy", trim=False), cluster.epoch
            )
            await service.settings.barrier(1_000)
        await alter(*args, **changes)

    service.broker.alter_topic_config = overtaken  # type: ignore[method-assign]
    with pytest.raises(Invalid, match="POLICY_VIOLATION"):
        await enable(service)
    record = cluster.record()
    assert record is not None
    assert (record.state, record.mode) == ("enabled", "copy")


async def test_h10_trim_off_is_written_even_where_it_is_off_already() -> None:
    """A trim on of unknown outcome may be on its way still: it must not count behind this."""
    cluster = cluster_with({})
    service = ServiceUnderTest(cluster)
    await service.verbs.enable(TOPIC, EnableOptions())
    records = len(cluster.records)
    await service.verbs.trim_off(TOPIC, giveback=False)
    await service.verbs.disable(TOPIC, confirm=True, delete_remote=False)
    await service.verbs.disable(TOPIC, confirm=True, delete_remote=False)
    assert len(cluster.records) == records + 3
