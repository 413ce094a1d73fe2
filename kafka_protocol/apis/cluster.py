"""The cluster: ApiVersions, DescribeCluster, DescribeProducers.

Rows follow Kafka's message JSON; a test compares them with the JSON in the kafka-clients jar.
"""

from kafka_protocol.schema import Array, Scalar, api, array, field

BOOL = Scalar.BOOL
INT16 = Scalar.INT16
INT32 = Scalar.INT32
INT64 = Scalar.INT64
INT8 = Scalar.INT8
STRING = Scalar.STRING

API_VERSIONS = api(
    18,
    "ApiVersions",
    "0-5",
    flexible_from=3,
    request=(
        field("client_software_name", STRING, "3+", ignorable=True),
        field("client_software_version", STRING, "3+", ignorable=True),
        field("cluster_id", STRING, "5+", nullable="5+", default=None, ignorable=True),
        field("node_id", INT32, "5+", default=-1, ignorable=True),
    ),
    response=(
        field("error_code", INT16, "0+"),
        field(
            "api_keys",
            array(
                field("api_key", INT16, "0+"),
                field("min_version", INT16, "0+"),
                field("max_version", INT16, "0+"),
            ),
            "0+",
        ),
        field("throttle_time_ms", INT32, "1+", ignorable=True),
        field(
            "supported_features",
            array(
                field("name", STRING, "3+"),
                field("min_version", INT16, "3+"),
                field("max_version", INT16, "3+"),
            ),
            "3+",
            ignorable=True,
            tag=0,
            tagged="3+",
        ),
        field(
            "finalized_features_epoch", INT64, "3+", default=-1, ignorable=True, tag=1, tagged="3+"
        ),
        field(
            "finalized_features",
            array(
                field("name", STRING, "3+"),
                field("max_version_level", INT16, "3+"),
                field("min_version_level", INT16, "3+"),
            ),
            "3+",
            ignorable=True,
            tag=2,
            tagged="3+",
        ),
        field("zk_migration_ready", BOOL, "3+", ignorable=True, tag=3, tagged="3+"),
    ),
)

DESCRIBE_CLUSTER = api(
    60,
    "DescribeCluster",
    "0-2",
    flexible_from=0,
    request=(
        field("include_cluster_authorized_operations", BOOL, "0+"),
        field("endpoint_type", INT8, "1+", default=1),
        field("include_fenced_brokers", BOOL, "2+"),
    ),
    response=(
        field("throttle_time_ms", INT32, "0+"),
        field("error_code", INT16, "0+"),
        field("error_message", STRING, "0+", nullable="0+", default=None),
        field("endpoint_type", INT8, "1+", default=1),
        field("cluster_id", STRING, "0+"),
        field("controller_id", INT32, "0+", default=-1),
        field(
            "brokers",
            array(
                field("broker_id", INT32, "0+"),
                field("host", STRING, "0+"),
                field("port", INT32, "0+"),
                field("rack", STRING, "0+", nullable="0+", default=None),
                field("is_fenced", BOOL, "2+"),
            ),
            "0+",
        ),
        field("cluster_authorized_operations", INT32, "0+", default=-2147483648),
    ),
)

DESCRIBE_PRODUCERS = api(
    61,
    "DescribeProducers",
    "0",
    flexible_from=0,
    request=(
        field(
            "topics",
            array(
                field("name", STRING, "0+"),
                field("partition_indexes", Array(INT32), "0+"),
            ),
            "0+",
        ),
    ),
    response=(
        field("throttle_time_ms", INT32, "0+"),
        field(
            "topics",
            array(
                field("name", STRING, "0+"),
                field(
                    "partitions",
                    array(
                        field("partition_index", INT32, "0+"),
                        field("error_code", INT16, "0+"),
                        field("error_message", STRING, "0+", nullable="0+", default=None),
                        field(
                            "active_producers",
                            array(
                                field("producer_id", INT64, "0+"),
                                field("producer_epoch", INT32, "0+"),
                                field("last_sequence", INT32, "0+", default=-1),
                                field("last_timestamp", INT64, "0+", default=-1),
                                field("coordinator_epoch", INT32, "0+"),
                                field("current_txn_start_offset", INT64, "0+", default=-1),
                            ),
                            "0+",
                        ),
                    ),
                    "0+",
                ),
            ),
            "0+",
        ),
    ),
)
