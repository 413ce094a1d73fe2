"""One member of a group that reads a topic: takes as many records as it may, commits, writes down
what it was given and what its listener was called with.

As a program (`python -m tests.scenarios.twins.group_member JSON`) it is a process that can be
killed: it asks on its output, and is allowed on its input, so and so many records.
"""

import asyncio
import json
import sys
import time
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, errors
from aiokafka.structs import ConsumerRecord, TopicPartition

from rlm_client import TieredStorageConsumer
from tests.builders.opened import opened
from tests.scenarios.twins.deliveries import Event, Record

_COMMIT_EVERY = 3
_PAUSE_S = 0.2


def new_consumer(options: dict[str, Any]) -> AIOKafkaConsumer:
    """Of the product where the options name a mode, else aiokafka's own."""
    made = TieredStorageConsumer if "tiered_storage_mode" in options else AIOKafkaConsumer
    return made(
        **options,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=30_000,
        heartbeat_interval_ms=1_000,
        request_timeout_ms=15_000,
        metadata_max_age_ms=5_000,
        max_partition_fetch_bytes=65_536,
    )


def digest_of(record: ConsumerRecord) -> Record:
    """Everything that a record has."""
    rest = (record.timestamp, record.timestamp_type, record.key, record.value, record.headers)
    return record.offset, f"{zlib.crc32(repr(rest).encode()):08x}"


class GroupMember(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """`room`: waits, and says how many records may be taken; 0 ends it. `unused`: how many of them
    were not.
    """

    def __init__(
        self,
        name: str,
        consumer: AIOKafkaConsumer,
        note: Callable[[Event], None],
        room: Callable[[], Awaitable[int]],
        unused: Callable[[int], None],
    ) -> None:
        self.name = name
        self.consumer = consumer
        self._note = note
        self._room = room
        self._unused = unused
        self._uncommitted: dict[TopicPartition, int] = {}
        self._takes = 0
        self.failures: list[str] = []

    async def run(self, topic: str) -> None:
        """Join, read, commit, and leave when no more is allowed."""
        self.consumer.subscribe([topic], listener=self)
        async with opened(self.consumer):
            while most := await self._room():
                self._unused(most - await self._take(most))
                if self._takes % _COMMIT_EVERY == 0:
                    await self._commit()
            await self._commit()
        self._note(self._event("left"))

    async def _take(self, most: int) -> int:
        try:
            given = await self.consumer.getmany(timeout_ms=200, max_records=most)
        except errors.KafkaError as error:
            self.failures.append(repr(error))
            if not error.retriable:
                raise
            await asyncio.sleep(_PAUSE_S)
            return 0
        records = {one.partition: [digest_of(row) for row in rows] for one, rows in given.items()}
        if records:
            self._note(self._event("records", records=records))
            self._takes += 1
        self._uncommitted.update({one: rows[-1].offset + 1 for one, rows in given.items() if rows})
        return sum(map(len, records.values()))

    async def _commit(self) -> None:
        offsets, self._uncommitted = self._uncommitted, {}
        if not offsets:
            return
        by_partition = {one.partition: offset for one, offset in offsets.items()}
        self._note(self._event("committing", offsets=by_partition))
        try:
            await self.consumer.commit(offsets)
        except errors.KafkaError as error:
            self.failures.append(repr(error))
            return
        self._note(self._event("committed", offsets=by_partition))

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """What a program does: commit what it has worked off."""
        self._note(self._event("revoked", partitions=_numbers(revoked)))
        await self._commit()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """The member's partitions from now on."""
        self._note(self._event("assigned", partitions=_numbers(assigned)))

    def _event(self, what: str, **rest: Any) -> Event:
        return Event(at_ns=time.monotonic_ns(), member=self.name, what=what, **rest)


def _numbers(partitions: set[TopicPartition]) -> tuple[int, ...]:
    return tuple(sorted(one.partition for one in partitions))


def event_of(line: dict[str, Any]) -> Event:
    """As a process has written it: JSON has no tuples, and only text for keys."""
    return Event(
        at_ns=line["at_ns"],
        member=line["member"],
        what=line["what"],
        partitions=tuple(line["partitions"]),
        records={
            int(one): [(at, text) for at, text in rows] for one, rows in line["records"].items()
        },
        offsets={int(one): offset for one, offset in line["offsets"].items()},
    )


def _write(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def _as_process(asked: dict[str, Any]) -> None:
    allowed = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(allowed), sys.stdin
    )

    async def room() -> int:
        _write({"wants": True})
        return int(await allowed.readline() or b"0")

    member = GroupMember(
        asked["member"],
        new_consumer(asked["options"]),
        lambda event: _write(asdict(event)),
        room,
        lambda count: _write({"unused": count}),
    )
    await member.run(asked["topic"])


if __name__ == "__main__":
    asyncio.run(_as_process(json.loads(sys.argv[1])))
