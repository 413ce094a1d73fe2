"""The Kafka error codes that the project reads or sends (org.apache.kafka.common.protocol.Errors).

The proxy only sends codes that clients handle (FetchCollector and OffsetFetcherUtils of Kafka's
Java consumer); any other code makes a Java consumer throw.
"""

# Java and librdkafka log this error and retry, whereas they retry 56 silently (H25).
UNKNOWN_SERVER_ERROR = -1
NONE = 0
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
REQUEST_TIMED_OUT = 7
REPLICA_NOT_AVAILABLE = 9
NETWORK_EXCEPTION = 13
COORDINATOR_NOT_AVAILABLE = 15
POLICY_VIOLATION = 44
KAFKA_STORAGE_ERROR = 56
FETCH_SESSION_ID_NOT_FOUND = 70
INVALID_FETCH_SESSION_EPOCH = 71
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
OFFSET_NOT_AVAILABLE = 78
THROTTLING_QUOTA_EXCEEDED = 89
UNKNOWN_TOPIC_ID = 100
INCONSISTENT_TOPIC_ID = 103
