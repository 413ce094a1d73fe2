"""Fetch request and response; the hot path does not use these tables (see `kafka_protocol.fetch`).

Rows follow Kafka's message JSON; a test compares them with the JSON in the kafka-clients jar.
"""

from kafka_protocol.schema import Array, Scalar, api, array, field, struct

BYTES = Scalar.BYTES
INT16 = Scalar.INT16
INT32 = Scalar.INT32
INT64 = Scalar.INT64
INT8 = Scalar.INT8
STRING = Scalar.STRING
UUID = Scalar.UUID

FETCH = api(
    1,
    "Fetch",
    "4-18",
    flexible_from=12,
    request=(
        field(
            "cluster_id",
            STRING,
            "12+",
            nullable="12+",
            default=None,
            ignorable=True,
            tag=0,
            tagged="12+",
        ),
        field("replica_id", INT32, "0-14", default=-1),
        field(
            "replica_state",
            struct(
                field("replica_id", INT32, "15+", default=-1),
                field("replica_epoch", INT64, "15+", default=-1),
            ),
            "15+",
            tag=1,
            tagged="15+",
        ),
        field("max_wait_ms", INT32, "0+"),
        field("min_bytes", INT32, "0+"),
        field("max_bytes", INT32, "3+", default=2147483647, ignorable=True),
        field("isolation_level", INT8, "4+", ignorable=True),
        field("session_id", INT32, "7+", ignorable=True),
        field("session_epoch", INT32, "7+", default=-1, ignorable=True),
        field(
            "topics",
            array(
                field("topic", STRING, "0-12", ignorable=True),
                field("topic_id", UUID, "13+", ignorable=True),
                field(
                    "partitions",
                    array(
                        field("partition", INT32, "0+"),
                        field("current_leader_epoch", INT32, "9+", default=-1, ignorable=True),
                        field("fetch_offset", INT64, "0+"),
                        field("last_fetched_epoch", INT32, "12+", default=-1),
                        field("log_start_offset", INT64, "5+", default=-1, ignorable=True),
                        field("partition_max_bytes", INT32, "0+"),
                        field(
                            "replica_directory_id", UUID, "17+", ignorable=True, tag=0, tagged="17+"
                        ),
                        field(
                            "high_watermark",
                            INT64,
                            "18+",
                            default=9223372036854775807,
                            ignorable=True,
                            tag=1,
                            tagged="18+",
                        ),
                    ),
                    "0+",
                ),
            ),
            "0+",
        ),
        field(
            "forgotten_topics_data",
            array(
                field("topic", STRING, "7-12", ignorable=True),
                field("topic_id", UUID, "13+", ignorable=True),
                field("partitions", Array(INT32), "7+"),
            ),
            "7+",
        ),
        field("rack_id", STRING, "11+", ignorable=True),
    ),
    response=(
        field("throttle_time_ms", INT32, "1+", ignorable=True),
        field("error_code", INT16, "7+", ignorable=True),
        field("session_id", INT32, "7+"),
        field(
            "responses",
            array(
                field("topic", STRING, "0-12", ignorable=True),
                field("topic_id", UUID, "13+", ignorable=True),
                field(
                    "partitions",
                    array(
                        field("partition_index", INT32, "0+"),
                        field("error_code", INT16, "0+"),
                        field("high_watermark", INT64, "0+"),
                        field("last_stable_offset", INT64, "4+", default=-1, ignorable=True),
                        field("log_start_offset", INT64, "5+", default=-1, ignorable=True),
                        field(
                            "diverging_epoch",
                            struct(
                                field("epoch", INT32, "12+", default=-1),
                                field("end_offset", INT64, "12+", default=-1),
                            ),
                            "12+",
                            tag=0,
                            tagged="12+",
                        ),
                        field(
                            "current_leader",
                            struct(
                                field("leader_id", INT32, "12+", default=-1),
                                field("leader_epoch", INT32, "12+", default=-1),
                            ),
                            "12+",
                            tag=1,
                            tagged="12+",
                        ),
                        field(
                            "snapshot_id",
                            struct(
                                field("end_offset", INT64, "0+", default=-1),
                                field("epoch", INT32, "0+", default=-1),
                            ),
                            "12+",
                            tag=2,
                            tagged="12+",
                        ),
                        field(
                            "aborted_transactions",
                            array(
                                field("producer_id", INT64, "4+"),
                                field("first_offset", INT64, "4+"),
                            ),
                            "4+",
                            nullable="4+",
                            ignorable=True,
                        ),
                        field("preferred_read_replica", INT32, "11+", default=-1),
                        field("records", BYTES, "0+", nullable="0+"),
                    ),
                    "0+",
                ),
            ),
            "0+",
        ),
        field(
            "node_endpoints",
            array(
                field("node_id", INT32, "16+"),
                field("host", STRING, "16+"),
                field("port", INT32, "16+"),
                field("rack", STRING, "16+", nullable="16+", default=None),
            ),
            "16+",
            tag=0,
            tagged="16+",
        ),
    ),
)
