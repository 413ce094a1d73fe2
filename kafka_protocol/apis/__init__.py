"""Tables of the APIs that are read or sent, by Kafka's names (`FETCH.request` and so on).

A version that a table lacks is removed from ApiVersions, so this is the list of what the proxy and
the direct broker connection understand. This package must not know who uses an API for what.
"""

from kafka_protocol.apis.acls import CREATE_ACLS, DESCRIBE_ACLS
from kafka_protocol.apis.cluster import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_PRODUCERS,
    METADATA,
)
from kafka_protocol.apis.delegation_tokens import (
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
)
from kafka_protocol.apis.fetch import FETCH
from kafka_protocol.apis.groups import (
    DESCRIBE_SHARE_GROUP_OFFSETS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    OFFSET_FETCH,
)
from kafka_protocol.apis.membership import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    SYNC_GROUP,
)
from kafka_protocol.apis.offsets import DELETE_RECORDS, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from kafka_protocol.apis.produce import ADD_PARTITIONS_TO_TXN, PRODUCE, WRITE_TXN_MARKERS
from kafka_protocol.apis.quotas import DESCRIBE_CLIENT_QUOTAS
from kafka_protocol.apis.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafka_protocol.apis.topics import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
)
from kafka_protocol.apis.transactions import (
    ADD_OFFSETS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
)
from kafka_protocol.schema import Api

APIS: dict[int, Api] = {
    one.key: one
    for one in (
        PRODUCE,
        FETCH,
        LIST_OFFSETS,
        METADATA,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        FIND_COORDINATOR,
        JOIN_GROUP,
        HEARTBEAT,
        LEAVE_GROUP,
        SYNC_GROUP,
        LIST_GROUPS,
        SASL_HANDSHAKE,
        API_VERSIONS,
        CREATE_TOPICS,
        DELETE_TOPICS,
        DELETE_RECORDS,
        OFFSET_FOR_LEADER_EPOCH,
        INIT_PRODUCER_ID,
        ADD_PARTITIONS_TO_TXN,
        ADD_OFFSETS_TO_TXN,
        END_TXN,
        WRITE_TXN_MARKERS,
        TXN_OFFSET_COMMIT,
        DESCRIBE_ACLS,
        CREATE_ACLS,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        SASL_AUTHENTICATE,
        CREATE_PARTITIONS,
        CREATE_DELEGATION_TOKEN,
        EXPIRE_DELEGATION_TOKEN,
        DESCRIBE_DELEGATION_TOKEN,
        INCREMENTAL_ALTER_CONFIGS,
        DESCRIBE_CLIENT_QUOTAS,
        DESCRIBE_CLUSTER,
        DESCRIBE_PRODUCERS,
        DESCRIBE_SHARE_GROUP_OFFSETS,
    )
}

__all__ = [
    "ADD_OFFSETS_TO_TXN",
    "ADD_PARTITIONS_TO_TXN",
    "ALTER_CONFIGS",
    "APIS",
    "API_VERSIONS",
    "CREATE_ACLS",
    "CREATE_DELEGATION_TOKEN",
    "CREATE_PARTITIONS",
    "CREATE_TOPICS",
    "DELETE_RECORDS",
    "DELETE_TOPICS",
    "DESCRIBE_ACLS",
    "DESCRIBE_CLIENT_QUOTAS",
    "DESCRIBE_CLUSTER",
    "DESCRIBE_CONFIGS",
    "DESCRIBE_DELEGATION_TOKEN",
    "DESCRIBE_PRODUCERS",
    "DESCRIBE_SHARE_GROUP_OFFSETS",
    "END_TXN",
    "EXPIRE_DELEGATION_TOKEN",
    "FETCH",
    "FIND_COORDINATOR",
    "HEARTBEAT",
    "INCREMENTAL_ALTER_CONFIGS",
    "INIT_PRODUCER_ID",
    "JOIN_GROUP",
    "LEAVE_GROUP",
    "LIST_GROUPS",
    "LIST_OFFSETS",
    "METADATA",
    "OFFSET_COMMIT",
    "OFFSET_FETCH",
    "OFFSET_FOR_LEADER_EPOCH",
    "PRODUCE",
    "SASL_AUTHENTICATE",
    "SASL_HANDSHAKE",
    "SYNC_GROUP",
    "TXN_OFFSET_COMMIT",
    "WRITE_TXN_MARKERS",
]
