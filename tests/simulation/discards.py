"""`rlm partition discard` of a partition that froze because its leader's log diverged (H4): the
decision, its undo, and other leaders meanwhile; and what it may delete.

A decision is about one log: that of the leader beside whom it was made. The truth about logs is the
model's own: two logs are the same where the later one has every batch that the other had. What is
remote may go once the delay is over, while such a log leads; what lies below its start is then in
no tier.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kip405.errors import RemoteStorageError
from kip405.ids import PartitionKey
from rlm.topics.discards import Discards as OperatorDiscards
from tests.simulation.decisions import leading
from tests.simulation.invariants import Broken
from tests.simulation.known_topics import TopicLife
from tests.simulation.model_broker import RECORDS, Batch, Replica
from tests.simulation.model_cluster import Broker, Cluster
from tests.simulation.model_service import DELETE_DELAY_MS

if TYPE_CHECKING:
    from tests.simulation.world import World

_BY = "an operator"
_OVERTAKEN_S = 20.0
"""So long after another log began to lead, a service that was paused may carry out its step."""
_UNSEEN_S = 1.0
"""So long it may begin, as it did not see the other log yet."""
_REFUSED_S = 20.0
"""An operator takes a decision back that was not carried out this long after it was due."""


@dataclass(slots=True)
class Decided:
    """A decision on record. `epoch`, `history`: of the leader whose log it is about;
    `other_since_s`: since when another log leads, None = it does not; `copies`: objects of
    segments that were finished.
    """

    decided_ms: int
    epoch: int
    history: Sequence[Batch]
    log_start: int
    copies: frozenset[str]
    has_begun: bool = False
    other_since_s: float | None = None

    def is_of(self, replica: Replica) -> bool:
        """Whether this log has all that the operator saw, and what follows came later."""
        first, end = self.log_start // RECORDS, len(self.history)
        seen = [one.content for one in self.history[first:]]
        has_all = [one.content for one in replica.history[first:end]] == seen
        return has_all and all(one.epoch >= self.epoch for one in replica.history[end : end + 1])


class Discards:
    """What was decided of one topic's partition, as the settings topic has it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.pending: dict[PartitionKey, Decided] = {}
        self._begun: dict[PartitionKey, Decided] = {}

    def decide(self, life: TopicLife, decider: Broker, copies: Sequence[str]) -> None:
        """The first record of a decision is about to be appended. `copies`: see Decided."""
        replica = decider.replicas[life.topic_id]
        self.pending[life.key] = Decided(
            decided_ms=self._cluster.clock.now_ms(),
            epoch=decider.known.leader_epoch,
            history=tuple(replica.history),
            log_start=replica.log_start,
            copies=frozenset(copies),
        )
        self.see_leader()

    def see_leader(self) -> None:
        """Somebody was elected, or a log was cut."""
        leader = self._cluster.brokers.get(self._cluster.partition.leader)
        for key, decided in self.pending.items():
            if leader is None or key.topic_id != self._cluster.topic_id:
                continue
            if decided.is_of(leader.replicas[key.topic_id]):
                decided.other_since_s = None
            elif decided.other_since_s is None:
                decided.other_since_s = self._cluster.loop.time()

    def may_go(self, life: TopicLife) -> bool:
        """Whether a part of what is remote may be deleted now, by the decision on record."""
        decided = self.pending.get(life.key)
        if decided is None:
            return False
        self.see_leader()
        now_ms, now_s = self._cluster.clock.now_ms(), self._cluster.loop.time()
        since_s = decided.other_since_s
        limit_s = _OVERTAKEN_S if decided.has_begun else _UNSEEN_S
        is_led = since_s is None or now_s - since_s < limit_s
        return is_led and now_ms - decided.decided_ms >= DELETE_DELAY_MS

    def check_waits(self, life: TopicLife, name: str) -> None:
        """Right before an object goes that may not go by a decision: it is no part of one."""
        decided = self.pending.get(life.key)
        if decided is not None and decided.other_since_s is None and name in decided.copies:
            raise Broken(f"early deletion: {name} was discarded, and the delay is not over")

    def begin(self, life: TopicLife) -> None:
        """Something is about to be deleted: what lies below the log that stays may be gone."""
        decided = self.pending[life.key]
        decided.has_begun = True
        self._begun[life.key] = decided
        replicas = (one.replicas[life.topic_id] for one in self._cluster.brokers.values())
        starts = [one.log_start for one in replicas if decided.is_of(one)]
        life.ends.ask(max(starts, default=0))
        self.check_other_log(life)

    def check_other_log(self, life: TopicLife) -> None:
        """Where another log leads, what was deleted is missing below any log's start."""
        decided = self.pending.get(life.key)
        if decided is not None and decided.has_begun:
            self.see_leader()
            if decided.other_since_s is not None:
                life.ends.ask(life.ends.trimmed)

    def see_other(self, life: TopicLife, broker: Broker) -> None:
        """Of a log that leads instead of the one that stayed, what was trimmed is given up."""
        decided, replica = self._begun.get(life.key), broker.replicas[life.topic_id]
        if decided is not None and not decided.is_of(replica):
            life.ends.ask(replica.log_start)

    def end(self, life: TopicLife, left: Sequence[str]) -> str:
        """The decision is removed; what happened. `left`: objects of finished segments. Broken: it
        was taken back when a part was gone.
        """
        self.check_other_log(life)
        decided = self.pending.pop(life.key)
        if not decided.has_begun:
            return "discard undone"
        if left and decided.other_since_s is None:
            raise Broken(f"a discard was taken back midway, and {left} are left")
        return "discard stopped midway" if left else "discarded"


async def discarded(world: "World", chance: random.Random) -> None:
    """A log diverges, and what is remote is given up; perhaps that is taken back, or another log
    leads before it is carried out.
    """
    life = world.known_topics.current
    away = await _diverge(world, chance)
    is_decided = await _decide(world, life)
    await asyncio.sleep(chance.uniform(0.0, 5.0))
    _come_back(world, away, chance)
    if is_decided and chance.random() < 0.3:
        await asyncio.sleep(chance.uniform(0.0, 4.0))
        await undo(world)


async def _diverge(world: "World", chance: random.Random) -> list[Broker]:
    """A broker that has fallen behind, or lost its disk, is all that is left, and leads; the others
    are away, with their logs.
    """
    cluster, topic_id = world.cluster, world.known_topics.current.topic_id
    able = [one for one in cluster.brokers.values() if one.is_up]
    start = world.known_topics.view.remote_log_start(PartitionKey(topic_id, 0))
    if not able or cluster.topic_id != topic_id or start is None:
        return []
    broker = chance.choice(able)
    is_emptied = len(able) == 1 or chance.random() < 0.6
    if not is_emptied:
        broker.cut_off_until_s = world.loop.time() + 60
        await asyncio.sleep(chance.uniform(5.0, 9.0))
        broker.cut_off_until_s = 0.0
    able = [one for one in cluster.brokers.values() if one.is_up]
    if broker not in able or cluster.topic_id != topic_id:
        return []
    for one in able:
        cluster.stop(one)
    had_service = world.services[broker.node_id].is_up
    if had_service:
        world.kill_service(broker.node_id)
    await asyncio.sleep(chance.uniform(0.2, 1.0))
    if is_emptied:
        broker.replicas[topic_id].start_over(0, [])
    _lead(world, broker)
    world.happened("emptied disk leads" if is_emptied else "unclean election", broker.process.name)
    if had_service:
        world.start_service(broker.node_id)
    return [one for one in able if one is not broker]


def _lead(world: "World", broker: Broker) -> None:
    """A broker that was away comes back and leads, whatever the others had."""
    cluster = world.cluster
    if cluster.partition.leader != broker.node_id:
        cluster.elect(broker.node_id, isr=(broker.node_id,))
    cluster.start(broker, has_lost_power=False)


def _come_back(world: "World", away: Sequence[Broker], chance: random.Random) -> None:
    """They follow, or one of them leads with the log that led before."""
    has_topic = world.cluster.topic_id is not None
    former = chance.choice(away) if away and has_topic and chance.random() < 0.7 else None
    for broker in away:
        if broker is former:
            _lead(world, broker)
            world.happened("former log leads", broker.process.name)
        else:
            world.cluster.start(broker, has_lost_power=False)


async def _decide(world: "World", life: TopicLife) -> bool:
    """`rlm partition discard --yes`, as soon as the partition is frozen; whether that was."""
    for _ in range(40):
        await asyncio.sleep(0.3)
        service = leading(world)
        if world.known_topics.current is not life or life.deleted_ms is not None:
            return False
        if service is None or service.discards is None or not service.is_frozen(life.key):
            continue
        try:
            plan = await service.call(service.discards.decide(life.key, by=_BY))
        except RemoteStorageError as error:
            world.say(f"not discarded: {error}")
            continue
        if plan is not None:
            world.happened("partition discard", f"{plan}")
            return True
    return False


async def undo(world: "World") -> None:
    """`rlm deletions undo -p`."""
    service, life = leading(world), world.known_topics.current
    if service is None or service.discards is None:
        return
    try:
        answer = await service.call(_undone(service.discards, life))
    except RemoteStorageError as error:
        return world.say(f"not undone: {error}")
    if answer is not None:
        world.happened("discard taken back")
    if answer is not None and life.key in world.discards.pending:
        world.fail(Broken("a discard that was taken back is on record"))


async def _undone(operator: OperatorDiscards, life: TopicLife) -> bool:
    await operator.undo(life.key)
    return True


async def undo_refused(world: "World") -> None:
    """In peace, an operator takes back what is due and does not begin: another log leads."""
    decided = world.discards.pending.get(world.known_topics.current.key)
    if decided is not None:
        age_ms = world.cluster.clock.now_ms() - decided.decided_ms
        if age_ms > DELETE_DELAY_MS + _REFUSED_S * 1000:
            await undo(world)
