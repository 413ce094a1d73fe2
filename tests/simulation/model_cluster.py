"""Brokers of one partition: replication, high watermark, ISR, elections clean and unclean.

The controller's truth (`partition`, `topic_id`) reaches each broker some time later: until then a
deposed leader answers as leader (H5), and a topic that was deleted is there (H7). A follower
truncates to its leader's log before it follows. A topic that is created under the name of a deleted
one has another id, and logs of its own (H39).
"""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kip405.errors import Fenced, NotFound, Unavailable
from kip405.ids import Uuid
from rlm.broker.answers import PartitionDescription
from tests.builders.log_dir import TOPIC_ID
from tests.simulation.clock import SimulatedClock
from tests.simulation.loop import Process
from tests.simulation.model_broker import RECORDS, Batch, Replica
from tests.simulation.network import Network

NO_LEADER = -1
LAG_MAX_S = 2.0
Deleted = Callable[["Broker", int], None]
Elected = Callable[["Broker | None", "Broker"], None]


class Broker:
    """One broker: its process, its log, and what it knows of the topic and its leadership.

    `topic_id`: of the topic that has the name as far as it knows, None = none has.
    """

    def __init__(self, node_id: int, replica: Replica, partition: PartitionDescription) -> None:
        self.node_id = node_id
        self.replicas = {replica.topic_id: replica}
        self.replica = replica
        """Of the topic that it knows, else of the one that it knew last."""
        self.topic_id: Uuid | None = replica.topic_id
        self.metadata_lags_until_s = 0.0
        self.is_unaware = False
        """Its metadata is as it was before the topic was created (H7)."""
        self.process = Process(f"broker {node_id}")
        self.known = partition
        self.epoch_start = 0
        self.cut_off_until_s = 0.0
        self.caught_up_s = 0.0
        self.is_following = False

    @property
    def is_up(self) -> bool:
        return not self.process.is_dead

    @property
    def leads(self) -> bool:
        """Whether it is the leader as far as it knows."""
        return self.known.leader == self.node_id

    @property
    def has_read_metadata(self) -> bool:
        """Whether it has read the cluster's metadata since it was started."""
        return self.known.leader_epoch >= 0

    def check_topic(self) -> None:
        """Unavailable before it has read its metadata; NotFound where it knows no such topic."""
        if not self.has_read_metadata:
            raise Unavailable("the broker does not know the topic yet")
        if self.topic_id is None or self.is_unaware:
            raise NotFound("UNKNOWN_TOPIC_OR_PARTITION (3)")

    def check_epoch(self, leader_epoch: int) -> None:
        """Kafka's checks of a request that names the leader's epoch."""
        self.check_topic()
        if not self.leads:
            raise Fenced("NOT_LEADER_OR_FOLLOWER (6)")
        if leader_epoch != -1 and leader_epoch != self.known.leader_epoch:
            raise Fenced("FENCED_LEADER_EPOCH (74)")


class Cluster:
    """`before_delete(broker, offset)` is called right before a broker executes a DeleteRecords,
    `after_election(former, leader)` when the controller has elected one; None = none led before.
    """

    def __init__(self, network: Network, chance: random.Random, folder: Path, nodes: int) -> None:
        self.network = network
        self.loop = network.loop
        self._chance = chance
        self._folder = folder
        self.topic_id: Uuid | None = TOPIC_ID
        self.clock = SimulatedClock(self.loop)
        self.min_isr = 2 if nodes > 2 else 1
        ids = tuple(range(1, nodes + 1))
        self.partition = PartitionDescription(
            partition=0, leader=1, leader_epoch=0, replicas=ids, isr=ids
        )
        self.brokers = {
            one: Broker(one, self._new_replica(one, TOPIC_ID), self.partition) for one in ids
        }
        for broker in self.brokers.values():
            self.loop.add(broker.process)
        self.brokers[1].replica.begin_epoch(0)
        self.before_delete: Deleted = lambda _broker, _offset: None
        self.after_election: Elected = lambda _former, _leader: None
        self.config = {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "remote.storage.enable": "false",
        }
        self.denied: frozenset[Uuid | None] = frozenset()
        self.hidden: frozenset[Uuid | None] = frozenset()
        """Topics that the services may not see now: refused, or left out of answers (H7)."""
        self._contents = 0
        self.deletion_faults = 0.0
        self.in_flight: list[Process] = []
        """Of each DeleteRecords that was sent and is not executed yet, the broker's process."""
        self.counts = {"late DeleteRecords": 0, "lost DeleteRecords answer": 0}

    def deletion_fault(self) -> str:
        """What happens to the next DeleteRecords."""
        if self._chance.random() >= self.deletion_faults:
            return ""
        fault = self._chance.choice(("late", "late", "lost answer", "timed out"))
        self.counts["late DeleteRecords"] += fault == "late"
        self.counts["lost DeleteRecords answer"] += fault == "lost answer"
        return fault

    @property
    def may_delete_yet(self) -> bool:
        """Whether a DeleteRecords that was sent may still be executed."""
        return any(not process.is_gone for process in self.in_flight)

    def late_deletion_s(self, drain_ms: int) -> float:
        """How late a broker that runs executes what it has read."""
        return self._chance.uniform(0.3, drain_ms / 1000 * 0.8)

    @property
    def leader(self) -> Broker | None:
        """The elected leader, once it knows that it is, while it is up."""
        broker = self.brokers.get(self.partition.leader)
        knows = broker is not None and self._is_current(broker)
        return broker if broker is not None and broker.is_up and knows else None

    def _is_current(self, broker: Broker) -> bool:
        """Whether the broker knows what the controller has decided last."""
        epoch = self.partition.leader_epoch
        return broker.topic_id == self.topic_id and broker.known.leader_epoch == epoch

    def _log_end(self, node_id: int) -> int:
        """Of the present topic's replica, also where the broker does not know of it yet."""
        assert self.topic_id is not None
        return self.brokers[node_id].replicas[self.topic_id].end

    def _new_replica(self, node_id: int, topic_id: Uuid) -> Replica:
        return Replica(self._folder / f"broker{node_id}", node_id, topic_id, self._chance)

    # Topics that are deleted and created.

    def delete_topic(self) -> None:
        """The controller deletes the topic; the brokers learn of it one by one."""
        self.topic_id = None
        self.partition = replace(self.partition, leader=NO_LEADER)
        self._announce()

    def create_topic(self, topic_id: Uuid) -> bool:
        """The controller creates a topic of the same name, with other ids of everything; False
        while no broker is there to lead it.
        """
        alive = tuple(one.node_id for one in self.brokers.values() if one.is_up)
        if not alive:
            return False
        for broker in self.brokers.values():
            broker.replicas[topic_id] = self._new_replica(broker.node_id, topic_id)
        self.topic_id = topic_id
        self.partition = PartitionDescription(
            partition=0,
            leader=self._chance.choice(alive),
            leader_epoch=0,
            replicas=self.partition.replicas,
            isr=alive,
        )
        self._announce()
        return True

    def _announce(self) -> None:
        for broker in self.brokers.values():
            self._learn_later(broker)

    # Producing and replication.

    def produce(self) -> None:
        """One batch to the leader, if it takes it (min.insync.replicas)."""
        broker = self.leader
        if broker is None or broker.process.is_paused or len(self.partition.isr) < self.min_isr:
            return
        self._contents += 1
        replica = broker.replica
        replica.append(
            Batch.new(replica.end, broker.known.leader_epoch, self._contents, self.clock.now_ms())
        )
        self._advance(broker)
        self.wake_followers()

    def wake_followers(self) -> None:
        for broker in self.brokers.values():
            if broker.node_id != self.partition.leader:
                self._follow_later(broker)

    def _follow_later(self, broker: Broker, least_s: float = 0.0) -> None:
        if broker.is_following or not broker.is_up:
            return
        broker.is_following = True
        delay_s = least_s + self.network.delay_s(broker.process.name) * 4
        self.loop.call_later(delay_s, self._follow, broker, context=broker.process.context)

    def _follow(self, broker: Broker) -> None:
        broker.is_following = False
        if not broker.is_up or broker.node_id == self.partition.leader:
            return
        leader = self.leader
        is_cut_off = self.loop.time() < broker.cut_off_until_s
        knows = self._is_current(broker)
        if leader is None or leader.process.is_paused or is_cut_off or not knows:
            self._follow_later(broker, 0.4)
            return
        _copy(leader.replica, broker.replica)
        broker.caught_up_s = self.loop.time()
        is_out = broker.node_id not in self.partition.isr
        if is_out and broker.replica.end >= leader.replica.high_watermark:
            self._set_isr({*self.partition.isr, broker.node_id})
        before = leader.replica.high_watermark
        self._advance(leader)
        if leader.replica.high_watermark > before:
            self.wake_followers()

    def _advance(self, leader: Broker) -> None:
        ends = [self._log_end(one) for one in self.partition.isr]
        agreed = [one for one in ends if one <= leader.replica.end]
        replica = leader.replica
        if len(agreed) == len(ends):
            replica.high_watermark = max(replica.high_watermark, min(agreed))

    def check_isr(self) -> None:
        """Replicas that lag or are down leave the ISR (called now and then)."""
        leader = self.leader
        if leader is None or leader.process.is_paused:
            return
        now = self.loop.time()
        kept = {
            one
            for one in self.partition.isr
            if one == leader.node_id
            or (
                self.brokers[one].is_up
                and (
                    self._log_end(one) >= leader.replica.end
                    or now - self.brokers[one].caught_up_s < LAG_MAX_S
                )
            )
        }
        if kept != set(self.partition.isr):
            self._set_isr(kept)
            self._advance(leader)
            self.wake_followers()

    def _set_isr(self, isr: set[int]) -> None:
        self.partition = replace(self.partition, isr=tuple(sorted(isr)))
        for broker in self.brokers.values():
            if self._is_current(broker):
                broker.known = self.partition

    # Elections.

    def elect(self, node_id: int, *, isr: tuple[int, ...] | None = None) -> None:
        """The controller makes this broker the leader; the brokers learn of it one by one."""
        former = self.brokers.get(self.partition.leader)
        self.partition = replace(
            self.partition,
            leader=node_id,
            leader_epoch=self.partition.leader_epoch + 1,
            isr=self.partition.isr if isr is None else isr,
        )
        self.after_election(former, self.brokers[node_id])
        self._announce()

    def elect_from_isr(self) -> bool:
        """A clean election among the other live members of the ISR; whether there was one."""
        able = [
            one
            for one in self.partition.isr
            if one != self.partition.leader and self.brokers[one].is_up
        ]
        if not able or self.topic_id is None:
            return False
        self.elect(self._chance.choice(able))
        return True

    def _learn_later(self, broker: Broker) -> None:
        delay_s = self._chance.choice((0.01, 0.05, 0.3, 1.5)) * self._chance.random()
        delay_s = max(delay_s, broker.metadata_lags_until_s - self.loop.time())
        self.loop.call_later(delay_s, self._learn, broker, context=broker.process.context)

    def _learn(self, broker: Broker) -> None:
        if not broker.is_up:
            return
        if self.loop.time() < broker.metadata_lags_until_s:
            return self._learn_later(broker)
        if broker.topic_id != self.topic_id:
            self._take_topic(broker)
        elif broker.known.leader_epoch >= self.partition.leader_epoch:
            return
        broker.known = self.partition
        if broker.leads:
            broker.replica.begin_epoch(broker.known.leader_epoch)
            broker.epoch_start = broker.replica.end
            for other in self.brokers.values():
                other.caught_up_s = self.loop.time()
            self._advance(broker)
        self.wake_followers()

    def _take_topic(self, broker: Broker) -> None:
        """A broker learns that the name belongs to another topic now, or to none."""
        broker.replica.remove_files()
        broker.topic_id = self.topic_id
        if self.topic_id is not None:
            broker.replica = broker.replicas[self.topic_id]
            broker.epoch_start = 0

    def stop(self, broker: Broker) -> None:
        """The broker's process dies."""
        self.loop.remove(broker.process)
        broker.is_following = False

    def start(self, broker: Broker, *, has_lost_power: bool) -> None:
        """It comes back with what its disk has."""
        broker.process = Process(broker.process.name)
        self.loop.add(broker.process)
        broker.replica.restart(has_lost_power=has_lost_power)
        broker.known = replace(broker.known, leader=NO_LEADER, leader_epoch=-1)
        if self.partition.leader == broker.node_id:
            self.elect(broker.node_id)
        else:
            self._learn_later(broker)

    # Requests that change or show the log, executed by the broker.

    def delete_records(self, broker: Broker, offset: int) -> int:
        """No epoch is checked (H5); the low watermark."""
        broker.check_topic()
        if not broker.leads:
            raise Fenced("NOT_LEADER_OR_FOLLOWER (6)")
        if offset > broker.replica.high_watermark:
            raise Fenced("OFFSET_OUT_OF_RANGE (1)")
        if offset > broker.replica.log_start:
            self.before_delete(broker, offset)
            broker.replica.trim(offset)
            self.wake_followers()
        return broker.replica.log_start

    def latest(self, broker: Broker) -> int:
        """ListOffsets latest, as a new leader answers it."""
        replica = broker.replica
        if replica.high_watermark < broker.epoch_start:
            raise Unavailable("OFFSET_NOT_AVAILABLE (78)")
        return replica.high_watermark


def _copy(leader: Replica, follower: Replica) -> None:
    """What fetching from the leader does to a follower's log."""
    theirs, mine = leader.history, follower.history
    common = min(len(theirs), len(mine))
    while common and mine[common - 1] is not theirs[common - 1]:
        common -= 1
    if common * RECORDS < len(mine) * RECORDS and common * RECORDS >= follower.log_start:
        follower.truncate(common * RECORDS)
    elif common < len(mine) or follower.end < leader.log_start:
        at = leader.log_start // RECORDS
        follower.start_over(leader.log_start, theirs[:at])
    follower.forget_empty_epochs()
    for one in theirs[len(follower.history) :]:
        follower.append(one)
    follower.high_watermark = min(leader.high_watermark, follower.end)
    follower.trim(leader.log_start)
