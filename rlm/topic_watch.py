"""How rlmm asks the cluster about its two topics: id, configuration and partition count now.

aiokafka's Metadata knows no topic ids, so the question goes over our own wire layer (H6).
"""

from kip405.errors import NotFound
from rlm.broker.own_broker import OwnBroker
from rlmm.topic import DescribeTopic, TopicDescription


def describe_through(broker: OwnBroker) -> DescribeTopic:
    """A question to our own broker's direct listener; None = positively unknown."""

    async def describe(name: str) -> TopicDescription | None:
        try:
            topic = await broker.topic(name)
        except NotFound:
            return None
        configs = await broker.topic_config(name)
        values = {key: row.value for key, row in configs.items() if row.value is not None}
        return topic.topic_id, values, len(topic.partitions)

    return describe
