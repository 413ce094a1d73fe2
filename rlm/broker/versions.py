"""Which versions of Kafka's APIs a broker has, and whether it is new enough for a service.

A broker does not say its release. UpdateFeatures v1 came with Kafka 3.3 (KIP-778), with ZooKeeper
and without; since that release KRaft is ready for production. Older brokers are not tested with,
so a service beside one is refused instead of trusted with the only copy of data.
"""

from collections.abc import Mapping

from kafka_protocol.apis import API_VERSIONS
from kip405.errors import Invalid, Unavailable
from rlm.broker.connection import BrokerConnection

OLDEST_KAFKA = "3.3"
UPDATE_FEATURES_KEY = 57
_FIRST_OF_3_3 = 1


async def newest_versions(connection: BrokerConnection, *, timeout_ms: int) -> dict[int, int]:
    """The newest version of each API that the broker has, by API key (ApiVersions v0)."""
    answer = await connection.call(API_VERSIONS, 0, {}, timeout_ms=timeout_ms)
    if answer["error_code"]:
        what = f"API versions of the broker at {connection.address}"
        raise Unavailable(f"{what}: error {answer['error_code']}")
    return {row["api_key"]: row["max_version"] for row in answer["api_keys"]}


def check_new_enough(newest: Mapping[int, int], where: str) -> None:
    """Invalid if the broker with these versions is older than OLDEST_KAFKA; `where` names it."""
    if newest.get(UPDATE_FEATURES_KEY, -1) < _FIRST_OF_3_3:
        raise Invalid(
            f"the broker at {where} is older than Kafka {OLDEST_KAFKA}, the oldest that is "
            "supported: upgrade the broker, then start this service; until then let its clients "
            "use the broker's own listener"
        )
