"""What a service sees of its own broker: requests over the model's network."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from kafka_protocol.error_codes import NONE
from kip405.acls import topic_acl
from kip405.errors import Fenced, NotFound, Unavailable
from kip405.ids import TopicPartition, Uuid
from rlm.broker.answers import (
    ClusterDescription,
    LocalRecords,
    OffsetAnswer,
    TopicConfigValue,
    TopicDescription,
    TopicIdAnswer,
    error_of_code,
)
from rlm.plans.topic_end import UNKNOWN_TOPIC_ID
from tests.builders.log_dir import CLUSTER_ID, TOPIC
from tests.simulation.model_cluster import Broker, Cluster

T = TypeVar("T")
_EARLIEST, _DEBUGGING_REPLICA = -2, -2
_TOPIC_AUTHORIZATION_FAILED = 29
LEDGER_ID, SETTINGS_ID = Uuid(b"\xf1" * 16), Uuid(b"\xf2" * 16)
DRAIN_MS = 5_000
"""trim.drain.ms: what a broker has read is executed within this time (H41)."""


class BrokerClient:
    """rlm.remote_log.ports.Broker, and what Leadership and RecordDeletions ask."""

    def __init__(self, cluster: Cluster, broker: Broker) -> None:
        self._cluster = cluster
        self._broker = broker
        self.leadership_asked_s = -1.0
        """When a task last asked whether this broker still leads."""

    async def topic(self, name: str) -> TopicDescription:
        self.leadership_asked_s = self._cluster.loop.time()
        found = await self._ask(self._described, "metadata")
        if name != found.name:
            raise NotFound(f"topic {name}: UNKNOWN_TOPIC_OR_PARTITION (3)")
        return found

    async def topics(self, names: Sequence[str] | None = None) -> tuple[TopicDescription, ...]:
        return await self._ask(self._listed, "metadata")

    async def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription(cluster_id=CLUSTER_ID, nodes=())

    async def topic_ids(self, topic_ids: Sequence[Uuid]) -> TopicIdAnswer:
        """A broker that has not read its metadata yet knows no topic."""

        def answer() -> TopicIdAnswer:
            cluster, broker = self._cluster, self._broker
            known = {LEDGER_ID, broker.topic_id} if broker.has_read_metadata else set()
            known -= {broker.topic_id} if broker.is_unaware else set()
            codes = {one: NONE if one in known else UNKNOWN_TOPIC_ID for one in topic_ids}
            for one in topic_ids:
                if one in cluster.denied & known:
                    codes[one] = _TOPIC_AUTHORIZATION_FAILED
            return TopicIdAnswer(
                cluster_id=CLUSTER_ID,
                error_codes={one: code for one, code in codes.items() if one not in cluster.hidden},
                brokers=frozenset(cluster.brokers),
            )

        return await self._ask(answer, "metadata by id")

    def _described(self) -> TopicDescription:
        self._check_topic()
        topic_id = self._broker.topic_id
        assert topic_id is not None
        return TopicDescription(
            name=TOPIC, topic_id=topic_id, internal=False, partitions={0: self._broker.known}
        )

    def _listed(self) -> tuple[TopicDescription, ...]:
        return () if self._is_unknown() else (self._described(),)

    def _is_unknown(self) -> bool:
        broker = self._broker
        return broker.has_read_metadata and (broker.topic_id is None or broker.is_unaware)

    def _check_topic(self) -> None:
        """As a broker that checks what the service's principal may see."""
        if self._broker.topic_id in self._cluster.denied | self._cluster.hidden:
            code, acl = _TOPIC_AUTHORIZATION_FAILED, topic_acl("Describe", TOPIC)
            raise error_of_code(code, f"topic {TOPIC}", needs=acl)
        self._broker.check_topic()

    async def topic_config(
        self, topic: str, names: tuple[str, ...] = ()
    ) -> Mapping[str, TopicConfigValue]:
        def answer() -> Mapping[str, TopicConfigValue]:
            self._check_topic()
            config = self._cluster.config
            return {
                name: TopicConfigValue(value=config[name], is_topic_level=True)
                for name in names or config
            }

        return await self._ask(answer, "describe configs")

    async def list_offset(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        *,
        leader_epoch: int = -1,
        read_committed: bool = False,
        replica_id: int = -1,
    ) -> OffsetAnswer:
        def answer() -> OffsetAnswer:
            self._check_topic()
            self._broker.check_epoch(leader_epoch)
            replica = self._broker.replica
            if timestamp == _EARLIEST:
                offset = replica.log_start
            elif replica_id == _DEBUGGING_REPLICA:
                offset = replica.end
            else:
                offset = self._cluster.latest(self._broker)
            return OffsetAnswer(offset=offset, leader_epoch=leader_epoch, timestamp_ms=-1)

        return await self._ask(answer, "list offsets")

    async def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int, leader_epoch: int = -1
    ) -> LocalRecords:
        def answer() -> LocalRecords:
            self._broker.check_epoch(leader_epoch)
            replica = self._broker.replica
            if not replica.log_start <= offset <= replica.end:  # UnifiedLog.read
                raise Fenced(f"fetch at {offset}: OFFSET_OUT_OF_RANGE (1)")
            held = replica.batches(offset, max(offset, replica.high_watermark))[:8]
            return LocalRecords(
                high_watermark=replica.high_watermark,
                last_stable_offset=replica.high_watermark,
                log_start_offset=replica.log_start,
                records=b"".join(one.data for one in held),
                aborted=(),
            )

        return await self._ask(answer, "fetch")

    def deletion_connection(self) -> "DeletionConnectionModel":
        return DeletionConnectionModel(self._cluster, self._broker)

    async def _ask(self, work: Callable[[], T], what: str) -> T:
        return await self._cluster.network.request(self._broker.process, work, what)


class DeletionConnectionModel:
    """One DeleteRecords: executed at once; late, after its connection was closed; or executed and
    its answer lost. rlm.broker.deletions.DeletionConnection.
    """

    def __init__(self, cluster: Cluster, broker: Broker) -> None:
        self._cluster = cluster
        self._broker = broker

    async def open(self) -> None:
        await self._cluster.network.request(self._broker.process, lambda: None, "api versions")

    def send(self, topic_partition: TopicPartition, offset: int, *, hold_ms: int) -> Awaitable[int]:
        cluster, delay_s = self._cluster, None
        fault = cluster.deletion_fault()
        if fault == "late":
            delay_s = cluster.late_deletion_s(DRAIN_MS)

        process = self._broker.process
        cluster.in_flight.append(process)

        def execute() -> int:
            cluster.in_flight.remove(process)
            low_watermark = cluster.delete_records(self._broker, offset)
            if fault == "lost answer":
                raise ConnectionResetError("the broker closed the connection")
            if fault == "timed out":
                raise Unavailable("REQUEST_TIMED_OUT (7)")
            return low_watermark

        what = f"delete records below {offset}"
        return cluster.network.request(self._broker.process, execute, what, delay_s=delay_s)

    async def close(self) -> None:
        return None
