"""The hot path: scans, patches and splices Fetch requests and responses of all versions.

A Fetch answer is mostly record bytes, which must not be copied or decoded. This package must not
know why a partition is replaced, or by what.
"""

from kafka_protocol.fetch.repeated import FetchRequests
from kafka_protocol.fetch.request import (
    CONSUMER_REPLICA_ID,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    patch_fetch_request,
    scan_fetch_request,
)
from kafka_protocol.fetch.response import (
    FetchedPartition,
    FetchedTopic,
    FetchResponse,
    aborted_transactions,
    scan_fetch_response,
)
from kafka_protocol.fetch.splice import (
    PatchedPartition,
    SplicedPartition,
    overwrite_partition,
    patch_partition,
    splice_fetch_response,
)
from kafka_protocol.fetch.stream import FetchResponseScanner

__all__ = [
    "CONSUMER_REPLICA_ID",
    "FetchPartition",
    "FetchRequest",
    "FetchRequests",
    "FetchResponse",
    "FetchResponseScanner",
    "FetchTopic",
    "FetchedPartition",
    "FetchedTopic",
    "PatchedPartition",
    "SplicedPartition",
    "aborted_transactions",
    "overwrite_partition",
    "patch_fetch_request",
    "patch_partition",
    "scan_fetch_request",
    "scan_fetch_response",
    "splice_fetch_response",
]
