"""How rlmm asks the cluster about its two topics: id, configuration and partition count now.

aiokafka's Metadata knows no topic ids, so the question goes over our own wire layer (H6).
"""

from collections.abc import Mapping
from typing import Protocol

from kip405.errors import NotFound
from rlm.broker.answers import TopicConfigValue
from rlm.broker.answers import TopicDescription as DescribedTopic
from rlmm.topic import DescribeTopic, TopicDescription


class _Broker(Protocol):
    async def topic(self, name: str) -> DescribedTopic: ...

    async def topic_config(self, topic: str) -> Mapping[str, TopicConfigValue]: ...


def describe_through(broker: _Broker) -> DescribeTopic:
    """A question to our own broker's direct listener (a reader: to any broker's); None =
    positively unknown.
    """

    async def describe(name: str) -> TopicDescription | None:
        try:
            topic = await broker.topic(name)
        except NotFound:
            return None
        configs = await broker.topic_config(name)
        values = {key: row.value for key, row in configs.items() if row.value is not None}
        return topic.topic_id, values, len(topic.partitions)

    return describe
