"""H40: what a mode needs is proven before anything is altered, and all that is missing is named."""

import pytest

from kip405.acls import Acl, MissingAcls, cluster_acl, of_principal, topic_acl
from kip405.errors import Invalid, Unavailable
from rlm.topics.verbs import EnableOptions
from tests.builders.log_dir import TOPIC
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.world import ServiceUnderTest

TIER = EnableOptions(trim=True)
COPY = EnableOptions()
OF_COPY = (topic_acl("Describe", TOPIC), topic_acl("DescribeConfigs", TOPIC))
OF_TIER = (
    *OF_COPY,
    topic_acl("Read", TOPIC),
    topic_acl("Delete", TOPIC),
    topic_acl("AlterConfigs", TOPIC),
    cluster_acl("Describe"),
)


def two_leaders(principal: str | None = None) -> tuple[Cluster, ServiceUnderTest]:
    """Partition 0 is led by node 1, whose service is answered, partition 1 by node 2."""
    cluster = Cluster(leaders={1: 2}, log_starts={0: 40, 1: 50}, ends={0: 100, 1: 100})
    cluster.principal = principal
    ServiceUnderTest(cluster, node_id=2)
    return cluster, ServiceUnderTest(cluster, node_id=1)


async def refused(service: ServiceUnderTest, options: EnableOptions) -> MissingAcls:
    with pytest.raises(MissingAcls) as error:
        await service.verbs.enable(TOPIC, options)
    return error.value


def assert_untouched(cluster: Cluster) -> None:
    assert (cluster.records, cluster.alters) == ([], [])
    assert cluster.own_config() == {}
    assert cluster.log_starts == {0: 40, 1: 50}


@pytest.mark.parametrize("node_id", [1, 2])
@pytest.mark.parametrize("acl", OF_TIER, ids=str)
async def test_h40_one_right_missing_at_one_leader_and_nothing_is_altered(
    acl: Acl, node_id: int
) -> None:
    cluster, service = two_leaders()
    cluster.denied = {(node_id, acl)}
    error = await refused(service, TIER)
    assert error.acls == (acl,)
    assert str(acl) in str(error)
    assert f"--operation {acl.operation}" in str(error)
    assert_untouched(cluster)
    cluster.denied = set()
    assert (await service.verbs.enable(TOPIC, TIER)).record.trim


async def test_h40_all_that_is_missing_is_named_at_once() -> None:
    cluster, service = two_leaders()
    cluster.denied = {(1, acl) for acl in OF_TIER}
    assert set((await refused(service, TIER)).acls) == set(OF_TIER)
    cluster, service = two_leaders("User:tiering")
    cluster.denied = {(1, OF_TIER[2]), (2, OF_TIER[3]), (2, OF_TIER[4])}
    error = await refused(service, TIER)
    assert set(error.acls) == set(of_principal(OF_TIER[2:5], "User:tiering"))
    assert (
        "kafka-acls.sh --bootstrap-server BROKER --add --allow-principal User:tiering "
        f"--operation AlterConfigs --operation Delete --operation Read --topic {TOPIC}"
    ) in str(error)
    assert_untouched(cluster)


async def test_h40_force_does_not_stand_in_for_a_right() -> None:
    cluster, service = two_leaders()
    cluster.denied = {(1, topic_acl("Delete", TOPIC))}
    await refused(service, EnableOptions(trim=True, force=True))
    assert_untouched(cluster)


async def test_h40_the_proof_deletes_nothing_and_reads_the_leaders_own_log() -> None:
    cluster, service = two_leaders()
    await service.verbs.enable(TOPIC, TIER)
    assert cluster.log_starts == {0: 40, 1: 50}
    for node_id, partition in ((1, 0), (2, 1)):
        used = [what for node, what in cluster.used if node == node_id]
        assert f"delete {partition} below 0" in used
        assert f"fetch {partition}" in used
        assert "validate" in used


@pytest.mark.parametrize("acl", OF_TIER[2:], ids=str)
async def test_h40_mode_copy_needs_what_it_uses_and_no_more(acl: Acl) -> None:
    cluster, service = two_leaders()
    cluster.denied = {(1, acl), (2, acl)}
    assert (await service.verbs.enable(TOPIC, COPY)).record.mode == "copy"
    assert not [what for _, what in cluster.used if what.startswith(("delete", "valid", "alter"))]
    with pytest.raises(MissingAcls):
        await service.verbs.trim_on(TOPIC, force=False)
    record = cluster.record()
    assert record is not None
    assert (record.mode, record.trim, cluster.alters) == ("copy", False, [])


@pytest.mark.parametrize("acl", OF_COPY, ids=str)
async def test_h40_mode_copy_without_what_it_needs_is_refused(acl: Acl) -> None:
    cluster, service = two_leaders()
    cluster.denied = {(2, acl)}
    assert (await refused(service, COPY)).acls == (acl,)
    assert_untouched(cluster)


async def test_h40_a_leaders_service_that_does_not_answer_has_proven_nothing() -> None:
    cluster, service = two_leaders()
    cluster.silent = {2}
    with pytest.raises(Unavailable, match=r"service of broker 2.*not answer.*--force"):
        await service.verbs.enable(TOPIC, TIER)
    assert_untouched(cluster)
    outcome = await service.verbs.enable(TOPIC, COPY)
    assert "broker 2" in outcome.warnings[0]
    forced = await service.verbs.trim_on(TOPIC, force=True)
    assert "not proven" in forced.warnings[0]


async def test_h40_what_is_proven_is_not_asked_again_for_a_change_of_retention() -> None:
    cluster, service = two_leaders()
    await service.verbs.enable(TOPIC, TIER)
    cluster.used.clear()
    await service.verbs.enable(TOPIC, TIER)
    assert "validate" not in [what for _, what in cluster.used]


async def test_h14_a_policy_that_refuses_our_retention_is_known_before_anything_is_altered() -> (
    None
):
    cluster, service = two_leaders()
    cluster.policy_refuses_to_validate = True
    with pytest.raises(Invalid, match="POLICY_VIOLATION"):
        await service.verbs.enable(TOPIC, TIER)
    assert_untouched(cluster)
