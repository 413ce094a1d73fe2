"""One simulated cluster and its services, from a seed: chaos for a while, then peace, then a check.

Everything random comes from the seed. This module builds the models, and has what events and checks
ask of them; seeds.py runs it.
"""

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

from kip405.errors import RemoteStorageError
from kip405.ids import Uuid
from kip405.segments import RemoteLogSegmentState
from rlm.config import ServiceConfig
from rlmm.publisher import Record
from rlmm.records import LedgerRecord
from rlmm.settings_codec import decode_settings_record, encode_settings_record
from rlmm.settings_records import (
    CAUSE_RETENTION,
    SettingsRecord,
    Stamp,
    StartRecord,
    TopicRecord,
    TotalRetention,
)
from rlmm.tail import TailRecord
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.simulation import events, peace
from tests.simulation.consumer import Consumer, Kind
from tests.simulation.deleter import delete_records
from tests.simulation.ends import UNLIMITED, Ends
from tests.simulation.invariants import Broken, Watch, decoded, parsed
from tests.simulation.loop import VirtualTimeLoop
from tests.simulation.model_broker import BATCH_BYTES, RECORDS
from tests.simulation.model_cluster import Broker, Cluster
from tests.simulation.model_log import ModelTopics, NodeState
from tests.simulation.model_service import KEY, LEDGER, SETTINGS, Service
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
_START_KEY = f"{StartRecord.KIND}/{KEY}".encode()


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
        self.ends = Ends(_retention(self.chance))
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

    def _before_trim(self, broker: Broker, offset: int) -> None:
        self.say(f"broker {broker.node_id} deletes {broker.replica.log_start}..{offset}")
        self._checked(lambda: self.watch.check_trim(broker, offset, self.ends.readable_from))

    def _before_object_goes(self, name: str) -> None:
        leader = self.cluster.brokers.get(self.cluster.partition.leader)
        if leader is not None:
            self._checked(lambda: self.watch.check_deletion(name, leader, self.ends.readable_from))

    def _stored(self, name: str) -> None:
        segment_id = parsed(name).segment_id
        known = {one.segment_id.id for one in self.watch.segments() if one.state not in _DELETED}
        if segment_id not in known:
            self.zombie_objects.add(name)
            self.happened("zombie upload", name)

    def _before_append(self, record: TailRecord) -> None:
        if record.key == _START_KEY and record.value is not None:
            found = decode_settings_record(record.key, record.value)
            if found is not None and isinstance(found[0], StartRecord):
                self._start_published(found[0], found[1])
        if record.topic_partition == LEDGER and record.value is not None:
            one = decoded(record)
            self._check_finished(one)
            while one.state is _STARTED and self.begun:
                self.begun.pop().set_result(one.headers.writer)

    def _start_published(self, record: StartRecord, stamp: Stamp) -> None:
        decider = self._writers.get(stamp.writer)
        before, now_ms = self.ends.published, self.topics.clock.now_ms()
        broker = decider.broker if decider is not None else None
        self._checked(lambda: self.ends.publish(record, broker, now_ms))
        if self.ends.published > before and record.cause == CAUSE_RETENTION:
            self.happened("expiry", f"up to {self.ends.published}")

    def _check_finished(self, one: LedgerRecord) -> None:
        """A FINISHED after a change of the leader epoch was checked after its upload (G3)."""
        expected, epoch = one.headers.expected_previous, one.headers.leader_epoch
        is_copy = one.state is _FINISHED and expected == int(_STARTED)
        if not is_copy or epoch == self.cluster.partition.leader_epoch or one.metadata is None:
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

    def enable(self, retention: TotalRetention) -> None:
        """The topic is enabled, and this total retention in force."""
        self.write(
            TopicRecord(
                topic_id=TOPIC_ID,
                name=TOPIC,
                mode="tier",
                state="enabled",
                trim=True,
                retention_ms=retention.retention_ms,
                retention_bytes=retention.retention_bytes,
                local_retention_ms=0,
                local_retention_bytes=-2,
                enforced=retention,
            )
        )

    async def ask_deletion(self, offset: int) -> bool:
        """A client's DeleteRecords to the leader; whether it was answered without error, which
        proves that the remote log start has followed (H26).
        """
        leader = self.cluster.leader
        service = self.services.get(leader.node_id) if leader else None
        if service is None or not service.is_up:
            return False
        if not await service.call(delete_records(self.cluster, service, offset)):
            return False
        self.happened("client DeleteRecords answered", f"up to {offset}")
        if self.ends.published < offset:
            self.fail(Broken(f"DeleteRecords up to {offset} answered at {self.ends.published}"))
        return True

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
        self.enable(self.ends.retention)
        for node_id in self.cluster.brokers:
            self.start_service(node_id)
        async with asyncio.TaskGroup() as tasks:
            for work in (self._produce(), self._tick(), self._consume(), events.run(self)):
                tasks.create_task(work)
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
