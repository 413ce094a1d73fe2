"""Stores and losses of one node, as the API asks for them."""

from dataclasses import dataclass

from kip405.ids import PartitionKey
from rlm.plans.coverage import LostRange
from rlm.stores.reports import StoreReport, StoreStatus


class ApiLosses:
    """What an operator may accept; `asked` is (partition, by whom, whether to apply)."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str, bool]] = []

    async def accept(self, key: PartitionKey, *, by: str, apply: bool) -> tuple[LostRange, ...]:
        self.asked.append((key.partition, by, apply))
        return (LostRange(start=10, next_offset=20, segments=1, size_bytes=99, why="gone"),)


@dataclass(kw_only=True)
class ApiStores:
    """StoreDoctor of one node, and what its status says of stores."""

    statuses: tuple[StoreStatus, ...] = ()
    reports: tuple[StoreReport, ...] = ()

    async def inspect(self) -> tuple[StoreReport, ...]:
        return self.reports
