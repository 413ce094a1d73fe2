"""The end of a run: every fault is healed, operators do their part, and all must come right.

After quiescence every record of the leader's history from the remote log start on is read once and
equal, all closed segments are remote and trimmed, and no object is left that the ledger does not
know.
"""

import asyncio
from typing import TYPE_CHECKING, Any, cast

from kip405.errors import RemoteStorageError
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.plans.trim import NoTrim
from rlm.service.metadata import BARRIER_DEADLINE_MS
from rlm.topics.partition_records import Adoption
from rlmm.records import LedgerRecord
from tests.simulation.consumer import Kind
from tests.simulation.decisions import until_enabled
from tests.simulation.discards import undo_refused
from tests.simulation.ends import UNLIMITED
from tests.simulation.frozen import lift
from tests.simulation.invariants import Broken, of_segments, parsed
from tests.simulation.known_topics import TopicLife
from tests.simulation.rebuild import rebuild
from tests.simulation.topic_events import create, heal

if TYPE_CHECKING:
    from tests.simulation.world import World

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_QUIET_WITHIN_S = 240.0
_MOST_EMPTY_ANSWERS = 40


def tick(world: "World") -> None:
    """What the brokers and their controller do now and then."""
    cluster = world.cluster
    cluster.check_isr()
    for broker in cluster.brokers.values():
        if broker.is_up and world.chance.random() < 0.2:
            broker.replica.checkpointed_start = broker.replica.log_start
    leader = cluster.brokers.get(cluster.partition.leader)
    if (leader is None or not leader.is_up) and world.chance.random() < 0.3:
        cluster.elect_from_isr()


async def make(world: "World") -> None:
    """Heal everything; operators repair a ledger that lost records, and restart what noticed."""
    world.say("-- peace")
    _heal_topic(world)
    if world.chance.random() < 0.5:
        world.enable(UNLIMITED)
    cluster = world.cluster
    for broker in cluster.brokers.values():
        broker.cut_off_until_s = 0.0
        if not broker.is_up:
            cluster.start(broker, has_lost_power=False)
    world.store.show()
    for process in world.loop.processes:
        process.callbacks_until_pause = -1
        process.is_paused = False
    for service in world.services.values():
        service.log.lags_until_s = 0.0
    await _until_led(world)
    if any(state.lost or state.lost_when_started for state in world.topics.states.values()):
        await _repair_ledger(world)
    elif world.chance.random() < 0.3:
        _stop_services(world)  # what was known to a process alone is forgotten
    for node_id, service in list(world.services.items()):
        if not service.is_up:
            world.start_service(node_id)


def _heal_topic(world: "World") -> None:
    """Perhaps a topic that was deleted gets a successor; services may see what there is."""
    if world.story is not None and world.story.random() < 0.6:
        create(world, world.story)
    heal(world)


async def _until_led(world: "World") -> None:
    cluster = world.cluster
    for _ in range(120):
        tick(world)
        await asyncio.sleep(0.5)
        ends = {one.replica.end for one in cluster.brokers.values()}
        if cluster.topic_id is None:
            return
        if cluster.leader is not None and len(ends) == 1:
            return
    raise Broken(f"the model's brokers do not come together: {cluster.partition}")


def _stop_services(world: "World") -> None:
    for node_id, service in world.services.items():
        if service.is_up:
            world.kill_service(node_id)


async def _repair_ledger(world: "World") -> None:
    """An operator stops the services and runs `rlm ledger rebuild`; then they start again."""
    _stop_services(world)
    await asyncio.sleep(10)  # what was in flight has arrived
    rebuild(world)
    for state in world.topics.states.values():
        state.lost.clear()
        state.lost_when_started.clear()
        state.positions.clear()


async def check(world: "World") -> None:
    """Wait for quiescence, then compare everything."""
    if not world.is_enabled:
        await asyncio.sleep(world.chance.uniform(1.0, 20.0))
        world.enable(UNLIMITED)
        await until_enabled(world)
    for _ in range(6):
        world.cluster.produce()
        await asyncio.sleep(0.5)
    await _until_quiet(world)
    world.enable(UNLIMITED)
    await asyncio.sleep(2)
    await _until_quiet(world)
    world.say("-- quiet")
    await _read_all(world)
    _check_objects(world)
    world.raise_failure()
    world.watch.check_compaction(world.chance)


async def _until_quiet(world: "World") -> None:
    limit_s = world.loop.time() + _QUIET_WITHIN_S
    while (why := _unfinished(world)) is not None:
        if world.loop.time() > limit_s:
            world.watch.check_compaction(world.chance)
            raise Broken(f"not quiet after {_QUIET_WITHIN_S} s: {why}")
        tick(world)
        await undo_refused(world)
        await lift(world)
        await _adopt_where_frozen(world)
        await _delete_what_began_again(world)
        await _confirm_what_waits(world)
        await asyncio.sleep(1)
        world.raise_failure()


def _unfinished(world: "World") -> str | None:
    """What is still to be done, None = nothing."""
    segment = _unfinished_segment(world)
    if segment is not None:
        return segment
    for life in world.known_topics.deleted:
        left = _left(world, life)
        if left is not None:
            return left
    current = world.known_topics.current
    if current.deleted_ms is None and current.key in world.discards.pending:
        return "what is discarded is not deleted, and it was not taken back"
    leader = world.cluster.leader
    if leader is None:
        return None if world.cluster.topic_id is None else "no leader"
    replica = leader.replica
    closed = [base for base in replica.bases[1:] if base < replica.high_watermark]
    service = world.services[leader.node_id]
    if closed and replica.log_start < closed[-1]:
        return f"the log begins at {replica.log_start}, not at {closed[-1]}: {service.statuses()}"
    starts = {one.replica.log_start for one in world.cluster.brokers.values()}
    if len(starts) > 1:
        world.cluster.wake_followers()
        return f"log starts differ: {starts}"
    return None


def _unfinished_segment(world: "World") -> str | None:
    for one in world.watch.newest().values():
        if world.known_topics.of(one.key.partition.topic_id).deleted_ms is not None:
            continue
        is_open = one.metadata is not None and one.metadata.state is not _FINISHED
        if one.metadata is not None and is_open and not _awaits_operator(world, one):
            return f"{one.metadata.segment_id.id} is {one.metadata.state.name}"
        if one.metadata is not None and _has_ended(world, one.metadata):
            return f"{one.metadata.segment_id.id} is left below {world.ends.published}"
    return None


def _left(world: "World", life: TopicLife) -> str | None:
    """What is left of a deleted topic that nobody keeps, but for what `_check_objects` excepts."""
    if world.known_topics.is_kept(life):
        return None
    excepted = world.store.late_manifests | world.zombie_objects
    names = [one for one in world.store.objects if parsed(one).topic_id == life.topic_id]
    return world.known_topics.left(life, [one for one in names if one not in excepted])


def _has_ended(world: "World", segment: RemoteLogSegmentMetadata) -> bool:
    """Whether it is to be deleted: it lies below the remote log start, and no record in it is of a
    later leader epoch than the decision (H4).
    """
    newest = max(one.epoch for one in segment.segment_leader_epochs)
    ends = world.ends
    return segment.next_offset <= ends.published and newest <= ends.published_epoch


def _awaits_operator(world: "World", record: LedgerRecord) -> bool:
    """Whether an entry has a manifest without its objects, which a sweep only reports: the store
    lost them, or a manifest came late and the ledger lost what said that they were deleted, or
    nobody has accepted that its records are in a hole (H15).
    """
    segment_id = record.key.segment_id
    if segment_id in world.damaged or _is_in_hole(world, record):
        return True
    forgotten = {one.key.segment_id for one in of_segments(world.topics.lost_records)}
    late = {parsed(name).segment_id for name in world.store.late_manifests}
    return segment_id in forgotten and segment_id in late


def _is_in_hole(world: "World", record: LedgerRecord) -> bool:
    found = record.metadata
    return found is not None and any(
        hole.start < found.next_offset and found.start_offset < hole.end
        for hole in world.known_topics.view.holes(record.key.partition)
    )


async def _adopt_where_frozen(world: "World") -> None:
    """What an operator does about a partition that was frozen (H4)."""
    leader = world.cluster.leader
    service = world.services[leader.node_id] if leader else None
    if service is None or service.wiring is None:
        return
    key = world.known_topics.current.key
    led = service.leadership.snapshot.partitions.get(key)
    status = service.wiring.partition_tasks.copy.statuses.get(key)
    if led is None or status is None or not status.frozen or led.leader != service.broker.node_id:
        return
    adoption = Adoption(
        broker=service.client,
        settings=service.settings,
        ledger=service.ledger,
        unlisted=cast(Any, None),  # asked only where a start is lost
        starts=service.starts,
        barrier_deadline_ms=BARRIER_DEADLINE_MS,
    )
    try:
        await adoption.adopt_log(led, frozen=status.frozen, by="the simulation")
        world.happened("adopted", status.frozen)
    except RemoteStorageError as error:
        world.say(f"not adopted: {error}")


async def _delete_what_began_again(world: "World") -> None:
    """What a user does about records of a later leader epoch below the remote log start, which
    nobody has ended (H4): ends them.
    """
    leader = world.cluster.leader
    service = world.services[leader.node_id] if leader else None
    if leader is None or service is None or service.wiring is None:
        return
    status = service.wiring.partition_tasks.trim.statuses.get(world.known_topics.current.key)
    offset = world.ends.published + 1
    is_held = status is not None and status.reason == NoTrim.RESTARTED.value
    if is_held and offset > leader.replica.high_watermark:
        world.cluster.produce()  # until there is what can be ended
    elif is_held:
        world.ends.ask(offset)
        world.happened("ended again", f"up to {offset}")
        await world.ask_deletion(offset)


async def _confirm_what_waits(world: "World") -> None:
    """What an operator does about topics that were deleted at the same time: `rlm purge` (H7)."""
    for service in world.services.values():
        if service.topics is not None and service.topics.ends.held:
            try:
                await service.call(service.topics.purge.confirm(()))
                world.happened("purge confirmed")
            except RemoteStorageError as error:
                world.say(f"not purged: {error}")


async def _read_all(world: "World") -> None:
    """H31: each offset from the remote log start on once, equal to the leader's history."""
    leader = world.cluster.leader
    if world.cluster.topic_id is None:
        return
    assert leader is not None
    offset, end = world.ends.readable_from, leader.replica.high_watermark
    empty = 0
    while (offset := max(offset, world.ends.readable_from)) < end:
        answer = await world.consumer.step(offset, world.ends)
        if answer.kind is Kind.RECORDS and answer.records:
            offset = answer.next_offset
            empty = 0
            continue
        empty += 1
        if empty > _MOST_EMPTY_ANSWERS:
            raise Broken(f"offset {offset} of {end} cannot be read: {answer}")
        await asyncio.sleep(1)


def _check_objects(world: "World") -> None:
    """No object is left that no entry of the ledger knows, but for three kinds, which a comparison
    of store and ledger is to find (H12): a manifest that was given up and came later, what a zombie
    sent before it knew that its attempt was swept, and what a copy left whose only record the
    ledger lost.
    """
    known = {one.segment_id.id for one in world.watch.finished()}
    known |= {
        one.segment_id.id
        for one in world.watch.segments()
        if world.known_topics.is_kept(
            world.known_topics.of(one.segment_id.topic_id_partition.topic_id)
        )
    }
    lost = (one.key.segment_id for one in of_segments(world.topics.lost_records))
    known |= {one for one in lost if one is not None} | world.damaged
    for name in world.store.objects:
        late = world.store.late_manifests | world.zombie_objects
        if parsed(name).segment_id not in known and name not in late:
            raise Broken(f"object {name} is left, and no entry of the ledger has it")
