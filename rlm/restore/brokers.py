"""Connections to the brokers of the target cluster, and who of them to ask: leader, coordinator.

Which error of Kafka means that the same restore may go on soon is decided here, once.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from kafka_clients.channel_security import ChannelSecurity
from kafka_protocol import error_codes
from kafka_protocol.apis import DESCRIBE_CLUSTER, FIND_COORDINATOR
from kafka_protocol.schema import Api, Value
from kip405.acls import Acl, missing_acls
from kip405.addresses import Address
from kip405.errors import Fenced, Invalid, NotFound, RemoteStorageError, Unavailable
from kip405.ids import Uuid
from rlm.broker.answers import NOT_AUTHORIZED, TopicDescription
from rlm.broker.connection import BrokerConnection
from rlm.broker.many import Many, first_answer
from rlm.clock import Clock

_TIMEOUT_MS = 30_000
_MOST_THROTTLE_MS = 30_000
GROUP, TRANSACTION = 0, 1
"""The kinds of coordinators."""

_FENCED = {error_codes.INVALID_PRODUCER_EPOCH, error_codes.PRODUCER_FENCED}
_PASSING = {
    error_codes.UNKNOWN_TOPIC_OR_PARTITION,  # right after its creation
    error_codes.LEADER_NOT_AVAILABLE,
    error_codes.NOT_LEADER_OR_FOLLOWER,
    error_codes.REQUEST_TIMED_OUT,
    error_codes.NETWORK_EXCEPTION,
    error_codes.COORDINATOR_LOAD_IN_PROGRESS,
    error_codes.COORDINATOR_NOT_AVAILABLE,
    error_codes.NOT_COORDINATOR,
    error_codes.NOT_ENOUGH_REPLICAS,
    error_codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    error_codes.NOT_CONTROLLER,
    error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER,
    error_codes.INVALID_TXN_STATE,
    error_codes.INVALID_PRODUCER_ID_MAPPING,
    error_codes.CONCURRENT_TRANSACTIONS,
    error_codes.KAFKA_STORAGE_ERROR,
    error_codes.UNKNOWN_PRODUCER_ID,
    error_codes.FENCED_LEADER_EPOCH,
    error_codes.UNKNOWN_LEADER_EPOCH,
    error_codes.OFFSET_NOT_AVAILABLE,
    error_codes.UNSTABLE_OFFSET_COMMIT,
    error_codes.THROTTLING_QUOTA_EXCEEDED,
    error_codes.TRANSACTION_ABORTABLE,
}
_REMEDIES = {
    error_codes.MESSAGE_TOO_LARGE: "raise max.message.bytes of the topic",
    error_codes.RECORD_LIST_TOO_LARGE: "raise segment.bytes of the topic",
    error_codes.INVALID_TIMESTAMP: (
        "raise message.timestamp.before.max.ms or .after.max.ms of the topic"
    ),
    error_codes.INVALID_TRANSACTION_TIMEOUT: (
        "raise transaction.max.timeout.ms of the brokers to a minute"
    ),
}


def refusal(code: int, what: str, detail: str | None = None, *, needs: Acl) -> RemoteStorageError:
    """A Kafka error code as one of our kinds. Unavailable: abort, and go on from what was
    committed; Fenced: another restore of the partition has begun since.
    """
    name = error_codes.error_name(code)
    remedy = f": {_REMEDIES[code]}" if code in _REMEDIES else ""
    message = f"{what}: {name}{remedy} ({code})" + (f": {detail}" if detail else "")
    if code in NOT_AUTHORIZED:
        return missing_acls(message, [needs])
    if code in _FENCED:
        return Fenced(
            f"{message}: another `rlm restore` of this partition has begun since, or the "
            "transaction took too long; the same command goes on"
        )
    return Unavailable(message) if code in _PASSING else Invalid(message)


def raise_refusal(code: int, what: str, detail: str | None = None, *, needs: Acl) -> None:
    if code:
        raise refusal(code, what, detail, needs=needs)


class Brokers:
    """One connection to each address, for one event loop; the owner closes them."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        *,
        client_id: str,
        security: ChannelSecurity,
        clock: Clock,
    ) -> None:
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._security = security
        self._clock = clock
        self._open: dict[Address, BrokerConnection] = {}
        self._throttled_until_ms: dict[Address, int] = {}
        self._turns: defaultdict[Address, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def ask(self, address: Address, api: Api, version: int, body: Mapping[str, Any]) -> Value:
        """One request, once a quota of the broker permits it (KIP-219): until then the broker would
        read nothing, and the request would seem to hang. Unavailable where no answer comes.
        """
        async with self._turns[address]:  # batches of a producer stay in order
            left_ms = self._throttled_until_ms.get(address, 0) - self._clock.monotonic_ms()
            if left_ms > 0:
                await self._clock.sleep_ms(left_ms)
        answer = await self._at(address).call(api, version, body, timeout_ms=_TIMEOUT_MS)
        throttle_ms = min(answer.get("throttle_time_ms") or 0, _MOST_THROTTLE_MS)
        if throttle_ms > 0:
            self._throttled_until_ms[address] = self._clock.monotonic_ms() + throttle_ms
        return answer

    async def ask_any(self, api: Api, version: int, body: Mapping[str, Any]) -> Value:
        """Of the first broker that answers."""
        return await first_answer(
            self._bootstrap, lambda address: self.ask(address, api, version, body)
        )

    async def addresses(self) -> dict[int, Address]:
        """All brokers by their ids."""
        answer = await self.ask_any(DESCRIBE_CLUSTER, 0, {})
        return {
            node["broker_id"]: Address(host=node["host"], port=node["port"])
            for node in answer["brokers"]
        }

    async def topic(self, name: str) -> TopicDescription:
        """NotFound if there is none."""
        found = await first_answer(self._bootstrap, lambda address: self._topic(address, name))
        if isinstance(found, RemoteStorageError):
            raise found
        return found

    async def _topic(self, address: Address, name: str) -> TopicDescription | RemoteStorageError:
        return (await self.many(address).topics([name]))[name]

    def many(self, address: Address) -> Many:
        return Many(self._at(address), timeout_ms=_TIMEOUT_MS)

    def bootstrap(self) -> tuple[Address, ...]:
        return tuple(self._bootstrap)

    async def leader(self, topic: str, topic_id: Uuid, partition: int) -> Address:
        """The leader of a partition. NotFound: the topic was deleted, or is another one by now.
        Unavailable: there is no leader now.
        """
        described = await self.topic(topic)
        if described.topic_id != topic_id:
            raise NotFound(f"topic {topic!r} was deleted and created again meanwhile")
        row = described.partitions.get(partition)
        address = (await self.addresses()).get(row.leader) if row is not None else None
        if address is None:
            raise Unavailable(f"{topic}-{partition} has no leader now")
        return address

    async def coordinator(self, kind: int, key: str, needs: Acl) -> Address:
        body = {"key": key, "key_type": kind}
        answer = await self.ask_any(FIND_COORDINATOR, 3, body)
        what = f"find the coordinator of {key}"
        raise_refusal(answer["error_code"], what, answer["error_message"], needs=needs)
        return Address(host=answer["host"], port=answer["port"])

    async def close(self) -> None:
        for connection in self._open.values():
            await connection.close()

    def _at(self, address: Address) -> BrokerConnection:
        if address not in self._open:
            self._open[address] = BrokerConnection(
                address, client_id=self._client_id, security=self._security
            )
        return self._open[address]
