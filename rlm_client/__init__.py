"""The Tiered Storage Consumer: aiokafka's consumer that reads old offsets from the remote tier.

`TieredStorageConsumer` is for asyncio, `BlockingTieredStorageConsumer` for threads. Groups, commits
and the newest records are Kafka's; what Kafka no longer has comes from the fetch API of services.
"""

from rlm_client.blocking import BlockingTieredStorageConsumer
from rlm_client.consumer import TieredStorageConsumer
from rlm_client.counters import ConsumerCounters, TierCounters
from rlm_client.errors import RemoteTierError, RemoteTierTimeout

__all__ = [
    "BlockingTieredStorageConsumer",
    "ConsumerCounters",
    "RemoteTierError",
    "RemoteTierTimeout",
    "TierCounters",
    "TieredStorageConsumer",
]
