"""Writes one partition of the target topic, each record once, however often it is interrupted.

A transaction has some batches and, as a committed offset of a group, the source offset that comes
after them; so both are there, or neither is. Whoever begins has the coordinator fence older
producers of the same transactional id, which ends their open transaction, and then reads that
offset, so a new attempt always goes on where the last committed transaction ended. No request is
sent twice: after any failure a new session begins. Sources: KIP-98, KIP-447, KIP-890.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_protocol.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    OFFSET_FETCH,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)
from kafka_protocol.error_codes import CONCURRENT_TRANSACTIONS, UNSTABLE_OFFSET_COMMIT
from kafka_protocol.schema import Api, Value
from kip405.acls import Acl, group_acl, topic_acl
from kip405.addresses import Address
from kip405.errors import Corrupt, Internal, Invalid, RemoteStorageError, Unavailable
from kip405.ids import Uuid
from rlm.clock import Clock
from rlm.restore.batches import OutgoingBatch, next_sequence
from rlm.restore.brokers import (
    GROUP,
    TRANSACTION,
    Brokers,
    raise_refusal,
)

PREFIX = "rlm-restore."
"""Of the names of groups and of transactional ids."""
TRANSACTION_TIMEOUT_MS = 60_000
"""Brokers abort what is open for longer; also of a restore that was killed."""
_WRITING_MS = 20_000
"""A transaction that writes for so long ends with what it has, which leaves time to end it."""
_IN_FLIGHT = 5
"""Kafka keeps the order of so many requests of a producer, and no more."""
_PRODUCE_TIMEOUT_MS = 20_000
_ALL_REPLICAS = -1
_WAIT_MS = 20.0
_WAITS = 1500
"""So often is asked again while the coordinator ends the transaction before: 30 s."""
_NOT_COMMITTED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPartition:
    """A partition of the target, and the source topic whose records it gets."""

    topic: str
    topic_id: Uuid
    partition: int
    source_topic_id: Uuid

    @property
    def group(self) -> str:
        """Holds the progress of all partitions."""
        return f"{PREFIX}{self.source_topic_id}.{self.topic_id}"

    @property
    def transactional_id(self) -> str:
        return f"{self.group}.{self.partition}"

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What is committed: everything below `source_offset` was written, which were so many records
    and ends below `target_offset`.
    """

    source_offset: int
    target_offset: int
    record_count: int

    def metadata(self) -> str:
        """What is committed beside the source offset."""
        return json.dumps({"v": 1, "target": self.target_offset, "records": self.record_count})

    @classmethod
    def of(cls, source_offset: int, metadata: str | None) -> "Progress":
        """The inverse; ValueError where it is not ours."""
        try:
            row = json.loads(metadata or "")
            return cls(
                source_offset=source_offset,
                target_offset=int(row["target"]),
                record_count=int(row["records"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"{metadata!r}: {error}") from error


class Session:
    """One producer of a partition from its beginning to the first failure."""

    def __init__(
        self, brokers: Brokers, target: TargetPartition, clock: Clock, addresses: "_Addresses"
    ) -> None:
        self._brokers = brokers
        self._target = target
        self._clock = clock
        self._addresses = addresses
        self._producer_id = -1
        self._epoch = -1
        self._sequence = 0
        self.progress: Progress | None = None
        """None: nothing was committed ever."""
        self.expected_offset: int | None = None
        """Where the next batch must come; set by the owner, None: others may write too."""

    @classmethod
    async def begin(cls, brokers: Brokers, target: TargetPartition, clock: Clock) -> "Session":
        """Fences all sessions before; afterwards nothing of theirs comes any more, and `progress`
        is final.
        """
        session = cls(brokers, target, clock, await _Addresses.of(brokers, target))
        await session._fence()
        session.progress = await session._committed()
        return session

    @property
    def leader(self) -> Address:
        return self._addresses.leader

    @property
    def producer_id(self) -> int:
        return self._producer_id

    async def write(self, batches: Sequence[OutgoingBatch], source_offset: int) -> Progress:
        """One transaction: the batches, and that the restore goes on at `source_offset`. Where that
        takes long it has the first of them only, and the progress says so.

        Unavailable: whether it was committed is not known; begin a new session. Fenced: somebody
        else has begun one. Invalid: brokers do not take these records, or others write too.
        """
        before = self.progress
        if before is None:
            raise Internal(f"{self._target}: records would come before any progress")
        target_offset, written = before.target_offset, batches
        if batches:
            await self._add_partition()
            count, target_offset = await self._produce(batches, target_offset)
            written = batches[:count]
        if len(written) < len(batches):
            source_offset = written[-1].next_offset
        return await self.commit(
            Progress(
                source_offset=source_offset,
                target_offset=target_offset,
                record_count=before.record_count + sum(one.record_count for one in written),
            )
        )

    async def commit(self, progress: Progress) -> Progress:
        """Ends the transaction with this progress; alone, it is one without records."""
        await self._commit_offset(progress)
        await self._end()
        has_marker = (
            self.progress is not None and progress.record_count > self.progress.record_count
        )
        if has_marker and self.expected_offset is not None:
            self.expected_offset = progress.target_offset + 1
        self.progress = progress
        return progress

    async def close(self) -> None:
        """Has a transaction that may be open aborted, so that readers need not wait for it.

        It is fenced, not ended: the marker then has a newer epoch than a batch that is still on its
        way, which could otherwise come after the marker and be committed with the next transaction.
        """
        await self._fence()

    async def _fence(self) -> None:
        body = {
            "transactional_id": self._target.transactional_id,
            "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
        }
        answer = await self._ask_coordinator(INIT_PRODUCER_ID, 4, body)
        self._check(answer["error_code"], "begin", self._id_acl)
        self._producer_id, self._epoch = answer["producer_id"], answer["producer_epoch"]

    async def _committed(self) -> Progress | None:
        target = self._target
        topic = {"name": target.topic, "partition_indexes": [target.partition]}
        body = {"group_id": target.group, "topics": [topic], "require_stable": True}

        async def ask() -> tuple[int, Value]:
            answer = await self._brokers.ask(self._addresses.group, OFFSET_FETCH, 7, body)
            self._check(answer["error_code"], "read the progress", self._group_acl)
            row = _only_partition(answer)
            return row["error_code"], row

        row = await self._patiently(ask, UNSTABLE_OFFSET_COMMIT)
        self._check(row["error_code"], "read the progress", self._group_acl)
        if row["committed_offset"] == _NOT_COMMITTED:
            return None
        try:
            return Progress.of(row["committed_offset"], row["metadata"])
        except ValueError as error:
            raise Corrupt(f"{target}: progress in group {target.group}: {error}") from error

    async def _add_partition(self) -> None:
        target = self._target
        body = {
            "v3_and_below_transactional_id": target.transactional_id,
            "v3_and_below_producer_id": self._producer_id,
            "v3_and_below_producer_epoch": self._epoch,
            "v3_and_below_topics": [{"name": target.topic, "partitions": [target.partition]}],
        }

        async def ask() -> tuple[int, Value]:
            answer = await self._brokers.ask(
                self._addresses.transactions, ADD_PARTITIONS_TO_TXN, 3, body
            )
            [topic] = answer["results_by_topic_v3_and_below"]
            [row] = topic["results_by_partition"]
            return row["partition_error_code"], row

        row = await self._patiently(ask, CONCURRENT_TRANSACTIONS)
        self._check(row["partition_error_code"], "begin a transaction", self._topic_acl)

    async def _produce(self, batches: Sequence[OutgoingBatch], following: int) -> tuple[int, int]:
        """Up to five requests at a time; how many batches it wrote in the time there is, and the
        offset after the last record. Corrupt: the target lost records that were committed.
        """
        begun_ms, at = self._clock.monotonic_ms(), 0
        for at in range(0, len(batches), _IN_FLIGHT):
            some = batches[at : at + _IN_FLIGHT]
            bases = await _all(self._send(batch) for batch in self._numbered(some))
            for batch, base in zip(some, bases, strict=True):
                if base < following:
                    raise Corrupt(
                        f"{self._target}: a batch got offset {base}, but the log reached "
                        f"{following} already: the target lost records"
                    )
                self._refuse_others(base)
                following = base + batch.record_count
                self.expected_offset = None if self.expected_offset is None else following
            if self._clock.monotonic_ms() - begun_ms >= _WRITING_MS:
                break
        return min(at + _IN_FLIGHT, len(batches)), following

    def _refuse_others(self, offset: int) -> None:
        if self.expected_offset not in (None, offset):
            raise Invalid(
                f"{self._target}: somebody else writes to it, a batch got offset {offset} instead "
                f"of {self.expected_offset}: with --allow-others records are mixed"
            )

    def _numbered(self, batches: Sequence[OutgoingBatch]) -> list[bytes]:
        made = []
        for batch in batches:
            made.append(batch.of_producer(self._producer_id, self._epoch, self._sequence))
            self._sequence = next_sequence(self._sequence, batch.record_count)
        return made

    async def _send(self, data: bytes) -> int:
        target = self._target
        body = {
            "transactional_id": target.transactional_id,
            "acks": _ALL_REPLICAS,
            "timeout_ms": _PRODUCE_TIMEOUT_MS,
            "topic_data": [
                {
                    "name": target.topic,
                    "partition_data": [{"index": target.partition, "records": data}],
                }
            ],
        }
        answer = await self._brokers.ask(self._addresses.leader, PRODUCE, 8, body)
        [topic] = answer["responses"]
        [row] = topic["partition_responses"]
        what = f"write a batch of {len(data)} bytes"
        self._check(row["error_code"], what, self._topic_acl, row["error_message"])
        return int(row["base_offset"])

    async def _commit_offset(self, progress: Progress) -> None:
        target = self._target
        of_group = {**self._producer(), "group_id": target.group}
        answer = await self._ask_coordinator(ADD_OFFSETS_TO_TXN, 3, of_group)
        self._check(answer["error_code"], "add the progress", self._group_acl)
        row = {
            "partition_index": target.partition,
            "committed_offset": progress.source_offset,
            "committed_metadata": progress.metadata(),
        }
        body = {
            **self._producer(),
            "group_id": target.group,
            "topics": [{"name": target.topic, "partitions": [row]}],
        }
        answer = await self._brokers.ask(self._addresses.group, TXN_OFFSET_COMMIT, 3, body)
        code = _only_partition(answer)["error_code"]
        self._check(code, "write the progress", self._group_acl)

    async def _end(self) -> None:
        body = {**self._producer(), "committed": True}
        answer = await self._brokers.ask(self._addresses.transactions, END_TXN, 3, body)
        self._check(answer["error_code"], "commit", self._id_acl)

    async def _ask_coordinator(self, api: Api, version: int, body: Value) -> Value:
        """Asks again while the coordinator still ends the transaction before."""

        async def ask() -> tuple[int, Value]:
            answer = await self._brokers.ask(self._addresses.transactions, api, version, body)
            return answer["error_code"], answer

        return await self._patiently(ask, CONCURRENT_TRANSACTIONS)

    async def _patiently(
        self, ask: Callable[[], Awaitable[tuple[int, Value]]], while_code: int
    ) -> Value:
        for _ in range(_WAITS):
            code, answer = await ask()
            if code != while_code:
                return answer
            await self._clock.sleep_ms(_WAIT_MS)
        raise Unavailable(f"{self._target}: the transaction before does not end")

    def _producer(self) -> Value:
        return {
            "transactional_id": self._target.transactional_id,
            "producer_id": self._producer_id,
            "producer_epoch": self._epoch,
        }

    def _check(self, code: int, what: str, needs: Acl, detail: str | None = None) -> None:
        raise_refusal(code, f"{self._target}: {what}", detail, needs=needs)

    @property
    def _id_acl(self) -> Acl:
        return id_acl(self._target)

    @property
    def _group_acl(self) -> Acl:
        return group_acl("Read", self._target.group)

    @property
    def _topic_acl(self) -> Acl:
        return topic_acl("Write", self._target.topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Addresses:
    """Whom to ask for what."""

    leader: Address
    transactions: Address
    group: Address

    @classmethod
    async def of(cls, brokers: Brokers, target: TargetPartition) -> "_Addresses":
        find = brokers.coordinator
        return cls(
            leader=await brokers.leader(target.topic, target.topic_id, target.partition),
            transactions=await find(TRANSACTION, target.transactional_id, id_acl(target)),
            group=await find(GROUP, target.group, group_acl("Describe", target.group)),
        )


def id_acl(target: TargetPartition) -> Acl:
    return Acl(
        resource_type="TransactionalId",
        resource_name=target.transactional_id,
        operation="Write",
    )


def _only_partition(answer: Value) -> Value:
    for topic in answer["topics"]:
        for partition in topic["partitions"]:
            row: Value = partition
            return row
    raise Invalid("the broker answered for no partition")


async def _all(calls: Iterable[Coroutine[Any, Any, int]]) -> list[int]:
    """Runs them at once, and begins them in order; the first error ends all."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except* RemoteStorageError as errors:
        raise first_error(errors) from errors
    return [task.result() for task in tasks]


def first_error(group: BaseException) -> BaseException:
    """The first error within groups."""
    return first_error(group.exceptions[0]) if isinstance(group, BaseExceptionGroup) else group
