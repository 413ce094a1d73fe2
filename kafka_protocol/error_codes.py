"""The Kafka error codes the proxy gives or looks for (org.apache.kafka.common.protocol.Errors).

Why these: clients know what to do with each of them (FetchCollector and OffsetFetcherUtils of
Kafka's Java consumer); anything else makes a Java consumer throw.
"""

# Said in the logs of Java and librdkafka, and retried, where 56 is retried in silence (H25).
UNKNOWN_SERVER_ERROR = -1
NONE = 0
OFFSET_OUT_OF_RANGE = 1
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
POLICY_VIOLATION = 44
KAFKA_STORAGE_ERROR = 56
FETCH_SESSION_ID_NOT_FOUND = 70
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
