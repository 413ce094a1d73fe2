"""The cluster: versions, brokers, topics and their configurations.

These are ApiVersions, DescribeCluster, DescribeProducers, Metadata and DescribeConfigs. Rows follow
Kafka's message JSON; a test compares them with the JSON in the kafka-clients jar.
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


DESCRIBE_CONFIGS = api(
    32,
    "DescribeConfigs",
    "1-4",
    flexible_from=4,
    request=(
        field(
            "resources",
            array(
                field("resource_type", INT8, "0+"),
                field("resource_name", STRING, "0+"),
                field("configuration_keys", Array(STRING), "0+", nullable="0+"),
            ),
            "0+",
        ),
        field("include_synonyms", BOOL, "1+"),
        field("include_documentation", BOOL, "3+"),
    ),
    response=(
        field("throttle_time_ms", INT32, "0+"),
        field(
            "results",
            array(
                field("error_code", INT16, "0+"),
                field("error_message", STRING, "0+", nullable="0+"),
                field("resource_type", INT8, "0+"),
                field("resource_name", STRING, "0+"),
                field(
                    "configs",
                    array(
                        field("name", STRING, "0+"),
                        field("value", STRING, "0+", nullable="0+"),
                        field("read_only", BOOL, "0+"),
                        field("config_source", INT8, "1+", default=-1, ignorable=True),
                        field("is_sensitive", BOOL, "0+"),
                        field(
                            "synonyms",
                            array(
                                field("name", STRING, "1+"),
                                field("value", STRING, "1+", nullable="0+"),
                                field("source", INT8, "1+"),
                            ),
                            "1+",
                            ignorable=True,
                        ),
                        field("config_type", INT8, "3+", ignorable=True),
                        field("documentation", STRING, "3+", nullable="0+", ignorable=True),
                    ),
                    "0+",
                ),
            ),
            "0+",
        ),
    ),
)
