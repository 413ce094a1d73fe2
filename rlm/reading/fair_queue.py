"""A fair queue: requests that a reader waits for come before read-ahead, in round-robin order of
readers.

A client that reads fifty partitions counts as fifty readers here; even so, each reader waits for at
most one job of every other. Pure.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Generic, TypeVar

J = TypeVar("J")


class _ReaderQueues(Generic[J]):
    """The queues of readers in round-robin order; the next reader comes first."""

    def __init__(self) -> None:
        self._queues: OrderedDict[int, deque[J]] = OrderedDict()
        self.count = 0

    def add(self, job: J, reader: int) -> None:
        self._queues.setdefault(reader, deque()).append(job)
        self.count += 1

    def first(self) -> J | None:
        return next(iter(self._queues.values()))[0] if self._queues else None

    def take(self) -> J:
        reader, queue = self._queues.popitem(last=False)
        job = queue.popleft()
        if queue:
            self._queues[reader] = queue
        self.count -= 1
        return job

    def remove(self, job: J, reader: int) -> bool:
        queue = self._queues.get(reader)
        if queue is None or job not in queue:
            return False
        queue.remove(job)
        self.count -= 1
        if not queue:
            del self._queues[reader]
        return True

    def drop(self, reader: int) -> tuple[J, ...]:
        dropped = tuple(self._queues.pop(reader, ()))
        self.count -= len(dropped)
        return dropped

    def __iter__(self) -> Iterator[J]:
        return (job for queue in self._queues.values() for job in queue)


class FairQueue(Generic[J]):
    """Jobs of readers (numbers) in the order in which they begin."""

    def __init__(self) -> None:
        self._wanted: _ReaderQueues[J] = _ReaderQueues()
        self._ahead: _ReaderQueues[J] = _ReaderQueues()

    @property
    def wanted_count(self) -> int:
        """Jobs that a reader waits for."""
        return self._wanted.count

    def add(self, job: J, reader: int, *, is_ahead: bool) -> None:
        """Queue a job behind the others of its reader."""
        (self._ahead if is_ahead else self._wanted).add(job, reader)

    def first(self) -> J | None:
        """The next job. While a job that a reader waits for has no room, no other job overtakes
        it.
        """
        return self._wanted.first() if self._wanted.count else self._ahead.first()

    def take(self) -> J:
        """Take out `first`; the next job of its reader waits until every other reader had one."""
        return (self._wanted if self._wanted.count else self._ahead).take()

    def promote(self, job: J, reader: int) -> bool:
        """A reader now waits for a job that was to read ahead; False if it is not queued."""
        if not self._ahead.remove(job, reader):
            return False
        self._wanted.add(job, reader)
        return True

    def remove(self, job: J, reader: int) -> bool:
        """Take out a job that a reader waits for before it is the next one."""
        return self._wanted.remove(job, reader)

    def drop_ahead(self, reader: int) -> tuple[J, ...]:
        """Take out what was to be read ahead for a reader that is gone."""
        return self._ahead.drop(reader)

    def __iter__(self) -> Iterator[J]:
        yield from self._wanted
        yield from self._ahead
