"""A client's DeleteRecords, through the proxy's own handler beside the leader (H26).

The client asks for the same offset again until it has an answer, as Kafka's AdminClient does. Until
then the records below may be gone; from then on nothing below comes back.
"""

from collections.abc import Callable
from typing import Any, cast

from kafka_protocol.apis import DELETE_RECORDS
from kafka_protocol.error_codes import NONE, REQUEST_TIMED_OUT
from kafka_protocol.frames import encode_request, encode_response, parse_request_header
from kafka_protocol.primitives import Buffer
from kafka_protocol.schema import decode
from kip405.errors import RemoteStorageError
from rlm.proxy.delete_records import DeleteRecordsHandler
from rlm.proxy.own_topics import OwnTopics, unknown_ids
from rlm.proxy.session import Taken
from rlm.proxy.settings import ProxySettings
from tests.builders.log_dir import TOPIC
from tests.simulation.model_cluster import Broker, Cluster
from tests.simulation.model_service import Service

_VERSION = 2
_LENGTH_BYTES = 4
_SETTINGS = ProxySettings(listen_host="", listen_port=0, upstream_host="", upstream_port=0)


class _Uncounted:
    def answered(self, api: str, outcome: str) -> None: ...

    def barrier_waited(self, wait_ms: int, *, passed: bool) -> None: ...


class _Connection:
    """The client's connection to the broker: one DeleteRecords (rlm.proxy.reads.Upstream)."""

    def __init__(self, cluster: Cluster, broker: Broker, executed: Callable[[int], None]) -> None:
        self._cluster = cluster
        self._broker = broker
        self._executed = executed

    async def ask(
        self, frame: Buffer, api_version: int, correlation_id: int, stream_above: int | None
    ) -> bytearray:
        body = parse_request_header(frame).body_offset
        request, _ = decode(DELETE_RECORDS.request, api_version, frame, body)
        [topic] = request["topics"]
        [row] = topic["partitions"]
        error_code, low_watermark = await self._delete(row["offset"])
        row = {
            "partition_index": 0,
            "low_watermark": low_watermark,
            "error_code": error_code,
        }
        answer = {"topics": [{"name": TOPIC, "partitions": [row]}], "throttle_time_ms": 0}
        whole = encode_response(DELETE_RECORDS, api_version, correlation_id, answer)
        return bytearray(whole[_LENGTH_BYTES:])

    async def _delete(self, offset: int) -> tuple[int, int]:
        cluster, broker = self._cluster, self._broker

        def execute() -> int:
            self._executed(offset)
            return cluster.delete_records(broker, offset)

        try:
            low_watermark = await cluster.network.request(
                broker.process, execute, "client deletion"
            )
        except RemoteStorageError:
            return REQUEST_TIMED_OUT, -1
        return NONE, low_watermark

    async def settled(self) -> None: ...


async def delete_records(
    cluster: Cluster, service: Service, offset: int, executed: Callable[[int], None]
) -> bool:
    """Whether the client got an answer without error; to be run in the service's process.

    `executed`: called when a broker executes it, on the topic that has the name then: the request
    has no topic id.
    """
    if service.tier is None or service.client_deletions is None:
        return False
    handler = DeleteRecordsHandler(
        _SETTINGS,
        service.tier,
        service.client_deletions,
        OwnTopics(ids=unknown_ids),
        service.clock,
        cast(Any, _Uncounted()),
    )
    request = {
        "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": offset}]}],
        "timeout_ms": 5_000,
    }
    frame = encode_request(DELETE_RECORDS, _VERSION, 1, "a client", request)[_LENGTH_BYTES:]
    taken = Taken(
        api_key=DELETE_RECORDS.key,
        api_version=_VERSION,
        correlation_id=1,
        frame=bytearray(frame),
    )
    answer = await handler.handle(taken, _Connection(cluster, service.broker, executed))
    if not answer:
        return False
    whole = b"".join(bytes(one) for one in answer)
    response, _ = decode(DELETE_RECORDS.response, _VERSION, whole, _body_of(whole))
    row = response["topics"][0]["partitions"][0]
    return bool(row["error_code"] == NONE)


def _body_of(answer: bytes) -> int:
    """Where the body of an answer begins: behind length, correlation id and no tags."""
    is_flexible = DELETE_RECORDS.is_flexible(_VERSION)
    return _LENGTH_BYTES + 4 + is_flexible
