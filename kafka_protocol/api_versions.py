"""The APIs that the proxy reads, and the ApiVersions answer reduced to them.

Every version of an API that the proxy reads is either handled or not offered (G7). APIs that read
records where the remote tier cannot be spliced in are removed (H19). All others keep the broker's
own range. This module must not know what the proxy does with an API.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from kafka_protocol.apis import (
    ADD_PARTITIONS_TO_TXN,
    ALTER_CONFIGS,
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    FETCH,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    WRITE_TXN_MARKERS,
)
from kafka_protocol.frames import encode_response, parse_response_header
from kafka_protocol.primitives import Buffer, WireError
from kafka_protocol.schema import Value, VersionRange, decode, encode

UNSUPPORTED_VERSION = 35
SHARE_FETCH_KEY = 78
SHARE_ACKNOWLEDGE_KEY = 79
REMOVED_APIS = frozenset({SHARE_FETCH_KEY, SHARE_ACKNOWLEDGE_KEY})

# Produce starts at 0 although no client sends it: brokers still offer it because older librdkafka
# checks for it (KAFKA-18659), and a range cut to 3+ would make such clients give up. CreateTopics,
# DeleteTopics and WriteTxnMarkers start at 0 because brokers before 4.0 take that version, although
# Kafka's JSON of now lacks it.
READ_APIS: Mapping[int, VersionRange] = MappingProxyType(
    {
        api.key: api.versions
        for api in (
            PRODUCE,
            FETCH,
            LIST_OFFSETS,
            METADATA,
            FIND_COORDINATOR,
            API_VERSIONS,
            CREATE_TOPICS,
            DELETE_TOPICS,
            DELETE_RECORDS,
            OFFSET_FOR_LEADER_EPOCH,
            ADD_PARTITIONS_TO_TXN,
            WRITE_TXN_MARKERS,
            ALTER_CONFIGS,
            CREATE_PARTITIONS,
            INCREMENTAL_ALTER_CONFIGS,
            DESCRIBE_CLUSTER,
        )
    }
)


def is_offered(api_key: int, api_version: int) -> bool:
    """Whether a request of this version may pass: clients that ignore ApiVersions exist."""
    if api_key in REMOVED_APIS:
        return False
    handled = READ_APIS.get(api_key)
    return handled is None or handled.has(api_version)


Highest = Callable[[int], int | None]
"""The highest version of an API (by its key) that is offered now; None = all that are handled."""


def any_version(_: int) -> None:
    """A Highest: whatever is handled."""


def cap_api_versions(frame: Buffer, request_version: int, highest: Highest = any_version) -> bytes:
    """Rewrite an ApiVersions response frame (no length before it): ranges within `READ_APIS`, and
    none above `highest`.

    APIs of which nothing is left are dropped, so are ShareFetch and ShareAcknowledge. An
    UNSUPPORTED_VERSION answer has a v0 body whatever was asked (KIP-511); it is cut down likewise.
    """
    correlation_id, position = parse_response_header(frame, API_VERSIONS, request_version)
    error_code = int.from_bytes(memoryview(frame)[position : position + 2], "big", signed=True)
    version = 0 if error_code == UNSUPPORTED_VERSION else request_version
    body, end = decode(API_VERSIONS.response, version, frame, position)
    if end != len(frame):
        raise WireError(
            f"ApiVersions v{version} response: {len(frame) - end} bytes left at position {end}"
        )
    body["api_keys"] = [capped for offer in body["api_keys"] if (capped := _cap(offer, highest))]
    return correlation_id.to_bytes(4, "big", signed=True) + encode(
        API_VERSIONS.response, version, body
    )


def refuse_api_versions(correlation_id: int) -> bytes:
    """The answer, length included, to an ApiVersions request newer than ours (KIP-511)."""
    low, high = API_VERSIONS.versions
    offer = {"api_key": API_VERSIONS.key, "min_version": low, "max_version": high}
    body = {"error_code": UNSUPPORTED_VERSION, "api_keys": [offer]}
    return encode_response(API_VERSIONS, 0, correlation_id, body)


def _cap(offer: Value, highest: Highest) -> Value | None:
    if offer["api_key"] in REMOVED_APIS:
        return None
    handled = READ_APIS.get(offer["api_key"])
    if handled is None:
        return offer
    low = max(offer["min_version"], handled.low)
    high = min(offer["max_version"], handled.high)
    limit = highest(offer["api_key"])
    high = high if limit is None else min(high, limit)
    return {**offer, "min_version": low, "max_version": high} if low <= high else None
