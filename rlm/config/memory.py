"""Divides the memory of a service among what takes it: `memory.max.bytes`, and its parts. Pure.

A part that is set has what is set; the others share what is left, by weight. Without
`memory.max.bytes` no part is larger than was measured to be useful, so that a large machine has
memory left for its broker, and no part that is set is refused. Plugins of stores are processes of
their own and not counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kip405.errors import Invalid

MEMORY_KEY = "memory.max.bytes"
COPY_BYTES = 24 << 20
"""What a copy of a large segment takes: its indexes, of which Kafka's have up to 10 MiB each, once
as they are and once as an object, and pieces of data."""
PROCESS_BYTES = 192 << 20
"""Code, libraries, snapshots of partitions, and second requests for reads (32 MiB)."""
WORKER_BYTES = 128 << 20
"""The same of a proxy worker, with the least that it has for records of the remote tier."""
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A setting that is a part of the memory. `least_bytes`: below it nothing works well.
    `usual_bytes`: its size where nothing is set and there is enough. `for_workers`: of each 4
    bytes, workers have so many beside them.
    """

    name: str
    key: str
    weight: int
    least_bytes: int
    usual_bytes: int
    for_workers: int = 0


CHUNKS = Part(
    name="fetch_chunk_cache_bytes",
    key="fetch.chunk.cache.bytes",
    weight=4,
    least_bytes=16 * _MIB,
    usual_bytes=256 * _MIB,
    for_workers=1,
)
LEDGER = Part(
    name="ledger_memory_bytes",
    key="ledger.memory.bytes",
    weight=2,
    least_bytes=16 * _MIB,
    usual_bytes=256 * _MIB,
)
PROXY = Part(
    name="proxy_memory_max_bytes",
    key="proxy.memory.max.bytes",
    weight=4,
    least_bytes=16 * _MIB,
    usual_bytes=512 * _MIB,
)
COPIES = Part(
    name="copy_memory_max_bytes",
    key="copy.memory.max.bytes",
    weight=2,
    least_bytes=COPY_BYTES,
    usual_bytes=10 * COPY_BYTES,
)
SERVICE_PARTS = (CHUNKS, PROXY, COPIES, LEDGER)
READER_PARTS = (CHUNKS, LEDGER)


def service_parts(copy_tasks: int) -> tuple[Part, ...]:
    """Of a service with so many copy tasks: where nothing is set, each has memory for a segment."""
    copies = replace(COPIES, usual_bytes=copy_tasks * COPY_BYTES)
    return tuple(copies if part is COPIES else part for part in SERVICE_PARTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """`max_bytes` is the whole; None: not set, and `limit_bytes` is what may be used here at most,
    of which a service takes half. `workers`: processes for clients.
    """

    parts: Sequence[Part]
    max_bytes: int | None
    limit_bytes: int
    workers: int = 0

    @property
    def fixed_bytes(self) -> int:
        """Of the processes themselves."""
        return PROCESS_BYTES + self.workers * WORKER_BYTES

    def whole_bytes(self, given: Mapping[str, int]) -> int:
        """What is divided; where it is not set, never less than a service with these parts needs:
        an upgrade must not refuse parts that were set before there was a whole, nor make the others
        small where three quarters of the limit have room for them.
        """
        if self.max_bytes is not None:
            return self.max_bytes
        usual = {part.name: part.usual_bytes for part in self.parts}
        wanted = self._needed_bytes({**usual, **given}) if given else 0
        most_beside = min(wanted, self.limit_bytes * 3 // 4)
        return max(self.limit_bytes // 2, self._needed_bytes(given), most_beside)

    def divided(self, given: Mapping[str, int]) -> dict[str, int]:
        """The size of every part, by name. `given`: those that are set. Invalid, with the numbers,
        where they do not fit into what is set.
        """
        rest = [part for part in self.parts if part.name not in given]
        sizes = {part.name: given[part.name] for part in self.parts if part.name in given}
        whole_bytes = self.whole_bytes(given)
        if whole_bytes < self._needed_bytes(given):
            raise Invalid(self._refusal(given))
        left = whole_bytes - self.fixed_bytes - self._cost(sizes)
        while rest:
            shares = {part: self._share(part, left, rest) for part in rest}
            ends = [part for part in rest if shares[part] < part.least_bytes]
            settled = {part: part.least_bytes for part in ends}
            if not ends and self.max_bytes is None:
                settled = {
                    part: part.usual_bytes for part in rest if shares[part] > part.usual_bytes
                }
            for part, size_bytes in (settled or shares).items():
                sizes[part.name] = size_bytes
                rest.remove(part)
                left -= self._cost({part.name: size_bytes})
        return sizes

    def _share(self, part: Part, left: int, rest: Sequence[Part]) -> int:
        cost = left * part.weight // sum(one.weight for one in rest)
        return cost * 4 // (4 + self._for_workers(part))

    def _cost(self, sizes: Mapping[str, int]) -> int:
        """What parts of these sizes take, with what workers have beside them."""
        named = {part.name: part for part in self.parts}
        return sum(
            size_bytes + size_bytes * self._for_workers(named[name]) // 4
            for name, size_bytes in sizes.items()
        )

    def _for_workers(self, part: Part) -> int:
        return part.for_workers if self.workers else 0

    def _least_sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        return {part.name: given.get(part.name, part.least_bytes) for part in self.parts}

    def _needed_bytes(self, given: Mapping[str, int]) -> int:
        return self.fixed_bytes + self._cost(self._least_sizes(given))

    def _refusal(self, given: Mapping[str, int]) -> str:
        sizes, needed = self._least_sizes(given), self._needed_bytes(given)
        rows = [f"the service itself {self.fixed_bytes}"]
        for part in self.parts:
            least = "" if part.name in given else "at least "
            rows.append(f"{part.key} {least}{sizes[part.name]}")
        if extra := self._cost(sizes) - sum(sizes.values()):
            rows.append(f"records of the remote tier in proxy workers {extra}")
        return (
            f"{MEMORY_KEY}: is {self.max_bytes}, and its parts are {needed}: "
            f"{', '.join(rows)}; set it to {needed} or more, or lower a part"
        )
