"""What a client may give twice that begins again where it has committed last. Pure.

A client that is alone in its group and joins it again, as kafkajs does when a leader has changed,
takes no more of its own word for where it was than what it has committed. So it goes back, never
before its last commit, and reads on from there in order: it leaves nothing out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.scenarios.cluster import Row


@dataclass(frozen=True, slots=True)
class Commit:
    """A client was told that it has committed; `offset` is the next one of the partition."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """Offsets from `offset` on, before `end`, which the client had been given already."""

    partition: int
    offset: int
    end: int


def repeats_of(events: Iterable[Row | Commit], starts: Mapping[int, int]) -> list[Repeat]:
    """How often a client went back, of what it was given and has committed, in the order of both.

    AssertionError: it was given a record before its last commit, or not the next one.
    """
    position, committed, found = dict(starts), dict(starts), []
    for one in events:
        partition, offset = one.partition, one.offset
        if isinstance(one, Commit):
            committed[partition] = offset
            continue
        due, last = position[partition], committed[partition]
        assert offset <= due, f"partition {partition}: {offset} came instead of {due}"
        assert offset >= last or offset == due, (
            f"partition {partition}: {offset} came again, but {last} is committed"
        )
        if offset < due:
            found.append(Repeat(partition, offset, due))
        position[partition] = offset + 1
    return found
