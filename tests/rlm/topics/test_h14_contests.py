"""H14: a tool that keeps bounding a taken-over retention is not fought for ever, and `external`
alters nothing.
"""

import pytest

from rlm.plans.retention_contests import CONTEST_MS
from rlm.topics.verbs import EnableOptions
from tests.builders.log_dir import TOPIC
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.world import ServiceUnderTest

TIER = EnableOptions(trim=True)
TAKEN = {"retention.ms": "-1", "retention.bytes": "-1"}
BOUNDED = TAKEN | {"retention.ms": "60000"}


async def enabled(cluster: Cluster, takeover: str = "enforce") -> ServiceUnderTest:
    service = ServiceUnderTest(cluster, takeover=takeover)
    await service.verbs.enable(TOPIC, TIER)
    await service.repair()
    return service


def words(service: ServiceUnderTest) -> str:
    """Of the only alarm."""
    (alarm,) = service.keeper.alarms.values()
    return alarm.text


async def gitops_runs(service: ServiceUnderTest, *, times: int) -> list[bool]:
    """It bounds the retention every 5 s; whether the service sets each bound back."""
    reverted = []
    for _ in range(times):
        service.cluster.configs[TOPIC]["retention.ms"] = "60000"
        await service.keeper.repair()
        reverted.append(service.cluster.own_config() == TAKEN)
        service.clock.advance(5_000)
    return reverted


async def test_h14_gitops_that_insists_is_one_alarm_and_two_reverts() -> None:
    service = await enabled(Cluster())
    service.cluster.alters.clear()
    assert await gitops_runs(service, times=6) == [True, True, False, False, False, False]
    assert len(service.cluster.alters) == 2
    assert service.cluster.own_config() == BOUNDED
    assert "left as it is, because somebody bounded it again" in words(service)
    assert "retention.ms=60000" in words(service)


async def test_h14_a_command_of_an_operator_takes_the_retention_over_again() -> None:
    service = await enabled(Cluster())
    await gitops_runs(service, times=4)
    await service.verbs.trim_on(TOPIC, force=False)
    assert service.cluster.own_config() == TAKEN
    assert await gitops_runs(service, times=1) == [False], "it is still the same contest"


async def test_h14_a_contest_ends_after_15_quiet_minutes() -> None:
    service = await enabled(Cluster())
    await gitops_runs(service, times=4)
    await service.verbs.trim_on(TOPIC, force=False)
    service.clock.advance(CONTEST_MS + 1)
    await service.keeper.repair()
    assert await gitops_runs(service, times=3) == [True, True, False]


async def test_g1_nothing_is_trimmed_while_the_retention_is_contested() -> None:
    service = await enabled(Cluster())
    assert service.contests.words(TOPIC, service.clock.monotonic_ms()) is None
    await gitops_runs(service, times=1)
    assert service.cluster.own_config() == TAKEN
    found = service.contests.words(TOPIC, service.clock.monotonic_ms())
    assert found == "somebody bounded it 5 s ago (retention.ms=60000)"


async def test_h14_what_a_crash_left_half_done_is_no_contest() -> None:
    cluster = Cluster(configs={TOPIC: {"retention.ms": "60000"}})
    await enabled(cluster)
    cluster.configs[TOPIC] = {"retention.ms": "60000"}
    restarted = ServiceUnderTest(cluster)
    await restarted.repair()
    assert cluster.own_config() == TAKEN
    assert restarted.contests.words(TOPIC, restarted.clock.monotonic_ms()) is None


async def test_h14_external_never_alters_a_configuration() -> None:
    own = {"retention.ms": "60000", "segment.bytes": "1048576"}
    cluster = Cluster(configs={TOPIC: dict(own)})
    service = await enabled(cluster, takeover="external")
    record = cluster.record()
    assert record is not None
    assert (record.mode, dict(record.originals)) == ("tier", {})
    assert "set it (retention.takeover=external)" in words(service)
    assert {"alter", "validate"}.isdisjoint(what for _, what in cluster.used)
    assert service.contests.words(TOPIC, service.clock.monotonic_ms()) is None, "no foreign tool"
    cluster.configs[TOPIC] |= TAKEN
    service.clock.advance(3_700_000)
    await service.repair()
    assert not service.keeper.alarms
    await service.verbs.trim_off(TOPIC, giveback=True)
    await service.verbs.disable(TOPIC, confirm=True, delete_remote=False)
    await service.repair()
    assert cluster.own_config() == own | TAKEN
    assert cluster.alters == []


async def test_h14_external_takes_no_originals_of_a_topic_in_mode_copy() -> None:
    service = ServiceUnderTest(
        Cluster(configs={TOPIC: {"retention.ms": "60000"}}), takeover="external"
    )
    await service.verbs.enable(TOPIC, EnableOptions())
    done = await service.verbs.enable(TOPIC, TIER)
    assert (done.record.mode, dict(done.record.originals)) == ("tier", {})


async def test_h14_external_names_the_originals_of_an_earlier_takeover() -> None:
    cluster = Cluster(configs={TOPIC: {"retention.ms": "60000"}})
    await enabled(cluster)
    external = ServiceUnderTest(cluster, takeover="external")
    await external.repair()
    done = await external.verbs.disable(TOPIC, confirm=True, delete_remote=False)
    await external.repair()
    assert cluster.own_config() == TAKEN
    assert any("retention.ms=60000" in text for text in done.warnings)
    assert dict(done.record.originals) == {}, "nothing waits for a change that we do not make"


@pytest.mark.parametrize(("config", "is_named"), [({}, True), (TAKEN, False)])
async def test_h14_external_says_what_is_still_to_be_set(
    config: dict[str, str], is_named: bool
) -> None:
    service = ServiceUnderTest(Cluster(configs={TOPIC: config}), takeover="external")
    done = await service.verbs.enable(TOPIC, TIER)
    assert any("--emit" in text for text in done.warnings) == is_named
