"""Settings records by key, and by kind: a list of one kind costs nothing for the others. Pure.

Some kinds have a record for each partition, others one for each topic or service. The kind is the
part of the key before the first slash.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Generic, TypeVar

from kip405.ids import PartitionKey

R = TypeVar("R")


class KeyedRecords(Generic[R]):
    """A dictionary whose values are listed by kind, in the order of their keys."""

    def __init__(self) -> None:
        self._by_key: dict[str, R] = {}
        self._by_kind: dict[str, dict[str, R]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def get(self, key: str) -> R | None:
        """The record of the key."""
        return self._by_key.get(key)

    def put(self, key: str, record: R) -> None:
        """The record replaces the one of its key."""
        self._by_key[key] = record
        self._by_kind.setdefault(_kind_of(key), {})[key] = record

    def drop(self, key: str) -> None:
        """The key has no record any more."""
        if self._by_key.pop(key, None) is not None:
            del self._by_kind[_kind_of(key)][key]

    def items(self) -> Iterator[tuple[str, R]]:
        """All keys and records, in no order."""
        return iter(self._by_key.items())

    def sorted(self) -> tuple[R, ...]:
        """All records."""
        return tuple(self._by_key[key] for key in sorted(self._by_key))

    def of_kind(self, kind: str) -> tuple[R, ...]:
        """The records of one kind."""
        found = self._by_kind.get(kind, {})
        return tuple(found[key] for key in sorted(found))

    def has_kind(self, kind: str) -> bool:
        """Whether there is any record of one kind."""
        return bool(self._by_kind.get(kind))

    def of_partitions(self, kind: str, partitions: Sequence[PartitionKey]) -> list[R | None]:
        """The record of the kind of each partition, without a step of Python for each."""
        found = self._by_kind.get(kind)
        if not found:
            return [None] * len(partitions)
        return list(map(found.get, map(partition_record_key, repeat(kind), partitions)))


@lru_cache(maxsize=1 << 16)
def partition_record_key(kind: str, partition: PartitionKey) -> str:
    """The key of a partition's record of a kind; kept, since every status needs some."""
    return f"{kind}/{partition}"


def _kind_of(key: str) -> str:
    return key.partition("/")[0]
