"""The steps of Kafka's own scenarios of tiered storage, on a topic whose segments are tiny.

The words are those of Kafka's TieredStorageTestBuilder: expect_segments_offloaded,
expect_fetch_from_tiered_storage, expect_list_offsets and so on. So is the trick: an offset index
that holds n entries, one for each batch, closes a segment after n batches, here of one record each.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.rlm.proxy.raw_client import RawClient
from tests.scenarios.cluster import Cluster, Row, assert_same, collect, fresh
from tests.scenarios.java import java_read, printable
from tests.scenarios.objects import finished_segments
from tests.scenarios.raw import at_leader, list_offset
from tests.scenarios.readers import first_by_reset
from tests.scenarios.replicas import disk
from tests.scenarios.test_h38_problems import Operator

EARLIEST, LATEST, EARLIEST_LOCAL, LATEST_TIERED = -2, -1, -4, -5
_LIST_OFFSETS_VERSION = 11
_INDEX_ENTRY_BYTES = 12
_LIMIT_S = 120


class GroupProtocol(enum.Enum):
    """How the consumers of scenarios are members of their groups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class TieredTopic:
    """A topic in mode tier, its rows, and what scenarios do with it and expect of it.

    `assignment`: replicas of each partition. `batches`: how many make a segment. The local log
    keeps the active segment only, unless `options` of `rlm topics enable` say otherwise.
    """

    def __init__(
        self,
        cluster: Cluster,
        assignment: list[list[int]],
        *,
        protocol: GroupProtocol = GroupProtocol.CLASSIC,
        batches: int = 1,
        configs: Mapping[str, str] | None = None,
        options: tuple[str, ...] = (),
        is_enabled: bool = True,
    ) -> None:
        self.cluster = cluster
        self.name = fresh("tiered")
        self.rows: list[Row] = []
        self._protocol = protocol
        tiny = {
            "segment.index.bytes": str(_INDEX_ENTRY_BYTES * batches),
            "index.interval.bytes": "1",
        }
        cluster.create_topic(self.name, assignment=assignment, configs={**tiny, **(configs or {})})
        self._options = options
        if is_enabled:
            self.enable()

    def enable(self) -> None:
        self.cluster.enable(self.name, "--trim", "--local-retention-bytes", "1", *self._options)

    def produce(self, count: int, partition: int = 0) -> None:
        """Records, each a batch of its own."""
        first = len(self.rows)
        values = ((partition, b"k%d" % n, b"v%d" % n) for n in range(first, first + count))
        one_a_batch = {"batch.num.messages": 1, "linger.ms": 0}
        self.rows += self.cluster.produce(self.name, values, **one_a_batch)

    def segments(self, partition: int = 0) -> list[tuple[int, int]]:
        """First and last offset of each segment in the store."""
        return [
            (one.start_offset, one.end_offset)
            for one in finished_segments(self.cluster, self.name)
            if one.topic_id_partition.partition == partition
        ]

    def expect_segments_offloaded(self, *expected: tuple[int, int], partition: int = 0) -> None:
        """These segments come to be in the store, and no other of the partition."""
        self.cluster.wait_for(
            lambda: self.segments(partition) == list(expected),
            f"{expected} of {self.name}-{partition} in the store",
        )

    def expect_earliest_local_offset(self, offset: int, partition: int = 0) -> None:
        """The broker's log comes to begin there; in its directories too."""
        leader = self.cluster.wait_led(self.name, partition)

        def begins() -> bool:
            segments = disk(self.cluster, self.name, leader, partition).segments
            is_first = len(segments) == 1 or segments[1].base_offset > offset
            return is_first and self.cluster.log_start(self.name, partition) == offset

        self.cluster.wait_for(
            begins, f"the local log of {self.name}-{partition} begins at {offset}"
        )

    def expect_leader_epoch_checkpoint(self, start_offset: int) -> None:
        """The leader's epoch file comes to begin there: Kafka cuts it with the local log."""
        leader = self.cluster.wait_led(self.name)

        def begins() -> bool:
            entries = disk(self.cluster, self.name, leader).lineage.entries
            return bool(entries) and entries[0].start_offset == start_offset

        self.cluster.wait_for(begins, f"the epoch file of {self.name} begins at {start_offset}")

    def leader_epoch(self) -> int:
        """Of the newest record, by the leader's epoch file."""
        found = disk(self.cluster, self.name, self.cluster.wait_led(self.name)).lineage.latest_epoch
        assert found is not None
        return found

    def consume(
        self, start: int = 0, partition: int = 0, end: int | None = None, **config: Any
    ) -> None:
        """Everything from an offset on, once and in order, by librdkafka.

        `end`: where its position stands then, if not behind the last row.
        """
        rows = [row for row in self.rows if row.partition == partition and row.offset >= start]
        position = end or rows[-1].offset + 1
        assert_same(self._subscribed(start, partition, position, config), rows)

    def consume_by_java(self) -> None:
        """All of a topic of one partition, by a member of a group from the earliest offset on."""
        printed, said = java_read(
            self.cluster,
            self.name,
            len(self.rows),
            partition=None,
            config={
                "group.protocol": self._protocol.value,
                "group.id": fresh("group"),
                "auto.offset.reset": "earliest",
            },
        )
        assert printed == printable(self.rows), said[-2_000:]

    def expect_fetch_from_tiered_storage(
        self,
        segments: int,
        start: int = 0,
        partition: int = 0,
        end: int | None = None,
        **config: Any,
    ) -> None:
        """A read from an offset asks the store for so many segments: for each once, and its indexes
        at most once.
        """
        before = self._store_requests()
        self.consume(start, partition, end, **config)
        after = self._store_requests()
        asked = {kind: after[kind] - before[kind] for kind in after}
        assert asked["range"] == segments, asked
        assert asked["indexes"] <= segments, asked

    def _store_requests(self) -> dict[str, int]:
        """Requests of all services to their stores for reading, by kind."""
        found = {"range": 0, "indexes": 0}
        for node in self.cluster.sandbox.state.ports:
            text = Operator(self.cluster, node).get("/metrics")
            for kind in found:
                start = f'rlm_read_store_requests_total{{kind="{kind}"}} '
                lines = [line for line in text.splitlines() if line.startswith(start)]
                found[kind] += sum(int(float(line.removeprefix(start))) for line in lines)
        return found

    def expect_list_offsets(self, timestamp: int, offset: int, epoch: int) -> None:
        """The answer for a timestamp, or for one of the special ones, and its leader epoch."""

        async def ask(client: RawClient) -> tuple[int, int, int]:
            found = await list_offset(client, _LIST_OFFSETS_VERSION, self.name, timestamp)
            return found["error_code"], found["offset"], found["leader_epoch"]

        self.cluster.wait_for(
            lambda: at_leader(self.cluster, self.name, ask) == (0, offset, epoch),
            f"timestamp {timestamp} of {self.name} is offset {offset} of epoch {epoch}",
        )

    def delete_records(self, before: int) -> None:
        """Through the proxy, as any client; both tiers then begin there."""
        asked = TopicPartition(self.name, 0, before)
        with AdminClient({"bootstrap.servers": self.cluster.bootstrap}) as admin:
            assert admin.delete_records([asked])[asked].result(_LIMIT_S).low_watermark == before
            start = (
                admin.list_offsets({asked: OffsetSpec.earliest()})[asked].result(_LIMIT_S).offset
            )
        assert start == before

    def expect_reset_to_earliest(self, offset: int) -> None:
        """A consumer at offset 0 is out of range; without asking the store, it goes on here."""
        before = self._store_requests()
        assert first_by_reset(self.cluster, self.name) == offset
        assert self._store_requests() == before

    def _starts_at(
        self, partition: int, start: int
    ) -> Callable[[Consumer, list[TopicPartition]], None]:
        """Begins to read one of the partitions assigned; the others wait. With KIP-848 the group
        changes assignments bit by bit.
        """
        is_classic = self._protocol is GroupProtocol.CLASSIC

        def assign(member: Consumer, partitions: list[TopicPartition]) -> None:
            for one in partitions:
                one.offset = start if one.partition == partition else OFFSET_END
            (member.assign if is_classic else member.incremental_assign)(partitions)
            member.pause([one for one in partitions if one.partition != partition])

        return assign

    def _subscribed(
        self, start: int, partition: int, end: int, config: Mapping[str, Any]
    ) -> list[Row]:
        """As a member of a group, which begins at `start`; any reset is an error."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": fresh("group"),
                "group.protocol": self._protocol.value,
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                **config,
            }
        )
        consumer.subscribe([self.name], on_assign=self._starts_at(partition, start))
        try:
            return collect(consumer, {partition: end}, _LIMIT_S)
        finally:
            consumer.close()
