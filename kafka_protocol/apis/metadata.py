"""Metadata: brokers, topics by name or id, leaders and epochs.

Rows follow Kafka's message JSON; a test compares them with the JSON in the kafka-clients jar.
"""

from kafka_protocol.schema import Array, Scalar, api, array, field

BOOL = Scalar.BOOL
INT16 = Scalar.INT16
INT32 = Scalar.INT32
STRING = Scalar.STRING
UUID = Scalar.UUID

METADATA = api(
    3,
    "Metadata",
    "0-13",
    flexible_from=9,
    request=(
        field(
            "topics",
            array(
                field("topic_id", UUID, "10+", ignorable=True),
                field("name", STRING, "0+", nullable="10+"),
            ),
            "0+",
            nullable="1+",
        ),
        field("allow_auto_topic_creation", BOOL, "4+", default=True),
        field("include_cluster_authorized_operations", BOOL, "8-10"),
        field("include_topic_authorized_operations", BOOL, "8+"),
    ),
    response=(
        field("throttle_time_ms", INT32, "3+", ignorable=True),
        field(
            "brokers",
            array(
                field("node_id", INT32, "0+"),
                field("host", STRING, "0+"),
                field("port", INT32, "0+"),
                field("rack", STRING, "1+", nullable="1+", default=None, ignorable=True),
            ),
            "0+",
        ),
        field("cluster_id", STRING, "2+", nullable="2+", default=None, ignorable=True),
        field("controller_id", INT32, "1+", default=-1, ignorable=True),
        field(
            "topics",
            array(
                field("error_code", INT16, "0+"),
                field("name", STRING, "0+", nullable="12+"),
                field("topic_id", UUID, "10+", ignorable=True),
                field("is_internal", BOOL, "1+", ignorable=True),
                field(
                    "partitions",
                    array(
                        field("error_code", INT16, "0+"),
                        field("partition_index", INT32, "0+"),
                        field("leader_id", INT32, "0+"),
                        field("leader_epoch", INT32, "7+", default=-1, ignorable=True),
                        field("replica_nodes", Array(INT32), "0+"),
                        field("isr_nodes", Array(INT32), "0+"),
                        field("offline_replicas", Array(INT32), "5+", ignorable=True),
                    ),
                    "0+",
                ),
                field("topic_authorized_operations", INT32, "8+", default=-2147483648),
            ),
            "0+",
        ),
        field("cluster_authorized_operations", INT32, "8-10", default=-2147483648),
        field("error_code", INT16, "13+", ignorable=True),
    ),
)
