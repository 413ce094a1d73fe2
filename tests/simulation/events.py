"""What happens to a cluster: each event has a name, is counted, and ends by itself.

A seed takes some of the kinds only (as in swarm testing), so that rare ones meet in every
combination.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from kip405.ids import MAX_OFFSET, Uuid
from kip405.segments import RemoteLogSegmentState
from rlmm.log_reader import TailRecord
from rlmm.records import LedgerRecord
from tests.simulation.invariants import decoded
from tests.simulation.loop import Process
from tests.simulation.model_cluster import Broker
from tests.simulation.model_service import LEDGER, SETTINGS, Service

if TYPE_CHECKING:
    from tests.simulation.world import World

Event = Callable[["World"], Awaitable[None]]
_YEAR_MS = 365 * 24 * 3_600_000
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_LEDGER_TAIL = 30


async def run(world: "World") -> None:
    """Chaos until its time is over; every event is over by then, too."""
    chance = world.chance
    kinds = [one for one in EVENTS if chance.random() < 0.5] or list(EVENTS)
    world.say("events: " + ", ".join(one.__name__ for one in kinds))
    end_s = world.loop.time() + world.chaos_s
    async with asyncio.TaskGroup() as tasks:
        while world.loop.time() < end_s:
            await asyncio.sleep(chance.expovariate(1 / 0.9))
            tasks.create_task(chance.choice(kinds)(world))  # type: ignore[arg-type]
    world.is_chaos = False


def _pause(
    world: "World", process: Process, duration_s: float, name: str, *, within: int = 300
) -> None:
    loop = world.loop

    def go_on() -> None:
        process.is_paused = False
        world.say(f"{process.name} goes on")

    def paused() -> None:
        world.happened(name, f"{process.name} for {duration_s:.2f} s")
        loop.call_later(duration_s, go_on, context=loop.world.context)

    process.pause_after(world.chance.randint(0, within), paused)


async def pause_service(world: "World") -> None:
    """SIGSTOP at any await, then SIGCONT: a zombie that knows what it knew."""
    service = world.chance.choice(list(world.services.values()))
    if not service.process.is_paused:
        long = world.chance.random() < 0.3
        _pause(world, service.process, world.chance.uniform(0.1, 12.0 if long else 4.0), "pause")
        await _depose(world)


async def pause_in_copy(world: "World") -> None:
    """A zombie whose copy has begun, for longer than anybody else waits for it."""
    service = await _copying(world)
    if service is not None and not service.process.is_paused:
        long = world.chance.random() < 0.5
        duration_s = world.chance.uniform(10.5, 13.0) if long else world.chance.uniform(0.5, 10)
        _pause(world, service.process, duration_s, "pause", within=20)
        await _depose(world)


async def kill_in_copy(world: "World") -> None:
    """A copy that is given up anywhere, also when its manifest is written."""
    service = await _copying(world)
    if service is not None:
        await asyncio.sleep(world.chance.uniform(0.0, 0.6))
        await _kill(world, service.broker.node_id)


async def _copying(world: "World") -> Service | None:
    """The service that begins the next copy; None if it dies, or there is none soon."""
    begun: asyncio.Future[Uuid] = world.loop.create_future()
    world.begun.append(begun)
    await asyncio.wait((begun,), timeout=5)
    if not begun.done():
        world.begun.remove(begun)
        return None
    writers = (one for one in world.services.values() if one.writer == begun.result())
    service = next(writers, None)
    return service if service is not None and service.is_up else None


async def pause_in_cleanup(world: "World") -> None:
    """A zombie that has decided what to delete, and acts when another has led for a while."""
    for _ in range(50):
        await asyncio.sleep(0.04)
        service = world.chance.choice(list(world.services.values()))
        is_at_work = service.is_up and any(pool.running for pool in service.pools[1:])
        if is_at_work and not service.process.is_paused:
            _pause(world, service.process, world.chance.uniform(1.0, 10.0), "pause", within=100)
            return await _depose(world)


async def _depose(world: "World") -> None:
    """Perhaps another leads while the zombie stands."""
    await asyncio.sleep(world.chance.uniform(0.0, 1.0))
    if world.chance.random() < 0.5:
        await clean_election(world)


async def pause_broker(world: "World") -> None:
    broker = world.chance.choice(list(world.cluster.brokers.values()))
    if broker.is_up and not broker.process.is_paused:
        _pause(world, broker.process, world.chance.uniform(0.1, 6.0), "broker pause")
    await asyncio.sleep(1)


async def kill_service(world: "World") -> None:
    await _kill(world, world.chance.choice(list(world.services)))


async def _kill(world: "World", node_id: int) -> None:
    if not world.services[node_id].is_up:
        return
    world.happened("kill", world.services[node_id].process.name)
    world.kill_service(node_id)
    await asyncio.sleep(world.chance.uniform(0.1, 6.0))
    world.start_service(node_id)


async def _down(world: "World", broker: Broker, *, has_lost_power: bool) -> None:
    """One broker and its service die; a controller elects somebody; both come back."""
    cluster, chance = world.cluster, world.chance
    node_id = broker.node_id
    cluster.stop(broker)
    was_up = world.services[node_id].is_up
    if was_up:
        world.kill_service(node_id)
    await asyncio.sleep(chance.uniform(0.2, 1.5))
    if cluster.partition.leader == node_id:
        cluster.elect_from_isr()
    await asyncio.sleep(chance.uniform(0.5, 6.0))
    cluster.start(broker, has_lost_power=has_lost_power)
    await asyncio.sleep(chance.uniform(0.1, 2.0))
    if was_up:
        world.start_service(node_id)


async def kill_broker(world: "World") -> None:
    broker = world.chance.choice(list(world.cluster.brokers.values()))
    if broker.is_up:
        has_lost_power = world.chance.random() < 0.5
        world.happened("power loss" if has_lost_power else "broker kill", broker.process.name)
        await _down(world, broker, has_lost_power=has_lost_power)


async def clean_election(world: "World") -> None:
    if world.cluster.leader is not None and world.cluster.elect_from_isr():
        partition = world.cluster.partition
        world.happened("clean election", f"{partition.leader} epoch {partition.leader_epoch}")


async def unclean_election(world: "World") -> None:
    """A follower falls behind, then is all that is left, and leads."""
    cluster, chance = world.cluster, world.chance
    others = [
        one
        for one in cluster.brokers.values()
        if one.is_up and one.node_id != cluster.partition.leader
    ]
    if not others or cluster.topic_id is None:
        return
    behind, topic_id = chance.choice(others), cluster.topic_id
    behind.cut_off_until_s = world.loop.time() + 60
    world.happened("follower cut off", behind.process.name)
    await asyncio.sleep(chance.uniform(2.5, 6.5))
    behind.cut_off_until_s = 0.0
    is_deleted = cluster.topic_id != topic_id
    if not behind.is_up or cluster.partition.leader == behind.node_id or is_deleted:
        return
    rest = [one for one in cluster.brokers.values() if one is not behind and one.is_up]
    stopped = [one for one in rest if chance.random() < 0.7]
    for broker in stopped:
        cluster.stop(broker)
    cluster.elect(behind.node_id, isr=(behind.node_id,))
    leader_end = max((one.replica.end for one in rest), default=0)
    world.happened(
        "unclean election", f"{behind.process.name} with {behind.replica.end} of {leader_end}"
    )
    await asyncio.sleep(chance.uniform(0.1, 5.0))
    for broker in stopped:
        cluster.start(broker, has_lost_power=chance.random() < 0.3)
    if chance.random() < 0.5:
        await store_full(world)  # dead copies are all that the remote tier has, for a while


async def cut_off_follower(world: "World") -> None:
    broker = world.chance.choice(list(world.cluster.brokers.values()))
    broker.cut_off_until_s = world.loop.time() + world.chance.uniform(1.0, 6.0)
    world.happened("follower cut off", broker.process.name)


async def compaction(world: "World") -> None:
    topic_partition = world.chance.choice((LEDGER, LEDGER, SETTINGS))
    removed = world.topics.compact(topic_partition)
    if topic_partition == LEDGER and removed:
        world.happened("compaction", f"of {removed} records")


async def ledger_loss(world: "World") -> None:
    """Seldom, because nothing is trimmed or swept after it before an operator has repaired it; and
    where topics are deleted, not at all: it may bring back what their ends removed. Mostly with the
    records that say where the only copies are.
    """
    chance = world.chance
    if world.story is not None or chance.random() > 0.4:
        return
    only_copies: list[int] = []
    for _ in range(100):
        only_copies = _only_copies(world)
        if only_copies and world.all_have_read():
            break
        await asyncio.sleep(0.05)
    count = chance.choice(only_copies) if only_copies else 0
    if chance.random() < 0.3:
        count = chance.randint(1, 6)
    if count and world.all_have_read():
        count = world.topics.lose_tail(LEDGER, count)
        world.happened("ledger tail loss", f"of {count} records")


def _only_copies(world: "World") -> list[int]:
    """How many records from the end on each record is that says that an only copy is finished."""
    start = world.known_topics.current.ends.readable_from
    begin = max(one.replica.log_start for one in world.cluster.brokers.values())
    tail = world.topics.records.get(LEDGER, [])[-_LEDGER_TAIL:]
    ends = [_end_of_copy(one) for one in tail]
    return [len(tail) - at for at, end in enumerate(ends) if start < end <= begin]


def _end_of_copy(record: TailRecord) -> int:
    """Where the segment ends that a record says is copied; MAX_OFFSET if it is another record."""
    one = decoded(record)
    if isinstance(one, LedgerRecord) and one.metadata and one.state is _FINISHED:
        return one.metadata.next_offset
    return MAX_OFFSET


async def store_outage(world: "World") -> None:
    world.happened("store outage")
    world.store.is_away = True
    await asyncio.sleep(world.chance.uniform(0.5, 9.0))
    world.store.is_away = False


async def store_full(world: "World") -> None:
    """Nothing can be written; what is there is read."""
    world.happened("store full")
    world.store.is_full = True
    await asyncio.sleep(world.chance.uniform(1.0, 9.0))
    world.store.is_full = False


async def store_errors(world: "World") -> None:
    world.happened("store errors")
    world.store.errors_share = world.chance.uniform(0.05, 0.4)
    await asyncio.sleep(world.chance.uniform(1.0, 8.0))
    world.store.errors_share = 0.0


async def store_hides(world: "World") -> None:
    """Objects of a finished segment are not found for a while."""
    segments = list(world.watch.finished())
    if segments:
        names = world.watch.names_of(world.chance.choice(segments))
        some = world.chance.sample(names, world.chance.randint(1, len(names)))
        world.happened("404 after FINISHED", f"hidden: {some}")
        world.store.hide(some)
        await asyncio.sleep(world.chance.uniform(0.5, 8.0))
        world.store.show()


async def store_loses(world: "World") -> None:
    """Objects of a finished segment are gone for good, which every in-sync broker still has."""
    for _ in range(40):
        if not world.trim_is_near():
            break
        await asyncio.sleep(0.05)
    else:
        return
    topic_id = world.cluster.topic_id
    lowest = max(one.replica.log_start for one in world.cluster.brokers.values())
    segments = [
        one
        for one in world.watch.finished()
        if one.start_offset >= lowest and one.segment_id.topic_id_partition.topic_id == topic_id
    ]
    if segments:
        segment = world.chance.choice(segments)
        world.damaged.add(segment.segment_id.id)
        names = world.watch.names_of(segment)
        some = world.chance.sample(names, world.chance.randint(1, len(names)))
        world.happened("404 after FINISHED", f"lost: {some}")
        for name in some:
            world.store.objects.pop(name, None)


async def clock_jump(world: "World") -> None:
    services = list(world.services.values())
    leads = [one for one in services if one.broker.node_id == world.cluster.partition.leader]
    among = leads if leads and world.chance.random() < 0.5 else services
    service = world.chance.choice(among)
    jump_ms = world.chance.choice((-_YEAR_MS, -90_000, 90_000, _YEAR_MS, _YEAR_MS, _YEAR_MS))
    service.clock.wall_ahead_ms = jump_ms
    world.happened("clock jump", f"{service.process.name} {jump_ms} ms")
    await asyncio.sleep(world.chance.uniform(1.0, 15.0))
    service.clock.wall_ahead_ms = 0


async def lost_acks(world: "World") -> None:
    topics = world.topics
    before = dict(topics.counts)
    if world.chance.random() < 0.5:
        topics.only_of = _FINISHED
    topics.lost_acks = world.chance.uniform(0.1, 0.5)
    topics.late_appends = world.chance.uniform(0.1, 0.5)
    await asyncio.sleep(world.chance.uniform(2.0, 10.0))
    topics.lost_acks = topics.late_appends = 0.0
    topics.only_of = None
    for name, count in topics.counts.items():
        for _ in range(count - before[name]):
            world.happened(name)


async def deletion_faults(world: "World") -> None:
    cluster, before = world.cluster, dict(world.cluster.counts)
    cluster.deletion_faults = world.chance.uniform(0.3, 1.0)
    await asyncio.sleep(world.chance.uniform(4.0, 15.0))
    cluster.deletion_faults = 0.0
    for name, count in cluster.counts.items():
        for _ in range(count - before[name]):
            world.happened(name)


async def slow_network(world: "World") -> None:
    processes = [one.process for one in world.cluster.brokers.values()]
    processes += [one.process for one in world.services.values()]
    process = world.chance.choice([*processes, world.topics.kafka, world.store.process])
    world.network.slow_until[process.name] = world.loop.time() + world.chance.uniform(1.0, 8.0)
    world.happened("slow network", process.name)


async def lagging_view(world: "World") -> None:
    service = world.chance.choice(list(world.services.values()))
    service.log.lags_until_s = world.loop.time() + world.chance.uniform(1.0, 8.0)
    world.happened("lagging view", service.process.name)


async def late_manifests(world: "World") -> None:
    world.store.late_writes_share = world.chance.uniform(0.3, 1.0)
    world.happened("late manifests")
    await asyncio.sleep(world.chance.uniform(1.0, 4.0))
    world.store.late_writes_share = 0.0


async def delete_records(world: "World") -> None:
    """A client ends the first records, and asks until it has an answer."""
    leader = world.cluster.leader
    life = world.known_topics.current
    first = life.ends.readable_from
    if leader is None or leader.replica.high_watermark <= first:
        return
    most = max(1, (leader.replica.high_watermark - first) // 3)
    offset = first + world.chance.randint(1, most)
    life.ends.ask(offset)
    world.happened("client DeleteRecords", f"up to {offset}")
    for _ in range(6):
        if world.known_topics.current is not life:
            return
        if await world.ask_deletion(offset):
            return
        await asyncio.sleep(1)


EVENTS: tuple[Event, ...] = (
    pause_service,
    pause_in_copy,
    kill_in_copy,
    pause_in_cleanup,
    pause_broker,
    kill_service,
    kill_broker,
    clean_election,
    unclean_election,
    cut_off_follower,
    compaction,
    ledger_loss,
    store_outage,
    store_full,
    store_errors,
    store_hides,
    store_loses,
    clock_jump,
    lost_acks,
    deletion_faults,
    slow_network,
    lagging_view,
    late_manifests,
    delete_records,
)
