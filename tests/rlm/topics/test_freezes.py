"""Freezes are facts: durable, without a leader, listed with who and why."""

import pytest

from kip405.errors import NotFound
from kip405.ids import Uuid
from rlm.topics.partition_records import Freezes
from rlm.topics.verbs import EnableOptions
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.world import ServiceUnderTest


def freezes_of(service: ServiceUnderTest) -> Freezes:
    return Freezes(settings=service.settings, broker=service.broker, barrier_deadline_ms=1_000)


async def test_freeze_works_without_a_leader_and_is_seen_by_others() -> None:
    cluster = Cluster()
    service = ServiceUnderTest(cluster)
    await service.verbs.enable(TOPIC, EnableOptions())
    cluster.leader = -1
    freezes = freezes_of(service)
    await freezes.freeze("", by="ann", why="disk swap")
    await freezes.freeze(TOPIC, by="bob", why="")
    other = ServiceUnderTest(cluster, node_id=2)
    await other.settings.barrier(1_000)
    assert all(other.settings.view.stopped_by(TOPIC_ID, what) for what in ("trim", "delete"))
    rows = freezes_of(other).listed()
    assert [(name, record.by, record.why) for name, record, _ in rows] == [
        ("", "ann", "disk swap"),
        (TOPIC, "bob", ""),
    ]
    await freezes.unfreeze("")
    await freezes.unfreeze(TOPIC)
    await other.settings.barrier(1_000)
    assert not other.settings.view.stopped_by(TOPIC_ID, "sweep")


async def test_h39_a_former_topic_is_frozen_by_its_id() -> None:
    cluster = Cluster()
    service = ServiceUnderTest(cluster)
    await service.verbs.enable(TOPIC, EnableOptions())
    other_id = Uuid(bytes(range(50, 66)))
    cluster.recreate(other_id)
    await service.verbs.enable(TOPIC, EnableOptions())
    freezes = freezes_of(service)
    await freezes.freeze(TOPIC, by="ann", why="the present one")
    assert not service.settings.view.stopped_by(TOPIC_ID, "delete")
    await freezes.freeze(str(TOPIC_ID), by="ann", why="the former one")
    assert service.settings.view.stopped_by(TOPIC_ID, "delete")
    await freezes.unfreeze(str(TOPIC_ID))
    assert not service.settings.view.stopped_by(TOPIC_ID, "delete")
    assert service.settings.view.stopped_by(other_id, "delete")


async def test_unknown_topics_and_missing_freezes_are_not_found() -> None:
    freezes = freezes_of(ServiceUnderTest(Cluster()))
    with pytest.raises(NotFound, match="not enabled"):
        await freezes.freeze(TOPIC, by="ann", why="")
    with pytest.raises(NotFound, match="nope"):
        await freezes.freeze("nope", by="ann", why="")
    with pytest.raises(NotFound, match="the cluster is not frozen"):
        await freezes.unfreeze("")
