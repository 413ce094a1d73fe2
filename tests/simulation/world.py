"""One simulated cluster and its services, from a seed: chaos for a while, then peace, then a check.

Everything random comes from the seed. This module builds the models, and has what events and checks
ask of them; seeds.py runs it.
"""

import asyncio
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from kip405.errors import RemoteStorageError
from kip405.ids import Uuid
from kip405.segments import RemoteLogSegmentState
from rlm.config import ServiceConfig
from rlm.plans.discard import BEGUN
from rlm.tasks.discard import CAUSE_DISCARDED
from rlmm.log_reader import TailRecord
from rlmm.publisher import Record
from rlmm.records import LedgerRecord, PartitionDeleteRecord
from rlmm.settings_codec import decode_settings_record, encode_settings_record
from rlmm.settings_records import (
    CAUSE_COMMAND,
    CAUSE_RETENTION,
    ClusterRecord,
    DiscardRecord,
    SettingsRecord,
    Stamp,
    StartRecord,
    TopicRecord,
    TotalRetention,
)
from tests.builders.log_dir import CLUSTER_ID, TOPIC
from tests.simulation import events, peace, stories
from tests.simulation.audit import Audit
from tests.simulation.broker_client import LEDGER_ID, SETTINGS_ID
from tests.simulation.consumer import Consumer, Kind
from tests.simulation.deleter import delete_records
from tests.simulation.discards import Discards
from tests.simulation.ends import UNLIMITED, Ends
from tests.simulation.frozen import FreezeWatch
from tests.simulation.invariants import Broken, Watch, decoded, parsed
from tests.simulation.known_topics import KnownTopics, TopicLife
from tests.simulation.loop import VirtualTimeLoop
from tests.simulation.model_broker import BATCH_BYTES, RECORDS
from tests.simulation.model_cluster import Broker, Cluster
from tests.simulation.model_log import ModelTopics, NodeState
from tests.simulation.model_service import LEDGER, SETTINGS, Service
from tests.simulation.model_store import ModelStore
from tests.simulation.network import Network

CHAOS_S = 16.0
_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_DELETED = (
    RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
    RemoteLogSegmentState.DELETE_SEGMENT_FINISHED,
)
_OPERATOR = Uuid(b"\x0e" * 16)
_CAUSE_DISABLED = f"{CAUSE_COMMAND}: disable --delete"
_START_KEY = f"{StartRecord.KIND}/".encode()


class World:
    """All models of one run, and what the events do to them."""

    def __init__(self, seed: int, folder: Path, config: ServiceConfig) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.loop = VirtualTimeLoop(random.Random(self.chance.getrandbits(64)))
        self.loop.set_exception_handler(self._crashed)
        self._config = config
        self.network = Network(self.loop, self.chance)
        self.topics = ModelTopics(self.network, self.chance)
        self.store = ModelStore(self.network, self.chance)
        nodes = self.chance.choice((1, 3, 3, 3))
        self.cluster = Cluster(self.network, self.chance, folder, nodes)
        self.services: dict[int, Service] = {}
        self.consumer = Consumer(self.cluster, self.services)
        self.watch = Watch(self.topics, self.store)
        self.counts: Counter[str] = Counter()
        self.trace: list[str] = []
        self.failure: BaseException | None = None
        self.is_chaos = True
        topic_chance = stories.chance_of(seed)
        self.stories = stories.drawn_by(topic_chance)
        self.story: random.Random | None = topic_chance if self.stories else None
        """The chance of the stories, None where there is none."""
        if self.stories:
            reenable = topic_chance.choice(("ask", "same-name"))
            self._config = replace(config, topics_reenable=reenable)
        self.known_topics = KnownTopics.first(self.topics, Ends(_retention(self.chance)))
        self.discards = Discards(self.cluster)
        self.freezes = FreezeWatch(self.cluster, self.services)
        self.cluster.after_election = self._elected
        self.chaos_s = CHAOS_S
        self.begun: list[asyncio.Future[Uuid]] = []
        """Each gets the writer of the next copy that begins."""
        self._numbers = iter(range(1, 1_000))
        self.cluster.before_delete = self._before_trim
        self.store.before_delete = self._before_object_goes
        self.store.after_put = self._stored
        self.topics.before_append = self._before_append
        self.damaged: set[Uuid] = set()
        """Segments of which the store itself lost an object: an operator decides about them."""
        self.zombie_objects: set[str] = set()
        """Stored after their attempt had been swept: what a zombie had sent before."""
        self._writers: dict[Uuid, Service] = {}
        self._audit = Audit(self.happened)

    @property
    def ends(self) -> Ends:
        """Of the topic that has the name, or had it last."""
        self.discards.check_other_log(self.known_topics.current)
        return self.known_topics.current.ends

    # What happens, and what was said about it.

    def say(self, text: str) -> None:
        self.trace.append(f"{self.loop.time():9.3f}  {text}")

    def happened(self, event: str, detail: str = "") -> None:
        self.counts[event] += 1
        self.say(f"** {event} {detail}")

    def fail(self, error: BaseException) -> None:
        """The first broken invariant counts."""
        if self.failure is None:
            self.say(f"!! {error!r}")
            self.failure = error

    def _crashed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.fail(context.get("exception") or Broken(context["message"]))

    def _elected(self, former: Broker | None, leader: Broker) -> None:
        self.discards.see_leader()
        topic_id = self.cluster.topic_id
        if topic_id is None:
            return
        self.discards.see_other(self.known_topics.of(topic_id), leader)
        if former is None:
            return
        if leader.replicas[topic_id].has_other_bases(former.replicas[topic_id]):
            self.happened("follower with other segment boundaries", leader.process.name)

    def _before_trim(self, broker: Broker, offset: int) -> None:
        self.say(f"broker {broker.node_id} deletes {broker.replica.log_start}..{offset}")
        self._checked(lambda: self.freezes.check(f"what is below {offset} at a broker"))
        self.known_topics.of(broker.replica.topic_id).ends.trim(offset)
        if broker.topic_id == self.cluster.topic_id:
            self._checked(lambda: self.watch.check_trim(broker, offset, self.ends.readable_from))

    def _before_object_goes(self, name: str) -> None:
        life = self.known_topics.of(parsed(name).topic_id)
        leader = self.cluster.brokers.get(self.cluster.partition.leader)
        self._checked(lambda: self.freezes.check(name))
        if life.deleted_ms is not None:
            self._checked(lambda: self._check_end(name, life))
        elif life.has_begun and self.known_topics.may_go(life):
            return
        elif self.discards.may_go(life):
            self.discards.begin(life)
        elif leader is not None:
            replica = leader.replicas[life.topic_id]
            history, log_start = replica.history, replica.log_start
            start = life.ends.readable_from
            self._checked(lambda: self.discards.check_waits(life, name))
            self._checked(lambda: self.watch.check_deletion(name, history, log_start, start))

    def _check_end(self, name: str, life: TopicLife) -> None:
        """Of a deleted topic, whose log is nowhere any more, a whole copy goes when it may, also by
        the discard of a partition that was due before.
        """
        may_go = self.known_topics.may_go(life) or self.discards.may_go(life)
        if self.watch.whole(name) is not None and not may_go:
            end = len(life.history) * RECORDS
            self.watch.check_deletion(name, life.history, end, life.ends.readable_from)

    def _stored(self, name: str) -> None:
        segment_id = parsed(name).segment_id
        known = {one.segment_id.id for one in self.watch.segments() if one.state not in _DELETED}
        if segment_id not in known:
            self.zombie_objects.add(name)
            self.happened("zombie upload", name)

    def _before_append(self, record: TailRecord) -> None:
        key = record.key or b""
        if key.startswith(_START_KEY) and record.value is not None:
            found = decode_settings_record(key, record.value)
            if found is not None and isinstance(found[0], StartRecord):
                self._start_published(found[0], found[1])
        if self.story is not None and record.topic_partition == SETTINGS:
            self._take_settings(record)
        if record.topic_partition == LEDGER and record.value is not None:
            one = decoded(record)
            if not isinstance(one, LedgerRecord):
                return self._take_deletion(one)
            self._check_finished(one)
            while one.state is _STARTED and self.begun:
                self.begun.pop().set_result(one.headers.writer)

    def _take_deletion(self, record: PartitionDeleteRecord) -> None:
        self.say(f"{record.metadata}")
        life = self.known_topics.of(record.partition.topic_id)
        has_begun = record.metadata is not None and record.metadata.state in BEGUN
        if has_begun and life.deleted_ms is None and self.known_topics.may_go(life):
            self.known_topics.begin_disabled_end(life)

    def _take_settings(self, record: TailRecord) -> None:
        self._checked(lambda: self._take_discard(record))
        ended, view = self.known_topics.has_ended(record), self.known_topics.view
        was_known = ended is not None and view.topic(ended.topic_id) is not None
        may_go = ended is not None and self.known_topics.may_go(ended)
        self._checked(lambda: self.known_topics.take(record))
        if ended is not None and was_known and view.topic(ended.topic_id) is None:
            self._checked(lambda: self._check_all_gone(ended, may_go=may_go))

    def _take_discard(self, record: TailRecord) -> None:
        """A decision to give up what is remote of a partition, or its end, or that of its start."""
        view, key = self.known_topics.view, record.key or b""
        for life in self.known_topics.all:
            is_start = key == f"{StartRecord.KIND}/{life.key}".encode()
            if is_start and record.value is None and view.discard(life.key) is not None:
                life.ends.begin_again()
            if key != f"{DiscardRecord.KIND}/{life.key}".encode():
                continue
            if record.value is None and life.key in self.discards.pending:
                left = [] if life.deleted_ms is not None else self._copies_left(life)
                self.happened(self.discards.end(life, left))
            elif record.value is not None and life.key not in self.discards.pending:
                found = decode_settings_record(key, record.value)
                assert found is not None
                self.discards.decide(
                    life, self._writers[found[1].writer].broker, self._copies_left(life)
                )

    def _copies_left(self, life: TopicLife) -> list[str]:
        """Objects of finished segments of a topic, but for what comes late."""
        finished = {one.segment_id.id for one in self.watch.finished()}
        names = self.store.objects.keys() - self.store.late_manifests - self.zombie_objects
        ours = (one for one in sorted(names) if parsed(one).topic_id == life.topic_id)
        return [one for one in ours if parsed(one).segment_id in finished]

    def _check_all_gone(self, life: TopicLife, *, may_go: bool) -> None:
        """Of a topic that stays in Kafka, when its settings go: so did all that is remote."""
        if not may_go:
            raise Broken(f"early end: the settings of {life.topic_id} are removed")
        self.happened("disabled topic ended", str(life.topic_id))
        left = self._copies_left(life)
        if left:
            raise Broken(f"objects {left} are left of what was to be deleted")
        life.ends.forget()

    def _start_published(self, record: StartRecord, stamp: Stamp) -> None:
        decider = self._writers.get(stamp.writer)
        life = self.known_topics.of(record.partition.topic_id)
        ends = life.ends
        if record.cause == _CAUSE_DISABLED and self.known_topics.may_go(life):
            self.known_topics.begin_disabled_end(life)
        if record.cause == CAUSE_DISCARDED and self.discards.may_go(life):
            self.discards.begin(life)
        before, now_ms = ends.published, self.topics.clock.now_ms()
        replica = None
        if decider is not None:
            replica = decider.broker.replicas[record.partition.topic_id]
        self._checked(lambda: ends.publish(record, replica, now_ms))
        if ends.published > before and record.cause == CAUSE_RETENTION:
            self.happened("expiry", f"up to {ends.published}")

    def _check_finished(self, one: LedgerRecord) -> None:
        """A FINISHED after a change of the leader epoch was checked after its upload (G3)."""
        expected, epoch = one.headers.expected_previous, one.headers.leader_epoch
        is_copy = one.state is _FINISHED and expected == int(_STARTED)
        if not is_copy or one.metadata is None:
            return
        is_current = one.key.partition.topic_id == self.cluster.topic_id
        if is_current and epoch == self.cluster.partition.leader_epoch:
            return
        names = self.watch.names_of(one.metadata)
        uploaded_s = max(
            self.store.put_s.get(name, -1.0) for name in names if "manifest" not in name
        )
        if self._writers[one.headers.writer].client.leadership_asked_s < uploaded_s:
            self.fail(Broken(f"unchecked FINISHED of epoch {epoch}: {one.metadata.segment_id}"))

    def _checked(self, check: Any) -> None:
        try:
            check()
        except Broken as error:
            self.fail(error)

    # Services.

    def start_service(self, node_id: int) -> None:
        """A new process beside the broker."""
        service = Service(
            self.cluster,
            self.topics,
            self.store,
            self.cluster.brokers[node_id],
            self.topics.states.setdefault(node_id, NodeState()),
            chance=self.chance,
            config=self._config,
            number=next(self._numbers),
            has_topic_work=self.story is not None,
            audit=self._audit,
        )
        self.services[node_id] = service
        self._writers[service.writer] = service
        service.start(self.fail)

    def kill_service(self, node_id: int) -> None:
        service = self.services[node_id]
        if service.log in self.topics.readers:
            self.topics.readers.remove(service.log)
        service.kill()

    def write(self, record: SettingsRecord) -> None:
        """A settings record by an operator, who waits for nothing."""
        stamp = Stamp(
            node_id=0,
            leader_epoch=self.cluster.partition.leader_epoch,
            writer=_OPERATOR,
            time_ms=self.topics.clock.now_ms(),
        )
        key, value = encode_settings_record(record, stamp)
        self.topics.append(Record(topic_partition=SETTINGS, key=key, value=value))

    def enable(self, retention: TotalRetention, *, trims: bool = True) -> None:
        """The topic is enabled, and this total retention in force, unless it is not there or its
        remote data is to be deleted.
        """
        current = self.known_topics.current
        found = self.known_topics.view.topic(current.topic_id)
        is_deleting = found is not None and found.state == "deleting"
        if self.cluster.topic_id is None or is_deleting or current.is_disabled:
            return
        self.write(
            TopicRecord(
                topic_id=self.cluster.topic_id,
                name=TOPIC,
                mode="tier",
                state="enabled",
                trim=trims,
                retention_ms=retention.retention_ms,
                retention_bytes=retention.retention_bytes,
                local_retention_ms=0,
                local_retention_bytes=-2,
                enforced=retention,
            )
        )

    @property
    def is_enabled(self) -> bool:
        """Whether the topic that has the name is enabled."""
        found = self.known_topics.view.topic(self.known_topics.current.topic_id)
        return self.story is None or (found is not None and found.state == "enabled")

    async def ask_deletion(self, offset: int) -> bool:
        """A client's DeleteRecords to the leader; whether it was answered without error, which
        proves that the remote log start has followed (H26).
        """
        leader, life = self.cluster.leader, self.known_topics.current
        service = self.services.get(leader.node_id) if leader else None
        if service is None or not service.is_up:
            return False
        is_enabled, decisions_before = self.is_enabled, life.times_disabled
        if not await service.call(
            delete_records(self.cluster, service, offset, self._delete_executed)
        ):
            return False
        is_decided = life.is_disabled or life.times_disabled > decisions_before
        if life.deleted_ms is not None or not is_enabled or is_decided:
            return True
        self.happened("client DeleteRecords answered", f"up to {offset}")
        if life.ends.published < offset:
            self.fail(Broken(f"DeleteRecords up to {offset} answered at {life.ends.published}"))
        return True

    def _delete_executed(self, offset: int) -> None:
        """A request that was on its way while the topic was recreated deletes of the new one."""
        self.known_topics.current.ends.ask(offset)

    def all_have_read(self) -> bool:
        """Whether every service is up and has read the ledger to its end."""
        end = self.topics.ends.get(LEDGER, 0)
        return all(one.is_up and one.log.position(LEDGER) == end for one in self.services.values())

    def trim_is_near(self) -> bool:
        """Whether a trim may rely on what was seen in the store a moment ago."""
        at_work = any(pool.running for one in self.services.values() for pool in one.pools[1:])
        return at_work or self.cluster.may_delete_yet

    # The run.

    async def run(self) -> None:
        self._begin_log()
        if self.story is not None:
            self.write(
                ClusterRecord(
                    cluster_id=CLUSTER_ID,
                    ledger_topic_id=LEDGER_ID,
                    settings_topic_id=SETTINGS_ID,
                )
            )
        self.enable(self.ends.retention)
        for node_id in self.cluster.brokers:
            self.start_service(node_id)
        async with asyncio.TaskGroup() as tasks:
            for work in (self._produce(), self._tick(), self._consume(), events.run(self)):
                tasks.create_task(work)
            if self.story is not None:
                tasks.create_task(stories.run(self, self.story, self.stories))
        await peace.make(self)
        await peace.check(self)
        for node_id in self.cluster.brokers:
            self.kill_service(node_id)
        await asyncio.sleep(10)

    def _begin_log(self) -> None:
        """In some seeds a user has deleted the first records before the topic is enabled (H2)."""
        if self.chance.random() < 0.5:
            return
        for _ in range(self.chance.randint(5, 20)):
            self.cluster.produce()
        replica = self.cluster.brokers[1].replica
        replica.high_watermark = replica.end
        self.ends.ask(self.chance.randint(1, replica.end - 1))
        self.ends.trim(self.ends.asked)
        replica.trim(self.ends.asked)
        replica.checkpointed_start = self.ends.asked

    async def _produce(self) -> None:
        while self.is_chaos:
            self.cluster.produce()
            await asyncio.sleep(self.chance.expovariate(3.0))
            self.raise_failure()

    async def _tick(self) -> None:
        """What a cluster does by itself: ISR, elections, checkpoints."""
        while self.is_chaos:
            await asyncio.sleep(0.5)
            peace.tick(self)

    async def _consume(self) -> None:
        offset = self.ends.asked
        while self.is_chaos:
            answer = await self.consumer.step(offset, self.ends)
            if answer.kind is Kind.RECORDS:
                offset = answer.next_offset
            if answer.kind is not Kind.RECORDS or self.chance.random() < 0.1:
                offset = self.chance.choice((offset, 0, self._somewhere()))
            await asyncio.sleep(self.chance.expovariate(2.0))

    def _somewhere(self) -> int:
        leader = self.cluster.leader
        end = leader.replica.high_watermark if leader else 0
        return self.chance.randint(0, end // RECORDS) * RECORDS

    def raise_failure(self) -> None:
        for service in self.services.values():
            for pool in service.pools:
                for failure in pool.last_errors.values():
                    if not isinstance(failure.error, RemoteStorageError):
                        self.fail(failure.error)
        if self.failure is not None:
            raise self.failure


def _retention(chance: random.Random) -> TotalRetention:
    """None in every other seed; else by time, by size, or by both."""
    if chance.random() < 0.5:
        return UNLIMITED
    retention_ms, retention_bytes = chance.choice(
        ((4_000, -1), (60_000, -1), (-1, 12 * BATCH_BYTES), (8_000, 30 * BATCH_BYTES))
    )
    return TotalRetention(retention_ms=retention_ms, retention_bytes=retention_bytes)
