"""Asks the brokers of the cluster whether they know topics by their ids (H7); reads only."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

import structlog

from kip405.errors import RemoteStorageError
from kip405.ids import Uuid
from rlm.broker.answers import TopicIdAnswer
from rlm.plans.topic_end import BrokerAnswer, unknown_everywhere

log = structlog.get_logger(__name__)


class _Broker(Protocol):
    async def topic_ids(self, topic_ids: Sequence[Uuid]) -> TopicIdAnswer: ...


class _Node(Protocol):
    @property
    def calls(self) -> _Broker: ...


class _Brokers(Protocol):
    """The brokers that are alive, our own among them (rlm.topics.cluster.OtherBrokers)."""

    async def all(self) -> Mapping[int, _Node]: ...


class TopicPresence:
    """`node_id`: of our own broker, which is asked first."""

    def __init__(self, *, node_id: int, own: _Broker, brokers: _Brokers) -> None:
        self._node_id = node_id
        self._own = own
        self._brokers = brokers

    async def ask(
        self, topic_ids: Sequence[Uuid], ledger_topic_id: Uuid
    ) -> tuple[BrokerAnswer, ...]:
        """What every broker that answers says of the topics, and of the ledger topic in the same
        answer. The other brokers are asked only about topics that our own does not know. Its error
        is raised; another broker that does not answer is left out.
        """
        own = _evidence(self._node_id, await self._own.topic_ids([*topic_ids, ledger_topic_id]))
        unknown = sorted(unknown_everywhere([own], topic_ids))
        if not unknown:
            return (own,)
        nodes = await self._brokers.all()
        others = {
            node_id: node.calls for node_id, node in nodes.items() if node_id != self._node_id
        }
        answers = await asyncio.gather(
            *(_ask(one, broker, [*unknown, ledger_topic_id]) for one, broker in others.items())
        )
        return (own, *(answer for answer in answers if answer is not None))


async def _ask(node_id: int, broker: _Broker, topic_ids: Sequence[Uuid]) -> BrokerAnswer | None:
    try:
        return _evidence(node_id, await broker.topic_ids(topic_ids))
    except RemoteStorageError as error:
        log.info("topic_ids_not_answered", broker=node_id, error=str(error))
        return None


def _evidence(node_id: int, answer: TopicIdAnswer) -> BrokerAnswer:
    return BrokerAnswer(
        node_id=node_id,
        cluster_id=answer.cluster_id,
        error_codes=answer.error_codes,
        brokers=answer.brokers,
    )
