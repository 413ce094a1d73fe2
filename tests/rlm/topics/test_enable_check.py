"""What `rlm plan` is told by the verb that would enable a topic: the same refusals, no change."""

import asyncio
from dataclasses import replace

import pytest

from kip405.acls import topic_acl
from kip405.errors import Fenced, Invalid, NotFound, RemoteStorageError, Unavailable
from kip405.segments import Layout
from rlm.topics.ports import GroupOffset
from rlm.topics.rules import RetentionOptions
from rlm.topics.verbs import EnableOptions
from tests.builders.ledger import metadata
from tests.builders.log_dir import TOPIC
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.world import ServiceUnderTest

COPY, TIER = EnableOptions(), EnableOptions(trim=True)
COMPACTED = {TOPIC: {"cleanup.policy": "compact"}}
BELOW = GroupOffset(group="g", partition=0, offset=1)


def no_store(topic: str, layout: Layout | None) -> None:
    raise Invalid(f"no store for {topic}")


def clusters() -> list[tuple[Cluster, EnableOptions]]:
    return [
        (Cluster(configs=COMPACTED), COPY),
        (Cluster(internal=True), COPY),
        (Cluster(uncopyable="orders-0 at 7"), TIER),
        (Cluster(share_starts={0: 3}), TIER),
        (Cluster(groups_error=Unavailable("no answer")), TIER),
        (Cluster(denied={(1, topic_acl("Read", TOPIC))}), TIER),
        (Cluster(policy_refuses_to_validate=True), TIER),
    ]


@pytest.mark.parametrize("number", range(len(clusters())))
async def test_what_refuses_a_topic_is_what_enable_says(number: int) -> None:
    cluster, options = clusters()[number]
    service = ServiceUnderTest(cluster)
    checked = await service.verbs.check(TOPIC, options)
    assert cluster.records == [] and cluster.alters == []
    with pytest.raises(RemoteStorageError) as refused:
        await service.verbs.enable(TOPIC, options)
    assert (type(checked.refusal), str(checked.refusal)) == (
        type(refused.value),
        str(refused.value),
    )


async def test_h02_a_topic_that_nothing_refuses_is_checked_without_a_record() -> None:
    cluster = Cluster()
    service = ServiceUnderTest(cluster)
    retention = RetentionOptions(retention_ms=1_000, local_retention_ms=10)
    checked = await service.verbs.check(TOPIC, replace(TIER, retention=retention))
    assert checked.refusal is None
    assert (checked.retention.total_ms, checked.retention.local_ms) == (1_000, 10)
    assert cluster.records == [] and cluster.alters == []
    assert (service.start_of(0), service.start_of(1)) == (None, None)
    assert all(not what.startswith("alter") for _, what in cluster.used)


async def test_no_verb_waits_for_a_check_and_no_check_for_a_verb() -> None:
    service = ServiceUnderTest(Cluster())
    async with service.verbs.lock, asyncio.timeout(60):
        assert (await service.verbs.check(TOPIC, TIER)).refusal is None


async def test_warnings_are_those_of_enable() -> None:
    cluster = Cluster(uncopyable="orders-0 at 7", ends={0: 9}, groups=(BELOW,))
    service = ServiceUnderTest(cluster)
    checked = await service.verbs.check(TOPIC, replace(TIER, force=True))
    assert checked.refusal is None and "orders-0 at 7" in checked.warnings
    assert (
        checked.warnings == (await service.verbs.enable(TOPIC, replace(TIER, force=True))).warnings
    )


async def test_a_store_that_is_missing_refuses() -> None:
    service = ServiceUnderTest(Cluster(), refuse_untiered=no_store)
    assert str((await service.verbs.check(TOPIC, COPY)).refusal) == f"no store for {TOPIC}"


async def test_h02_remains_of_an_unknown_topic_refuse_as_in_enable() -> None:
    cluster = Cluster(log_starts={0: 50})
    service = ServiceUnderTest(cluster)
    service.ledger.copied(metadata(1, 0, 50, {0: 0}))
    checked = await service.verbs.check(TOPIC, COPY)
    with pytest.raises(Fenced) as refused:
        await service.verbs.enable(TOPIC, COPY)
    assert str(checked.refusal) == str(refused.value)
    assert "remote segments" in str(checked.refusal)


async def test_what_is_no_retention_and_what_is_no_topic_is_an_error() -> None:
    service = ServiceUnderTest(Cluster())
    below = EnableOptions(retention=RetentionOptions(retention_ms=-5))
    with pytest.raises(Invalid, match="below -1"):
        await service.verbs.check(TOPIC, below)
    with pytest.raises(NotFound):
        await service.verbs.check("absent", COPY)
