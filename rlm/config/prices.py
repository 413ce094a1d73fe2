"""Settings of what a store and local disks cost, for `rlm cost`; nothing else uses them. Pure."""

from dataclasses import dataclass

from kip405.settings import TEXT, number, setting
from rlm.config.proxy_clients import ProxyClientsConfig

_PRICE = number(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesConfig(ProxyClientsConfig):
    """The part of a broker's service that is about prices; None = not given."""

    cost_currency: str = setting(
        "cost.currency", TEXT, "Word for the unit of all prices, such as EUR.", default=""
    )
    cost_storage_per_gib_month: float | None = setting(
        "cost.storage.per.gib.month",
        _PRICE,
        "Price of one GiB in the store for a month of 30 days.",
        default=None,
    )
    cost_put_per_1000: float | None = setting(
        "cost.put.per.1000",
        _PRICE,
        "Price of 1,000 requests that write to the store.",
        default=None,
    )
    cost_get_per_1000: float | None = setting(
        "cost.get.per.1000",
        _PRICE,
        "Price of 1,000 requests that read from the store.",
        default=None,
    )
    cost_local_per_gib_month: float | None = setting(
        "cost.local.per.gib.month",
        _PRICE,
        "Price of one GiB on the brokers' disks for a month of 30 days, of one replica.",
        default=None,
    )
