"""The end of topics: who acts, in which order, after a crash at any step, beside another one."""

import asyncio
from dataclasses import replace

import pytest

from kip405.errors import Fenced, Unavailable
from kip405.ids import PartitionKey, TopicPartition, Uuid
from kip405.segments import RemotePartitionDeleteMetadata, RemotePartitionDeleteState
from rlm.plans.problems import ProblemKind
from rlm.topics.revocation import kept_of
from rlmm.publisher import Record
from rlmm.records import NO_PREVIOUS, LedgerKey, RecordHeaders, ledger_partition
from rlmm.settings_codec import encode_settings_record
from rlmm.settings_records import DELETION_DISABLE, DiscardRecord, Stamp, StartRecord
from rlmm.topic import LEDGER_TOPIC
from tests.rlm.topics.ends_world import (
    DEAD_AFTER_MS,
    DELAY_MS,
    GRACE_MS,
    INTERVAL_MS,
    LONG_MS,
    Service,
    Site,
    freeze_of,
    partition_of,
    record_of,
    site_of,
    topic_id,
)

MARKED = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
STARTED = RemotePartitionDeleteState.DELETE_PARTITION_STARTED


@pytest.mark.parametrize("number", [1, None])
async def test_a_freeze_stops_a_deletion_that_is_under_way(number: int | None) -> None:
    site = await site_of(1, 2)
    service = site.service()
    site.delete_topic(1)
    await site.run(service, for_ms=GRACE_MS + DELAY_MS)
    frozen: list[str] = []

    def freeze(operation: str) -> None:
        frozen.append(operation)
        if len(frozen) == 1:
            _freeze(service, number)

    site.store.before = freeze
    await site.run(service, for_ms=2 * INTERVAL_MS)
    assert frozen == ["delete"] * 3, "the segments of one partition go by one call"
    assert len(site.objects(1)) == 9


def _freeze(service: Service, number: int | None) -> None:
    """A freeze of another process, which this one reads now."""
    stamp = Stamp(node_id=9, leader_epoch=-1, writer=Uuid(b"\x07" * 16), time_ms=0)
    key, value = encode_settings_record(freeze_of(number), stamp)
    service.settings.view.apply(key=key, value=value, offset=service.settings.view.next_offset)


async def disabled(site: Site, number: int) -> None:
    """`rlm topics disable --delete` was confirmed."""
    ending = replace(kept_of(record_of(number)), state="deleting", deletion_cause=DELETION_DISABLE)
    await site.write(ending, 4)


async def test_the_remote_data_of_a_disabled_topic_goes_while_the_topic_stays() -> None:
    site = await site_of(1, 2)
    service = site.service()
    site.store.before = service.order.append
    await disabled(site, 1)
    await site.run(service, for_ms=DELAY_MS - INTERVAL_MS)
    assert len(site.objects(1)) == 18 and service.order == []
    assert service.purge.findings() == ()
    (end,) = service.purge.listed()
    assert end.due_in_ms is not None and 0 < end.due_in_ms < DELAY_MS
    await site.run(service, for_ms=3 * INTERVAL_MS)
    assert site.left(1) == []
    assert service.order == ["start"] + ["delete"] * 6, "the remote log start is raised first (G4)"
    assert site.state(2) == "enabled"


async def test_h02_no_start_is_raised_while_the_deletion_can_be_revoked() -> None:
    """A start never comes down again: what is below it would not be kept."""
    site = await site_of(1, 2)
    service = site.service()
    await disabled(site, 1)
    seen: list[int] = []
    service.local_starts.before = lambda: seen.append(_started(site))
    await site.run(service, for_ms=DELAY_MS + 2 * INTERVAL_MS)
    assert seen == [2]


def _started(site: Site) -> int:
    """Partitions of topic 1 whose deletion is recorded as begun."""
    ledger = site.service().ledger
    return sum(
        ledger.ledger(key).deletion_state is RemotePartitionDeleteState.DELETE_PARTITION_STARTED
        for key in ledger.partitions()
        if key.topic_id == topic_id(1)
    )


@pytest.mark.parametrize("started", [1, 2])
async def test_h02_what_is_kept_when_the_deletion_begins_keeps_its_start(started: int) -> None:
    site = await site_of(1, 2)
    service = site.service()
    await disabled(site, 1)
    is_kept = False

    def keep(_: Record) -> None:
        nonlocal is_kept
        if not is_kept and _started(site) == started:
            is_kept = True
            with pytest.raises(StopIteration):  # it waits for nothing
                site.write(kept_of(record_of(1)), 4).send(None)

    service.log.after_append = keep
    await site.run(service, for_ms=DELAY_MS + 4 * INTERVAL_MS)
    assert is_kept
    assert service.order == []
    assert (site.state(1), len(site.objects(1))) == ("kept", 18)


async def test_h02_who_is_late_removes_nothing_of_a_topic_that_was_enabled_again() -> None:
    site = await site_of(1, 2)
    service = site.service()
    await disabled(site, 1)
    start = StartRecord(
        partition=PartitionKey(topic_id(1), 1),
        remote_log_start_offset=40,
        cause="enable",
        decided_epoch=4,
    )
    is_again = False

    def enable_again(record: Record) -> None:
        """Another service ended the topic first, and it was enabled while ours was paused."""
        nonlocal is_again
        if record.value is None and record.key == f"topic/{topic_id(1)}".encode():
            is_again = True
            service.log.after_append = lambda _: None
            for written in (record_of(1), start):
                with pytest.raises(StopIteration):  # it waits for nothing
                    site.write(written, 4).send(None)

    service.log.after_append = enable_again
    await site.run(service, for_ms=DELAY_MS + 4 * INTERVAL_MS)
    assert is_again
    view = site.service().settings.view
    assert view.topic(topic_id(1)) == record_of(1)
    assert view.remote_log_start(start.partition) == 40


async def test_h14_a_disabled_topic_is_not_forgotten_before_its_retention_is_given_back() -> None:
    site = await site_of(1, 2)
    service = site.service()
    ending = replace(
        kept_of(record_of(1)),
        state="deleting",
        deletion_cause=DELETION_DISABLE,
        originals={"retention.ms": "1000"},
    )
    await site.write(ending, 4)
    await site.run(service, for_ms=DELAY_MS + 4 * INTERVAL_MS)
    assert site.objects(1) == []
    assert site.service().settings.view.topic(topic_id(1)) == ending
    (finding,) = service.purge.findings()
    assert "its retention is not given back yet" in finding.text
    site.delete_topic(1)
    await site.run(service, for_ms=3 * INTERVAL_MS)
    assert site.left(1) == [], "there is nothing to give back to"


async def test_a_disabled_topic_that_is_deleted_meanwhile_needs_evidence_of_that() -> None:
    site = await site_of(1, 2)
    service = site.service()
    await disabled(site, 1)
    service.local_starts.is_gone = True
    await site.run(service, for_ms=DELAY_MS + 5 * INTERVAL_MS)
    assert len(site.objects(1)) == 18, "brokers know it by its id"
    (finding,) = service.purge.findings()
    assert finding.kind is ProblemKind.DELETION_WAITS
    assert "disabled with --delete" in finding.text
    assert "is known to broker 1" in finding.text
    assert "has begun" not in finding.text, "nobody is asked to look at a topic that is there"
    site.delete_topic(1)
    await site.run(service, for_ms=3 * INTERVAL_MS)
    assert site.left(1) == []


async def test_what_is_to_be_deleted_of_a_disabled_topic_can_be_kept() -> None:
    site = await site_of(1, 2)
    service = site.service()
    before = site.objects(1)
    await disabled(site, 1)
    await site.run(service, for_ms=DELAY_MS - 2 * INTERVAL_MS)
    await site.write(kept_of(record_of(1)), 4)
    await site.run(service, for_ms=LONG_MS)
    assert (site.state(1), site.objects(1)) == ("kept", before)
    assert service.order == []
    assert service.purge.listed() == ()


async def test_a_copy_that_begins_late_is_refused_while_the_partition_is_deleted() -> None:
    site = await site_of(1, 2)
    service = site.service()
    await disabled(site, 1)
    await site.run(service, for_ms=DEAD_AFTER_MS + INTERVAL_MS)
    with pytest.raises(Fenced, match="nothing is added"):
        await site.copy(1, 0, 7)


async def test_h06_what_is_adopted_while_its_partition_is_deleted_goes_too() -> None:
    site = await site_of(1, 2)
    service = site.service()
    await disabled(site, 1)

    def adopt(_: str) -> None:
        site.store.before = lambda _operation: None
        with pytest.raises(StopIteration):  # it waits for nothing
            site.adopt(1, 0, 7).send(None)

    site.store.before = adopt
    await site.run(service, for_ms=DELAY_MS + 5 * INTERVAL_MS)
    assert site.left(1) == []


class Crash(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_any_record_leaves_what_the_next_process_ends(when: str) -> None:
    for crash_at in range(1, 100):
        site = await site_of(1, 2)
        await site.copy(1, 0, 5, is_finished=False)
        service = site.service()
        site.delete_topic(1)
        await site.run(service, for_ms=GRACE_MS + INTERVAL_MS)
        written: list[Record] = []

        def die(record: Record, written: list[Record] = written, at: int = crash_at) -> None:
            if b"service" not in (record.key or b""):
                written.append(record)
                if len(written) == at:
                    raise Crash

        setattr(service.log, f"{when}_append", die)
        try:
            await site.run(service, for_ms=DELAY_MS + 4 * INTERVAL_MS)
        except Crash:
            successor = site.service()
            await site.run(successor, for_ms=GRACE_MS + DELAY_MS + 6 * INTERVAL_MS)
            assert site.left(1) == [], f"after a crash {when} record {crash_at}"
            assert site.state(2) == "enabled"
            continue
        assert crash_at > 20, "records were written"
        assert site.left(1) == []
        return
    raise AssertionError("it never ended")


async def test_a_crash_between_objects_leaves_what_the_next_process_ends() -> None:
    for crash_at in range(1, 7):
        site = await site_of(1, 2)
        service = site.service()
        site.delete_topic(1)
        calls: list[str] = []

        def die(operation: str, calls: list[str] = calls, at: int = crash_at) -> None:
            calls.append(operation)
            if len(calls) == at:
                raise Crash

        site.store.before = die
        with pytest.raises(Crash):
            await site.run(service, for_ms=GRACE_MS + DELAY_MS + 4 * INTERVAL_MS)
        await site.run(site.service(), for_ms=5 * INTERVAL_MS)
        assert site.left(1) == []


@pytest.mark.parametrize("states", [(MARKED,), (MARKED, STARTED)])
async def test_h10_a_deletion_record_that_arrives_after_the_end_is_removed(
    states: tuple[RemotePartitionDeleteState, ...],
) -> None:
    site = await site_of(1, 2)
    service = site.service()
    site.delete_topic(1)
    await site.run(service, for_ms=LONG_MS)
    assert site.left(1) == []
    late = site.service(9).ledger
    for state in states:
        found = RemotePartitionDeleteMetadata(
            topic_id_partition=partition_of(1), event_timestamp_ms=0, broker_id=1, state=state
        )
        await late.put_remote_partition_delete_metadata(found, 5)
    assert site.left(1) != []
    await site.run(service, for_ms=2 * INTERVAL_MS)
    assert site.left(1) == []


async def _alive(service: Service) -> None:
    """The other one, which has not read this heartbeat yet, takes itself for the lowest alive."""
    await service.beat()
    await service.ends.check()


async def test_two_services_that_act_at_once_end_it_together() -> None:
    site = await site_of(1, 2)
    one, two = site.service(1), site.service(2)
    site.delete_topic(1)
    for _ in range((GRACE_MS + DELAY_MS) // INTERVAL_MS + 12):
        site.pass_time(INTERVAL_MS)
        await two.beat()
        await asyncio.gather(_alive(one), two.ends.check())
    assert site.left(1) == []
    assert site.state(2) == "enabled"


async def test_one_service_acts_the_lowest_that_is_alive() -> None:
    site = await site_of(1, 2)
    one, two = site.service(1), site.service(2)
    site.delete_topic(1)
    await site.run(two, one, for_ms=GRACE_MS + 3 * INTERVAL_MS)
    record = site.service().settings.view.get(f"topic/{topic_id(1)}")
    assert record is not None and record.stamp.node_id == 1
    await site.run(two, for_ms=DELAY_MS + 6 * INTERVAL_MS)
    assert site.left(1) == [], "the second one goes on when the first is dead"


async def test_a_rival_or_a_problem_of_the_ledger_stops_everything() -> None:
    site = await site_of(1, 2)
    service = site.service()
    site.delete_topic(1)
    service.rival = "a second service of this node is alive"
    await site.run(service, for_ms=LONG_MS)
    assert site.state(1) == "enabled"
    service.rival = None
    service.log.problem = "records are missing"
    await site.run(service, for_ms=LONG_MS)
    assert site.state(1) == "enabled"
    service.log.problem = None
    await site.run(service, for_ms=GRACE_MS + 2 * INTERVAL_MS)
    service.log.problem = "records are missing"
    await site.run(service, for_ms=LONG_MS)
    assert site.state(1) == "deleting"
    assert len(site.objects(1)) == 18


async def test_h06_what_a_later_version_recorded_of_a_topic_stops_its_end() -> None:
    site = await site_of(1, 2)
    service = site.service()

    def append(value: bytes | None) -> None:
        key = PartitionKey(topic_id(1), 0)
        headers = RecordHeaders(leader_epoch=0, expected_previous=NO_PREVIOUS, writer=topic_id(9))
        written = Record(
            topic_partition=TopicPartition(LEDGER_TOPIC, ledger_partition(key)),
            key=LedgerKey(partition=key, segment_id=None).encode() + b"*",
            value=value,
            headers=tuple(headers.encode()),
        )
        site.topics.append(written)

    append(b"\x01\x07\x00new")
    site.delete_topic(1)
    await site.run(service, for_ms=LONG_MS)
    assert len(site.objects(1)) == 18
    assert "api key 7" in service.ends.why_not(topic_id(1))
    append(None)
    await site.run(service, for_ms=LONG_MS)
    assert site.left(1) == []


async def test_a_store_that_is_away_delays_the_end() -> None:
    site = await site_of(1, 2)
    service = site.service()
    site.delete_topic(1)

    def away(operation: str) -> None:
        raise Unavailable("the store is away")

    site.store.before = away
    await site.run(service, for_ms=GRACE_MS + DELAY_MS + 5 * INTERVAL_MS)
    assert len(site.objects(1)) == 18
    (finding,) = service.purge.findings()
    assert finding.kind is ProblemKind.DELETION_WAITS
    assert "the store is away" in finding.text
    site.store.before = lambda _operation: None
    await site.run(service, for_ms=3 * INTERVAL_MS)
    assert site.left(1) == []
    assert service.purge.findings() == ()


async def test_h39_a_new_topic_of_the_same_name_is_untouched() -> None:
    site = await site_of(1, 2)
    site.brokers.topics.add(topic_id(3))
    await site.set_up(3)
    await site.write(replace(record_of(3), name="topic-1"), 6)
    before = site.left(3)
    service = site.service()
    site.delete_topic(1)
    await site.run(service, for_ms=GRACE_MS + DELAY_MS + 5 * INTERVAL_MS)
    assert site.left(1) == []
    assert site.left(3) == before
    assert site.state(3) == "enabled"


async def test_h16_the_delay_holds_by_the_log_and_by_our_clock() -> None:
    site = await site_of(1, 2)
    service = site.service()
    site.delete_topic(1)
    await site.run(service, for_ms=GRACE_MS + 2 * INTERVAL_MS)
    assert site.state(1) == "deleting"
    site.clock.wall_ahead_ms = 100 * DELAY_MS  # our clock jumps
    await site.run(service, for_ms=2 * INTERVAL_MS)
    assert len(site.objects(1)) == 18
    site.clock.wall_ahead_ms = 0
    site.topics.now_ms += 100 * DELAY_MS  # a broker with another clock leads the settings topic
    await service.beat()
    await service.ends.check()
    assert len(site.objects(1)) == 18


@pytest.mark.parametrize("jumps_ms", [3_600_000, -3_600_000])
async def test_h16_clocks_that_disagree_end_no_topic(jumps_ms: int) -> None:
    site = await site_of(1, 2)
    service = site.service()
    site.delete_topic(1)
    await site.run(service, for_ms=GRACE_MS + DELAY_MS - INTERVAL_MS)
    site.clock.wall_ahead_ms = jumps_ms
    await site.run(service, for_ms=DELAY_MS)
    assert len(site.objects(1)) == 18
    (end,) = service.purge.listed()
    assert "differ by 3600 s" in end.waits
    site.clock.wall_ahead_ms = 0
    await site.run(service, for_ms=2 * INTERVAL_MS)
    assert site.left(1) == []


async def discarded(site: Site) -> DiscardRecord:
    """An operator has given up what is remote of partition 0 of topic 1."""
    record = DiscardRecord(
        partition=partition_of(1, 0).key,
        by="ada",
        why="orphans",
        epoch=5,
        last_epoch=5,
        offset=0,
        delay_ms=DELAY_MS,
        decided_ms=0,
    )
    await site.write(record, 5)
    return record


async def test_h04_what_a_discard_has_marked_stays_marked() -> None:
    site = await site_of(1)
    service = site.service()
    discard = await discarded(site)
    service.log.read_all()
    await service.end.mark(partition_of(1, 0))
    await site.run(service, for_ms=3 * INTERVAL_MS)
    assert service.ledger.ledger(discard.partition).deletion_state is MARKED
    await site.service(9).settings.tombstone(discard.key, 5)
    await site.run(service, for_ms=3 * INTERVAL_MS)
    assert service.ledger.ledger(discard.partition).deletion_state is None


@pytest.mark.parametrize("last", [1, 2])
async def test_h04_a_discard_does_not_keep_a_disabled_topic_from_being_enabled(last: int) -> None:
    site = await site_of(1)
    service = site.service()
    discard = await discarded(site)
    await site.write(kept_of(record_of(1)), 4)
    service.log.read_all()
    partition = partition_of(1, 0)
    await service.end.mark(partition)
    for number in range(1, last + 1):
        state = RemotePartitionDeleteMetadata(
            topic_id_partition=partition,
            event_timestamp_ms=0,
            broker_id=1,
            state=RemotePartitionDeleteState(number),
        )
        await service.ledger.put_remote_partition_delete_metadata(state, 5)
    await site.run(service, for_ms=3 * INTERVAL_MS)
    assert service.ledger.ledger(discard.partition).deletion is None
