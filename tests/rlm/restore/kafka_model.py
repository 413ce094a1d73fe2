"""A cluster of one broker with transactions, over real sockets, that may die or drop a connection
at any request: what Kafka's coordinators and logs promise to a transactional producer.

A batch that came with the request before a cut may be appended later than its sender thinks; here
it is tried right after the next producer of that id has begun.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_protocol.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    CREATE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FETCH,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)
from kafka_protocol.schema import Api, Value
from kip405.batches import NO_EPOCH, check_crc, read_header
from kip405.ids import Uuid
from kip405.records import Record, records
from tests.builders.fake_broker import FakeBroker
from tests.kip405.batch_builder import control_batch

CONCURRENT, FENCED, OLD_EPOCH, WRONG_SEQUENCE, UNSTABLE = 51, 90, 47, 45, 88
NODE = 1
_ABORT, _COMMIT = 0, 1


@dataclass(slots=True, kw_only=True)
class Log:
    """A partition: batches with their offsets, and what it knows of producers."""

    batches: list[bytes] = field(default_factory=list)
    start: int = 0
    end: int = 0
    epochs: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """Producer, first offset, and that of the marker."""
    open: dict[int, int] = field(default_factory=dict)
    """First offset of the open transaction of a producer."""

    def append(self, data: bytes) -> int:
        header = read_header(data)
        made = bytearray(data)
        made[:8] = self.end.to_bytes(8, "big")
        self.batches.append(bytes(made))
        self.end += header.last_offset - header.base_offset + 1
        return self.end - 1

    def mark(self, producer_id: int, epoch: int, kind: int) -> None:
        """A marker fences older epochs; it ends whatever the producer has open here."""
        at = self.append(control_batch(0, kind, producer_id=producer_id))
        self.epochs[producer_id] = epoch
        first = self.open.pop(producer_id, None)
        if kind == _ABORT and first is not None:
            self.aborted.append((producer_id, first, at))

    def committed(self) -> list[Record]:
        """What a consumer with read_committed gets, up to the last stable offset."""
        stable = min(self.open.values(), default=self.end)
        found: list[Record] = []
        for data in self.batches:
            header = read_header(data)
            dead = any(
                one == header.producer_id and first <= header.base_offset <= last
                for one, first, last in self.aborted
            )
            if header.base_offset < stable and not header.is_control and not dead:
                found += records(data)
        return found


@dataclass(slots=True, kw_only=True)
class Transactions:
    """A transactional id."""

    producer_id: int
    epoch: int = 0
    partitions: set[tuple[str, int]] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    pending: dict[tuple[str, str, int], tuple[int, str]] = field(default_factory=dict)
    still_ending: int = 0
    """So many requests are answered with CONCURRENT_TRANSACTIONS."""

    @property
    def is_open(self) -> bool:
        return bool(self.partitions or self.groups)


class KafkaModel(FakeBroker):
    """`slow_markers`: so often the coordinator is still busy with the transaction before."""

    def __init__(self, *, slow_markers: int = 0) -> None:
        super().__init__()
        self.topics: dict[str, Uuid] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.logs: dict[tuple[str, int], Log] = {}
        self.ids: dict[str, Transactions] = {}
        self.offsets: dict[tuple[str, str, int], tuple[int, str]] = {}
        self.count = 0
        self.on_request: Callable[[int, str], str] = lambda number, name: ""
        """By number and name of the request: "before" or "after" it is done the connection is cut;
        "late": it is cut, and a batch comes when the next producer has begun."""
        self.throttle_ms = 0
        """What a quota says in each answer to Produce."""
        self._late: list[Value] = []
        self._slow_markers = slow_markers
        for api, handler in self._answers().items():
            self.on(api, self._faulty(api, handler))

    def _answers(self) -> dict[Api, Callable[[Value], Mapping[str, Any]]]:
        return {
            DESCRIBE_CLUSTER: lambda _: {"cluster_id": "target", "brokers": [self._node()]},
            METADATA: self._metadata,
            CREATE_TOPICS: self._create,
            DESCRIBE_CONFIGS: self._describe,
            FIND_COORDINATOR: lambda _: {
                "error_code": 0,
                "error_message": None,
                **self._coordinator(),
            },
            LIST_OFFSETS: self._list,
            FETCH: self._fetch,
            INIT_PRODUCER_ID: self._begin,
            ADD_PARTITIONS_TO_TXN: self._add_partitions,
            PRODUCE: self._produce,
            ADD_OFFSETS_TO_TXN: self._add_offsets,
            TXN_OFFSET_COMMIT: self._commit_offsets,
            END_TXN: self._end,
            OFFSET_FETCH: self._fetch_offsets,
        }

    def _faulty(
        self, api: Api, handler: Callable[[Value], Mapping[str, Any]]
    ) -> Callable[[Value], Mapping[str, Any]]:
        def answer(body: Value) -> Mapping[str, Any]:
            self.count += 1
            fault = self.on_request(self.count, api.name)
            if fault == "late" and api is PRODUCE:
                self._late.append(body)
            if fault in ("before", "late"):
                raise ConnectionResetError
            found = handler(body)
            if fault == "after":
                raise ConnectionResetError
            return found

        return answer

    def add_topic(self, name: str, partitions: int, **configs: str) -> None:
        self.topics[name] = Uuid(bytes([len(self.topics) + 1]) * 16)
        self.configs[name] = configs
        self.logs |= {(name, number): Log() for number in range(partitions)}

    def forget(self) -> None:
        """An empty cluster again."""
        for known in (self.topics, self.logs, self.ids, self.offsets):
            known.clear()
        self.count = 0

    def begin_producer(self, transactional_id: str) -> None:
        """As another process with this id does."""
        self._begin({"transactional_id": transactional_id})

    def _coordinator(self) -> dict[str, Any]:
        return {"node_id": NODE, "host": self.address.host, "port": self.address.port}

    def _node(self) -> dict[str, Any]:
        return {"broker_id": NODE, "host": self.address.host, "port": self.address.port}

    def _metadata(self, body: Value) -> Mapping[str, Any]:
        return {"topics": [self._described(one["name"]) for one in body["topics"]]}

    def _described(self, name: str) -> Mapping[str, Any]:
        if name not in self.topics:
            return {"error_code": 3, "name": name, "partitions": []}
        numbers = sorted(number for topic, number in self.logs if topic == name)
        rows = [
            {"partition_index": number, "leader_id": NODE, "replica_nodes": [], "isr_nodes": []}
            for number in numbers
        ]
        topic_id = self.topics[name].raw
        return {"error_code": 0, "name": name, "topic_id": topic_id, "partitions": rows}

    def _create(self, body: Value) -> Mapping[str, Any]:
        [topic] = body["topics"]
        configs = {row["name"]: row["value"] for row in topic["configs"]}
        self.add_topic(topic["name"], topic["num_partitions"], **configs)
        return {"topics": [{"name": topic["name"], "error_code": 0}]}

    def _describe(self, body: Value) -> Mapping[str, Any]:
        [resource] = body["resources"]
        name = resource["resource_name"]
        rows = [{"name": key, "value": value} for key, value in self.configs[name].items()]
        return {"results": [{"resource_name": name, "error_code": 0, "configs": rows}]}

    def _list(self, body: Value) -> Mapping[str, Any]:
        [topic] = body["topics"]
        [row] = topic["partitions"]
        log = self.logs[topic["name"], row["partition_index"]]
        offset = log.start if row["timestamp"] == -2 else log.end
        found = {"partition_index": row["partition_index"], "error_code": 0, "offset": offset}
        return {"topics": [{"name": topic["name"], "partitions": [found]}]}

    def _fetch(self, body: Value) -> Mapping[str, Any]:
        [topic] = body["topics"]
        [row] = topic["partitions"]
        log = self.logs[topic["topic"], row["partition"]]
        stable = min(log.open.values(), default=log.end)
        end = stable if body["isolation_level"] else log.end
        data = b"".join(
            one
            for one in log.batches
            if read_header(one).last_offset >= row["fetch_offset"]
            and read_header(one).base_offset < end
        )
        aborted = [
            {"producer_id": who, "first_offset": first}
            for who, first, last in log.aborted
            if last >= row["fetch_offset"]
        ]
        found = {
            "partition_index": row["partition"],
            "error_code": 0,
            "high_watermark": log.end,
            "last_stable_offset": stable,
            "aborted_transactions": aborted,
            "records": data,
        }
        return {"error_code": 0, "responses": [{"topic": topic["topic"], "partitions": [found]}]}

    def _begin(self, body: Value) -> Mapping[str, Any]:
        name = body["transactional_id"]
        known = self.ids.setdefault(name, Transactions(producer_id=1000 + len(self.ids), epoch=-1))
        if known.is_open:
            known.epoch += 1
            self._finish(known, _ABORT)
            known.still_ending = self._slow_markers
        if known.still_ending:
            known.still_ending -= 1
            return {"error_code": CONCURRENT}
        known.epoch += 1
        late, self._late = self._late, []
        for one in late:
            self._produce(one)
        return {
            "error_code": 0,
            "producer_id": known.producer_id,
            "producer_epoch": known.epoch,
        }

    def _finish(self, known: Transactions, kind: int) -> None:
        for key in sorted(known.partitions):
            self.logs[key].mark(known.producer_id, known.epoch, kind)
        if kind == _COMMIT:
            self.offsets |= known.pending
        known.partitions, known.groups, known.pending = set(), set(), {}

    def _checked(self, name: str, body: Mapping[str, Any], prefix: str = "") -> int:
        known = self.ids[name]
        who = body[f"{prefix}producer_id"], body[f"{prefix}producer_epoch"]
        if who != (known.producer_id, known.epoch):
            return FENCED
        if known.still_ending:
            known.still_ending -= 1
            return CONCURRENT
        return 0

    def _add_partitions(self, body: Value) -> Mapping[str, Any]:
        name = body["v3_and_below_transactional_id"]
        code = self._checked(name, body, "v3_and_below_")
        [topic] = body["v3_and_below_topics"]
        if not code:
            self.ids[name].partitions |= {(topic["name"], one) for one in topic["partitions"]}
        rows = [
            {"partition_index": one, "partition_error_code": code} for one in topic["partitions"]
        ]
        result = {"name": topic["name"], "results_by_partition": rows}
        return {"results_by_topic_v3_and_below": [result]}

    def _produce(self, body: Value) -> Mapping[str, Any]:
        [topic] = body["topic_data"]
        [row] = topic["partition_data"]
        log = self.logs[topic["name"], row["index"]]
        code, base = self._appended(log, bytes(row["records"]))
        found = {"index": row["index"], "error_code": code, "base_offset": base}
        responses = [{"name": topic["name"], "partition_responses": [found]}]
        return {"responses": responses, "throttle_time_ms": self.throttle_ms}

    def _appended(self, log: Log, data: bytes) -> tuple[int, int]:
        header = read_header(data)
        assert header.size_bytes == len(data)
        check_crc(data, 0, header)
        assert (header.base_offset, header.leader_epoch) == (0, NO_EPOCH)
        assert header.record_count == header.last_offset + 1
        assert header.is_transactional
        assert not header.is_log_append_time
        who, epoch = header.producer_id, header.producer_epoch
        if epoch < log.epochs.get(who, -1):
            return OLD_EPOCH, -1
        is_new = epoch > log.epochs.get(who, -1) or who not in log.sequences
        if header.base_sequence != (0 if is_new else log.sequences[who]):
            return WRONG_SEQUENCE, -1
        log.epochs[who] = epoch
        log.sequences[who] = header.base_sequence + header.record_count
        base = log.end
        log.open.setdefault(who, base)
        log.append(data)
        return 0, base

    def _add_offsets(self, body: Value) -> Mapping[str, Any]:
        code = self._checked(body["transactional_id"], body)
        if not code:
            self.ids[body["transactional_id"]].groups.add(body["group_id"])
        return {"error_code": code}

    def _commit_offsets(self, body: Value) -> Mapping[str, Any]:
        known = self.ids[body["transactional_id"]]
        [topic] = body["topics"]
        [row] = topic["partitions"]
        code = self._checked(body["transactional_id"], body)
        if not code:
            assert body["group_id"] in known.groups
            key = body["group_id"], topic["name"], row["partition_index"]
            known.pending[key] = row["committed_offset"], row["committed_metadata"]
        found = {"partition_index": row["partition_index"], "error_code": code}
        return {"topics": [{"name": topic["name"], "partitions": [found]}]}

    def _end(self, body: Value) -> Mapping[str, Any]:
        known = self.ids[body["transactional_id"]]
        code = self._checked(body["transactional_id"], body)
        if not code:
            self._finish(known, _COMMIT if body["committed"] else _ABORT)
            known.still_ending = self._slow_markers
        return {"error_code": code}

    def _fetch_offsets(self, body: Value) -> Mapping[str, Any]:
        assert body["require_stable"]
        [topic] = body["topics"]
        [number] = topic["partition_indexes"]
        key = body["group_id"], topic["name"], number
        is_pending = any(key in known.pending for known in self.ids.values())
        offset, metadata = self.offsets.get(key, (-1, ""))
        row = {
            "partition_index": number,
            "committed_offset": offset,
            "metadata": metadata,
            "error_code": UNSTABLE if is_pending else 0,
        }
        return {"error_code": 0, "topics": [{"name": topic["name"], "partitions": [row]}]}
