"""What is made of each partition, and made again only where something that it follows from changed.

A report of ten thousand partitions may not compute each of them again. Nobody has to say what
changed: what the values follow from is read at each report, as one column of inputs after the
other, and compared with the columns of the report before. That takes no step of Python for each
partition. Must not know what is made.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress, count
from operator import is_not
from typing import Any, Generic, TypeVar

from kip405.ids import PartitionKey

T = TypeVar("T")
FOREVER_MS = 1 << 62
AT_EACH_REPORT_MS = -1


def columns(
    keys: Sequence[PartitionKey], *known: Mapping[PartitionKey, object]
) -> Iterator[list[Any]]:
    """The inputs that each mapping has of these partitions, None where it has none."""
    return (list(map(one.get, keys)) for one in known)


class PerPartition(Generic[T]):
    """`make` gets the inputs of one partition, and answers the value and until when it is true.

    After that time it is made again although no input changed; FOREVER_MS and AT_EACH_REPORT_MS say
    that it never and always is. Inputs are compared by identity: they must be replaced, never
    changed. Those that are equal and not the same cost time only.
    """

    def __init__(self, make: Callable[..., tuple[T, int]]) -> None:
        self._make = make
        self._keys: Sequence[PartitionKey] = ()
        self._inputs: Sequence[Sequence[object]] = ()
        self._values: list[Any] = []
        self._until_ms: list[int] = []

    def read(
        self, keys: Sequence[PartitionKey], *inputs: Sequence[object], now_ms: int = 0
    ) -> Sequence[T]:
        """The value of each of these partitions, in their order; all others are forgotten. Each
        column of `inputs` has an input for each of them. `now_ms`: by the clock of `make`'s times,
        not negative.
        """
        if keys != self._keys:
            self._take(keys)
        changed: set[int] = set()
        if min(self._until_ms, default=now_ms) < now_ms:
            changed.update(at for at, until in enumerate(self._until_ms) if until < now_ms)
        for column, before in zip(inputs, self._inputs or inputs, strict=True):
            if column is not before:
                changed.update(compress(count(), map(is_not, column, before)))
        made = [(at, self._make(*(column[at] for column in inputs))) for at in sorted(changed)]
        for at, found in made:  # only now: where `make` raises, nothing is kept of this report
            self._values[at], self._until_ms[at] = found
        self._inputs = inputs
        return tuple(self._values)

    def _take(self, keys: Sequence[PartitionKey]) -> None:
        """Other partitions than before, or in another order: what is known of each is kept."""
        known = dict(zip(self._keys, count()))
        order = [known.get(key, -1) for key in keys]

        def moved(column: Sequence[Any], new: object) -> list[Any]:
            with_new = (*column, new)
            return [with_new[at] for at in order]

        self._values = moved(self._values, None)
        self._until_ms = moved(self._until_ms, AT_EACH_REPORT_MS)
        self._inputs = tuple(moved(column, None) for column in self._inputs)
        self._keys = keys
