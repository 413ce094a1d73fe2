"""What tiered topics cost a month: as they are, with a local retention, and if the brokers kept all
of it. Pure.

A price that is not given makes its item unknown, never free (H38). A month has 30 days.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields

GIB = 1 << 30
DAYS_OF_MONTH = 30
MONTH_MS = DAYS_OF_MONTH * 86_400_000
_SETTING_OF = {
    "storage_gib_month": "cost.storage.per.gib.month",
    "put_1000": "cost.put.per.1000",
    "get_1000": "cost.get.per.1000",
    "local_gib_month": "cost.local.per.gib.month",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """By setting; None = not given."""

    currency: str = ""
    storage_gib_month: float | None = None
    put_1000: float | None = None
    get_1000: float | None = None
    local_gib_month: float | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """The settings of prices that are not given."""
        return tuple(key for name, key in _SETTING_OF.items() if getattr(self, name) is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicVolumes:
    """What a topic has and how it grows, of one replica. `local_grows`: nothing deletes from its
    local log. `freed_bytes`: what of the local log the local retention in question would free.
    """

    replicas: int
    remote_bytes: int
    unsaved_bytes: int
    """Closed segments that are not remote."""

    bytes_a_day: int
    puts_a_day: int
    local_bytes: int
    freed_bytes: int
    local_grows: bool

    @property
    def untiered_bytes(self) -> int:
        """The local log if the brokers had kept all that is remote."""
        return max(self.local_bytes, self.remote_bytes + self.unsaved_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthlyCost:
    """Items of a month's bill; None = the price, or the amount, is not known."""

    storage: float | None
    puts: float | None
    gets: float | None
    local: float | None

    @property
    def known(self) -> float:
        """The sum of what is known."""
        return sum(one for one in self.items if one is not None)

    @property
    def total(self) -> float | None:
        return None if None in self.items else self.known

    @property
    def items(self) -> tuple[float | None, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bills:
    """The same topics in three ways. `kept`: local logs as they are; `limited`: trimmed to the
    local retention in question; `untiered`: all on the brokers, without a store.
    """

    kept: MonthlyCost
    limited: MonthlyCost
    untiered: MonthlyCost


def bills(
    topics: Iterable[TopicVolumes], prices: Prices, *, gets_a_month: float | None, months: int
) -> Bills:
    """The bill of one month, `months` from now at the present growth; 0 = that of today."""
    rows = tuple(topics)
    days = months * DAYS_OF_MONTH
    remote = sum(one.remote_bytes + one.bytes_a_day * days for one in rows)
    puts = sum(one.puts_a_day for one in rows) * DAYS_OF_MONTH
    kept = sum(_on_brokers(one, one.local_bytes, days if one.local_grows else 0) for one in rows)
    limited = sum(_on_brokers(one, one.local_bytes - one.freed_bytes, 0) for one in rows)
    untiered = sum(_on_brokers(one, one.untiered_bytes, days) for one in rows)

    def with_store(local_bytes: int) -> MonthlyCost:
        return MonthlyCost(
            storage=_times(prices.storage_gib_month, remote / GIB),
            puts=_times(prices.put_1000, puts / 1_000),
            gets=None if gets_a_month is None else _times(prices.get_1000, gets_a_month / 1_000),
            local=_times(prices.local_gib_month, local_bytes / GIB),
        )

    local_alone = _times(prices.local_gib_month, untiered / GIB)
    return Bills(
        kept=with_store(kept),
        limited=with_store(limited),
        untiered=MonthlyCost(storage=0.0, puts=0.0, gets=0.0, local=local_alone),
    )


def a_month(count: int, within_ms: int) -> float | None:
    """How many a month at the rate of the time in which so many were counted; None without any
    time.
    """
    return count * MONTH_MS / within_ms if within_ms > 0 else None


def _on_brokers(topic: TopicVolumes, size_bytes: int, days_of_growth: int) -> int:
    return topic.replicas * (size_bytes + topic.bytes_a_day * days_of_growth)


def _times(price: float | None, amount: float) -> float | None:
    return None if price is None else price * amount
