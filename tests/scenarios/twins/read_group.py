"""A group of consumers that reads a topic at the pace of a test, whose members come and go."""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from tests.builders.opened import opened
from tests.scenarios.cluster import fresh
from tests.scenarios.twins.deliveries import Event, Record
from tests.scenarios.twins.group_member import GroupMember, event_of, new_consumer

LIMIT_S = 240
_MOST = 40
_POLL_S = 0.1
_LINE_BYTES = 1 << 20


class ReadGroup:
    """`options` of each consumer; `expected`: what there is to read, by partition. The group takes
    no more records than it is allowed (`may_take`).
    """

    def __init__(
        self, topic: str, expected: Mapping[int, Sequence[Record]], options: dict[str, Any]
    ) -> None:
        self.topic = topic
        self.group = fresh("group")
        self.events: list[Event] = []
        self.failures: list[str] = []
        self.counters: dict[str, Any] = {}
        self.expected = expected
        self._options = options
        self._last = dict.fromkeys(expected, -1)
        self._members: dict[str, GroupMember] = {}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[str] = set()
        self._assigned: dict[str, tuple[int, ...]] = {}
        self._left = 0
        self._taken = 0
        self._changed = asyncio.Event()

    # What the test does.

    async def joins(self, name: str, *, as_process: bool = False) -> None:
        """Returns when all members have their partitions."""
        if as_process:
            self._tasks[name] = asyncio.create_task(self._process(name))
        else:
            consumer = new_consumer(self._options_of(name))
            member = GroupMember(
                name, consumer, self._note, lambda: self._room(name), self._give_back
            )
            self._members[name] = member
            self._tasks[name] = asyncio.create_task(member.run(self.topic))
        self._assigned[name] = ()
        await self.is_balanced()

    async def leaves(self, name: str) -> None:
        """It commits, says goodbye, and the others have its partitions."""
        self._leaving.add(name)
        self._change()
        async with asyncio.timeout(LIMIT_S):
            await self._tasks.pop(name)
        self._keep(name)
        self._assigned.pop(name)

    async def is_killed(self, name: str) -> None:
        """SIGKILL; that others have its partitions takes the session's time."""
        process = self._processes.pop(name)
        process.kill()
        self._leaving.add(name)  # what it has asked for needs no answer
        self._change()
        async with asyncio.timeout(LIMIT_S):
            await self._tasks.pop(name)
        self._note(Event(at_ns=time.monotonic_ns(), member=name, what="lost"))
        self._assigned.pop(name)

    async def is_balanced(self) -> None:
        """Each partition is one member's, and each member has some."""
        await self.wait_for(
            lambda: (
                all(self._assigned.values())
                and sorted(one for part in self._assigned.values() for one in part)
                == sorted(self.expected)
            ),
            "balanced",
        )

    def may_take(self, share: float) -> None:
        """That much of all records, together with those that were taken before."""
        wanted = int(share * sum(map(len, self.expected.values())))
        self._left = max(0, wanted - self._taken)
        self._change()

    async def reads(self, share: float) -> None:
        """Until so much was taken, or the end."""
        self.may_take(share)
        wanted = int(share * sum(map(len, self.expected.values())))
        await self.wait_for(lambda: self._taken >= wanted or self.is_at_end, f"taken {wanted}")

    @property
    def share_taken(self) -> float:
        return round(self._taken / sum(map(len, self.expected.values())), 3)

    @property
    def is_at_end(self) -> bool:
        return all(rows[-1][0] <= self._last[one] for one, rows in self.expected.items())

    async def reads_to_end(self, ends: Mapping[int, int]) -> dict[int, int]:
        """All that is left; the positions when they are where the log ends. Then all are committed
        and committed offsets are the same.
        """
        self._left = sys.maxsize
        self._change()
        await self.wait_for(lambda: self.is_at_end, "the last records")
        positions: dict[int, int] = {}
        async with asyncio.timeout(LIMIT_S):
            while not all(positions.get(one, -1) >= end for one, end in ends.items()):
                await asyncio.sleep(_POLL_S)
                self._check()
                positions = await self._positions()
        for member in self._members.values():
            if member.name in self._tasks:
                await member.consumer.commit()
        return positions

    async def committed(self) -> dict[int, int]:
        """What the group has committed."""
        found = {}
        for name, member in self._members.items():
            if name in self._tasks:
                for one in member.consumer.assignment():
                    found[one.partition] = await member.consumer.committed(one)
        return found

    async def _positions(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for name, member in self._members.items():
            if name in self._tasks:
                for one in member.consumer.assignment():
                    found[one.partition] = await member.consumer.position(one)
        return found

    async def wait_for(self, reached: Callable[[], bool], what: str) -> None:
        """AssertionError: it never came. What a member has died of is raised."""
        try:
            async with asyncio.timeout(LIMIT_S):
                while not reached():
                    self._check()
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as error:
            failures = [*self.failures, *(o for m in self._members.values() for o in m.failures)]
            raise AssertionError(
                f"{self.topic} {self._options}: {what}: not within {LIMIT_S} s; {self._taken} "
                f"taken, last {self._last}, {self._assigned}, {failures[-3:]}"
            ) from error

    def _check(self) -> None:
        for name, task in self._tasks.items():
            if task.done():
                task.result()
                raise AssertionError(f"member {name} has ended")

    async def end(self) -> None:
        """All leave, or are ended."""
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for name in list(self._tasks):
            self._keep(name)

    def _keep(self, name: str) -> None:
        member = self._members.get(name)
        if member is not None:
            self.failures += member.failures
            if hasattr(member.consumer, "counters"):
                self.counters[name] = member.consumer.counters()

    # What members ask.

    async def _room(self, name: str) -> int:
        await asyncio.sleep(0)  # whoever waits comes first
        while self._left <= 0 and name not in self._leaving:
            await self._changed.wait()
        if name in self._leaving:
            return 0
        most = min(_MOST, self._left)
        self._left -= most
        return most

    def _give_back(self, count: int) -> None:
        self._left += count
        if count:
            self._change()

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _note(self, event: Event) -> None:
        self.events.append(event)
        for partition, records in event.records.items():
            self._taken += len(records)
            self._last[partition] = max(self._last[partition], records[-1][0])
        if event.what in ("assigned", "revoked"):
            self._assigned[event.member] = event.partitions if event.what == "assigned" else ()

    def _options_of(self, name: str) -> dict[str, Any]:
        return {**self._options, "group_id": self.group, "client_id": f"{name}-{self.group}"}

    async def _process(self, name: str) -> None:
        asked = {"member": name, "topic": self.topic, "options": self._options_of(name)}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.scenarios.twins.group_member", json.dumps(asked)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
        )
        self._processes[name] = process
        assert process.stdin is not None and process.stdout is not None
        asked_for = 0
        async for line in process.stdout:
            if not line.endswith(b"\n"):
                break  # it was killed while it wrote
            said = json.loads(line)
            if "wants" in said:
                asked_for = await self._room(name)
                with contextlib.suppress(ConnectionError):
                    process.stdin.write(b"%d\n" % asked_for)
                    await process.stdin.drain()
            elif "unused" in said:
                self._give_back(said["unused"])
                asked_for = 0
            else:
                self._note(event_of(said))
        self._give_back(asked_for)
        await process.wait()


@contextlib.asynccontextmanager
async def ended(groups: Sequence[ReadGroup]) -> AsyncIterator[None]:
    """Members are gone after it."""
    try:
        yield
    finally:
        for group in groups:
            await group.end()


async def all_records(
    topic: str, ends: Mapping[int, int], options: dict[str, Any]
) -> dict[int, list[Record]]:
    """By aiokafka without a group, up to the ends."""
    from tests.scenarios.twins.group_member import digest_of

    found: dict[int, list[Record]] = {one: [] for one in ends}
    consumer = AIOKafkaConsumer(**options, auto_offset_reset="earliest")
    partitions = [TopicPartition(topic, one) for one in ends]
    consumer.assign(partitions)
    async with opened(consumer), asyncio.timeout(LIMIT_S):
        while True:
            for one, rows in (await consumer.getmany(timeout_ms=200)).items():
                found[one.partition] += [digest_of(row) for row in rows]
            positions = [await consumer.position(one) >= ends[one.partition] for one in partitions]
            if all(positions):
                return found
