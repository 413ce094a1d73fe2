"""H7: the remote data of a topic goes only on positive evidence that the topic is deleted."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kip405.errors import Fenced, NotFound, Unavailable
from rlm.plans.problems import ProblemKind
from rlm.plans.topic_end import EndLimits
from rlm.topics.purge import WAITS_FOR_GRACE
from rlm.topics.revocation import kept_of
from tests.rlm.topics.ends_world import (
    DELAY_MS,
    DENIED,
    GRACE_MS,
    INTERVAL_MS,
    KNOWN,
    LEDGER_ID,
    LONG_MS,
    UNKNOWN,
    Brokers,
    record_of,
    site_of,
    topic_id,
)


async def test_a_deleted_topic_leaves_nothing_and_others_stay() -> None:
    site = await site_of(1, 2)
    service = site.service()
    before = site.objects(2)
    site.delete_topic(1)
    await site.run(service, for_ms=GRACE_MS - INTERVAL_MS)
    assert site.state(1) == "enabled"
    await site.run(service, for_ms=3 * INTERVAL_MS)
    assert site.state(1) == "deleting"
    assert len(site.objects(1)) == 18
    await site.run(service, for_ms=DELAY_MS - 3 * INTERVAL_MS)
    assert len(site.objects(1)) == 18, "the delay is not over"
    await site.run(service, for_ms=4 * INTERVAL_MS)
    assert site.left(1) == []
    assert site.audit.causes == ["topic-gone"] * 6
    assert site.state(2) == "enabled"
    assert site.objects(2) == before
    assert not service.ends.sizes().get(topic_id(1))


def _denied(brokers: Brokers) -> None:
    brokers.overrides = {(node, topic_id(1)): DENIED for node in brokers.nodes}


def _denied_by_one(brokers: Brokers) -> None:
    brokers.topics.clear()
    brokers.overrides = {(2, topic_id(1)): DENIED}


def _left_out(brokers: Brokers) -> None:
    brokers.overrides = {(node, topic_id(1)): None for node in brokers.nodes}


def _one_knows_it(brokers: Brokers) -> None:
    brokers.topics.clear()
    brokers.overrides = {(3, topic_id(1)): KNOWN}


def _one_answers(brokers: Brokers) -> None:
    brokers.topics.clear()
    brokers.silent = {2, 3}


def _other_cluster(brokers: Brokers) -> None:
    brokers.topics.clear()
    brokers.clusters = {2: "another-cluster"}


def _ledger_topic_hidden(brokers: Brokers) -> None:
    brokers.topics.clear()
    brokers.overrides = {(node, LEDGER_ID): DENIED for node in brokers.nodes}


def _one_reads_its_metadata_yet(brokers: Brokers) -> None:
    brokers.overrides = {(1, topic_id(1)): UNKNOWN}


def _nothing_is_read_yet(brokers: Brokers) -> None:
    brokers.topics.clear()
    brokers.overrides = {(node, LEDGER_ID): UNKNOWN for node in (2, 3)}


@pytest.mark.parametrize(
    "seen",
    [
        _denied,
        _denied_by_one,
        _left_out,
        _one_knows_it,
        _one_answers,
        _other_cluster,
        _ledger_topic_hidden,
        _one_reads_its_metadata_yet,
        _nothing_is_read_yet,
    ],
)
async def test_h07_what_is_no_evidence_deletes_nothing(seen: Callable[[Brokers], None]) -> None:
    site = await site_of(1, limits=EndLimits(max_topics=9, max_share_percent=100))
    service = site.service()
    before = site.left(1)
    seen(site.brokers)
    await site.run(service, for_ms=LONG_MS)
    assert site.state(1) == "enabled"
    assert site.left(1) == before
    assert service.purge.listed() == ()
    with pytest.raises(NotFound):
        await service.purge.confirm(["topic-1"])
    assert site.left(1) == before


async def test_h07_a_cluster_record_of_another_cluster_is_no_evidence() -> None:
    site = await site_of(1, limits=EndLimits(max_topics=9, max_share_percent=100))
    service = site.service()
    cluster = service.settings.view.cluster
    assert cluster is not None
    await site.write(replace(cluster, cluster_id="other"))
    site.brokers.clusters = dict.fromkeys(site.brokers.nodes, "other")
    site.delete_topic(1)
    await site.run(service, for_ms=LONG_MS)
    assert site.state(1) == "enabled"


@pytest.mark.parametrize("nodes", [(1,), (1, 2)])
async def test_h07_in_a_small_cluster_all_brokers_are_enough(nodes: tuple[int, ...]) -> None:
    site = await site_of(1, 2)
    site.brokers.nodes = nodes
    site.delete_topic(1)
    await site.run(site.service(), for_ms=LONG_MS)
    assert site.left(1) == []


async def test_h07_an_interrupted_grace_begins_again() -> None:
    site = await site_of(1, 2)
    service = site.service()
    site.delete_topic(1)
    for interruption in ("known", "silent", "denied"):
        await site.run(service, for_ms=GRACE_MS)
        if interruption == "known":
            site.brokers.topics.add(topic_id(1))
        elif interruption == "silent":
            site.brokers.silent = {1, 2}
        else:
            site.brokers.overrides = {(2, topic_id(1)): DENIED}
        await site.run(service, for_ms=INTERVAL_MS)
        site.brokers.topics.discard(topic_id(1))
        site.brokers.silent.clear()
        site.brokers.overrides.clear()
        assert site.state(1) == "enabled"
    await site.run(service, for_ms=GRACE_MS + 2 * INTERVAL_MS)
    assert site.state(1) == "deleting"


async def test_h07_several_topics_at_once_wait_for_an_operator() -> None:
    site = await site_of(1, 2, 3, 4)
    service = site.service()
    site.delete_topic(1)
    site.delete_topic(2)
    await site.run(service, for_ms=LONG_MS)
    assert (site.state(1), site.state(2)) == ("enabled", "enabled")
    listed = {one.record.name: one.waits for one in service.purge.listed()}
    assert set(listed) == {"topic-1", "topic-2"}
    assert all("2 topics seem to be deleted at once" in waits for waits in listed.values())
    kinds = {(found.kind, found.topic) for found in service.purge.findings()}
    assert kinds == {
        (ProblemKind.DELETION_WAITS, "topic-1"),
        (ProblemKind.DELETION_WAITS, "topic-2"),
    }
    await service.purge.confirm(["topic-1"])
    await site.run(service, for_ms=DELAY_MS + 3 * INTERVAL_MS)
    assert site.left(1) == []
    await site.run(service, for_ms=LONG_MS)
    assert site.state(2) == "enabled", "nobody has confirmed this one"


async def test_h07_one_topic_after_another_is_several_at_once_too() -> None:
    site = await site_of(1, 2, 3, 4)
    service = site.service()
    site.delete_topic(1)
    await site.run(service, for_ms=GRACE_MS + 2 * INTERVAL_MS)
    site.delete_topic(2)
    await site.run(service, for_ms=GRACE_MS + 2 * INTERVAL_MS)
    assert (site.state(1), site.state(2)) == ("deleting", "enabled")


async def test_h07_a_large_share_of_all_bytes_waits_for_an_operator() -> None:
    site = await site_of(1, limits=EndLimits(max_topics=1, max_share_percent=60))
    await site.set_up(2, size_bytes=5)
    service = site.service()
    site.delete_topic(1)
    await site.run(service, for_ms=LONG_MS)
    assert site.state(1) == "enabled"
    (end,) = service.purge.listed()
    assert "66 % of all remote bytes" in end.waits
    await service.purge.confirm([])
    await site.run(service, for_ms=DELAY_MS + 3 * INTERVAL_MS)
    assert site.left(1) == []


async def test_h07_confirming_needs_the_same_evidence() -> None:
    site = await site_of(1, 2)
    service = site.service()
    site.delete_topic(1)
    await site.run(service, for_ms=2 * INTERVAL_MS)
    assert [one.waits for one in service.purge.listed()] == [WAITS_FOR_GRACE]
    assert service.purge.findings() == ()
    with pytest.raises(Fenced, match="of 60000 ms"):
        await service.purge.confirm(["topic-1"])
    with pytest.raises(NotFound, match="topic-2"):
        await service.purge.confirm(["topic-2"])
    await site.run(service, for_ms=GRACE_MS - 3 * INTERVAL_MS)
    site.brokers.overrides = {(2, topic_id(1)): DENIED}
    with pytest.raises(Fenced):
        await service.purge.confirm([str(topic_id(1))])
    assert site.state(1) == "enabled"


async def test_h07_a_topic_that_is_there_after_all_is_what_it_was() -> None:
    site = await site_of(1, 2)
    service = site.service()
    before = site.left(1)
    site.delete_topic(1)
    await site.run(service, for_ms=GRACE_MS + 3 * INTERVAL_MS)
    assert site.state(1) == "deleting"
    site.brokers.topics.add(topic_id(1))
    await site.run(service, for_ms=DELAY_MS + 2 * INTERVAL_MS)
    assert site.service().settings.view.topic(topic_id(1)) == record_of(1)
    assert site.left(1) == before
    assert service.purge.listed() == ()


async def test_h07_a_topic_that_is_there_while_it_is_deleted_stops_at_once() -> None:
    site = await site_of(1, 2)
    service = site.service()
    site.delete_topic(1)
    seen: list[str] = []

    def reappears(operation: str) -> None:
        seen.append(operation)
        site.brokers.topics.add(topic_id(1))

    site.store.before = reappears
    await site.run(service, for_ms=GRACE_MS + DELAY_MS + 5 * INTERVAL_MS)
    assert seen == ["delete"] * 3, "one group of one partition had begun"
    assert len(site.objects(1)) == 9
    (finding,) = service.purge.findings()
    assert finding.kind is ProblemKind.DELETION_WAITS
    assert "is known to broker 1" in finding.text


async def test_an_operator_keeps_the_remote_data_while_nothing_is_deleted() -> None:
    site = await site_of(1, 2)
    service = site.service()
    site.delete_topic(1)
    await site.run(service, for_ms=GRACE_MS + 3 * INTERVAL_MS)
    (finding,) = service.purge.findings()
    assert finding.kind is ProblemKind.DELETION_DUE
    record = service.settings.view.topic(topic_id(1))
    assert record is not None
    await site.write(kept_of(record), 4)
    await site.run(service, for_ms=LONG_MS)
    assert site.state(1) == "kept"
    assert len(site.objects(1)) == 18
    reader = site.service()
    assert all(reader.ledger.ledger(key).deletion is None for key in reader.ledger.partitions())
    (end,) = service.purge.listed()
    assert "--confirm" in end.waits
    assert service.purge.findings() == ()
    await service.purge.confirm([])
    assert site.state(1) == "kept", "only by its name"
    await service.purge.confirm(["topic-1"])
    await site.run(service, for_ms=DELAY_MS + 3 * INTERVAL_MS)
    assert site.left(1) == []


async def test_h39_what_is_kept_goes_by_its_id_where_a_deleted_topic_had_its_name() -> None:
    site = await site_of(1, 2)
    service = site.service()
    await site.write(replace(kept_of(record_of(2)), name="topic-1"), 4)
    for number in (1, 2):
        site.delete_topic(number)
    await site.run(service, for_ms=GRACE_MS + 2 * INTERVAL_MS)
    with pytest.raises(Fenced, match=f"give the id: .*{topic_id(2)}"):
        await service.purge.confirm(["topic-1"])
    assert site.state(2) == "kept"
    await service.purge.confirm([str(topic_id(1))])
    await site.run(service, for_ms=DELAY_MS + 4 * INTERVAL_MS)
    assert site.left(1) == []
    assert (site.state(2), len(site.objects(2))) == ("kept", 18)


async def test_h39_the_id_says_what_to_keep() -> None:
    site = await site_of(1, 2)
    service = site.service()
    site.delete_topic(1)
    await site.run(service, for_ms=GRACE_MS + 3 * INTERVAL_MS)
    (finding,) = service.purge.findings()
    assert f"`rlm topics disable {topic_id(1)}` keeps it" in finding.text


async def test_a_stale_service_does_not_delete_what_was_kept() -> None:
    site = await site_of(1, 2)
    stale = site.service()
    site.delete_topic(1)
    await site.run(stale, for_ms=GRACE_MS + DELAY_MS)
    record = stale.settings.view.topic(topic_id(1))
    assert record is not None and record.state == "deleting"
    site.pass_time(INTERVAL_MS)
    await stale.beat()
    site.pass_time(2 * INTERVAL_MS)
    await site.write(kept_of(record), 4)
    await stale.ends.check()
    assert len(site.objects(1)) == 18
    assert stale.settings.view.topic(topic_id(1)) == kept_of(record)


@pytest.mark.parametrize("asked", [2, 3, 4])
async def test_what_is_kept_at_the_last_moment_is_not_deleted(asked: int) -> None:
    """Before the step, before STARTED is written, and before the first segment."""
    site = await site_of(1, 2)
    service = site.service()
    site.delete_topic(1)
    await site.run(service, for_ms=GRACE_MS + DELAY_MS - INTERVAL_MS)
    assert site.state(1) == "deleting" and len(site.objects(1)) == 18
    site.pass_time(3 * INTERVAL_MS)
    await service.beat()
    before = service.presence.asked

    async def keep(number: int) -> None:
        if number == before + asked:
            record = service.settings.view.topic(topic_id(1))
            assert record is not None
            await site.write(kept_of(record), 4)

    service.presence.on_ask = keep
    await service.ends.check()
    assert service.presence.asked >= before + asked
    assert (site.state(1), len(site.objects(1))) == ("kept", 18)
    await site.run(service, for_ms=3 * INTERVAL_MS)
    reader = site.service()
    assert all(reader.ledger.ledger(key).deletion is None for key in reader.ledger.partitions())


async def test_undo_keeps_what_is_decided_and_says_when_it_has_begun() -> None:
    site = await site_of(1, 2)
    service = site.service()
    site.delete_topic(1)
    await site.run(service, for_ms=GRACE_MS + 2 * INTERVAL_MS)
    (end,) = service.purge.listed()
    assert (end.cause, end.by, end.decided_ms > 0) == ("gone", "service/1", True)
    extent = service.purge.extent(topic_id(1))
    assert (extent.segments, extent.records, extent.size_bytes) == (6, 60, 60)
    assert await service.purge.keep("topic-2") == (), "nothing of it waits or runs"
    (kept,) = await service.purge.keep("topic-1")
    assert kept == kept_of(record_of(1))
    await site.run(service, for_ms=LONG_MS)
    assert len(site.objects(1)) == 18
    assert await service.purge.keep("topic-1") == (), "it is kept already"
    site.delete_topic(2)
    await site.run(service, for_ms=GRACE_MS + DELAY_MS)
    site.store.before = _away
    await site.run(service, for_ms=4 * INTERVAL_MS)
    with pytest.raises(Fenced, match="has begun"):
        await service.purge.keep(str(topic_id(2)))


def _away(operation: str) -> None:
    raise Unavailable(f"the store is away at {operation}")


async def test_h07_undo_disables_no_topic_that_a_broker_knows() -> None:
    site = await site_of(1, 2)
    service = site.service()
    site.delete_topic(1)
    await site.run(service, for_ms=2 * INTERVAL_MS)
    assert [one.record.state for one in service.purge.listed()] == ["enabled"]
    site.brokers.topics.add(topic_id(1))
    with pytest.raises(Fenced, match="is known to broker"):
        await service.purge.keep("topic-1")
    assert site.state(1) == "enabled"
    site.delete_topic(1)
    await site.run(service, for_ms=2 * INTERVAL_MS)
    (kept,) = await service.purge.keep("topic-1")
    assert kept.state == site.state(1) == "kept"
