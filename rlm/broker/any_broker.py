"""Whichever broker of the cluster answers: for a service that has none of its own.

Questions only, and only those that every broker answers alike. The broker that answered last is
asked first; one that does not answer passes the question on.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from kip405.errors import Unavailable
from rlm.broker.answers import ClusterDescription, TopicConfigValue, TopicDescription
from rlm.broker.connection import Address
from rlm.broker.own_broker import OwnBroker

T = TypeVar("T")
_TIMEOUT_MS = 5_000


class AnyBroker:
    """Connects at the first question; closed by its owner."""

    def __init__(self, addresses: Sequence[Address], *, client_id: str) -> None:
        self._brokers = [
            OwnBroker(one, client_id=client_id, timeout_ms=_TIMEOUT_MS) for one in addresses
        ]

    async def topic(self, name: str) -> TopicDescription:
        """NotFound: positively unknown. Unavailable: no broker answers."""
        return await self._first(lambda broker: broker.topic(name))

    async def topic_config(self, topic: str) -> Mapping[str, TopicConfigValue]:
        """Effective configuration; errors likewise."""
        return await self._first(lambda broker: broker.topic_config(topic))

    async def describe_cluster(self) -> ClusterDescription:
        """Unavailable: no broker answers."""
        return await self._first(lambda broker: broker.describe_cluster())

    async def _first(self, ask: Callable[[OwnBroker], Awaitable[T]]) -> T:
        failures: list[Unavailable] = []
        for broker in list(self._brokers):
            try:
                answer = await ask(broker)
            except Unavailable as error:
                failures.append(error)
                continue
            self._brokers.remove(broker)
            self._brokers.insert(0, broker)
            return answer
        raise Unavailable("; ".join(str(error) for error in failures)) from failures[0]

    async def close(self) -> None:
        for broker in self._brokers:
            await broker.close()
