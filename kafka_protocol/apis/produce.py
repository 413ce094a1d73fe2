"""Produce and what transactions write: AddPartitionsToTxn, whose versions from 4 on are for
brokers, and WriteTxnMarkers, which is for brokers and administrators.

Rows follow Kafka's message JSON; a test compares them with the JSON in the kafka-clients jar.
"""

from kafka_protocol.schema import Array, Scalar, api, array, field, struct

BOOL = Scalar.BOOL
BYTES = Scalar.BYTES
INT16 = Scalar.INT16
INT32 = Scalar.INT32
INT64 = Scalar.INT64
INT8 = Scalar.INT8
STRING = Scalar.STRING
UUID = Scalar.UUID

PRODUCE = api(
    0,
    "Produce",
    "0-13",
    flexible_from=9,
    request=(
        field("transactional_id", STRING, "3+", nullable="3+", default=None),
        field("acks", INT16, "0+"),
        field("timeout_ms", INT32, "0+"),
        field(
            "topic_data",
            array(
                field("name", STRING, "0-12", ignorable=True),
                field("topic_id", UUID, "13+", ignorable=True),
                field(
                    "partition_data",
                    array(
                        field("index", INT32, "0+"),
                        field("records", BYTES, "0+", nullable="0+"),
                    ),
                    "0+",
                ),
            ),
            "0+",
        ),
    ),
    response=(
        field(
            "responses",
            array(
                field("name", STRING, "0-12", ignorable=True),
                field("topic_id", UUID, "13+", ignorable=True),
                field(
                    "partition_responses",
                    array(
                        field("index", INT32, "0+"),
                        field("error_code", INT16, "0+"),
                        field("base_offset", INT64, "0+"),
                        field("log_append_time_ms", INT64, "2+", default=-1, ignorable=True),
                        field("log_start_offset", INT64, "5+", default=-1, ignorable=True),
                        field(
                            "record_errors",
                            array(
                                field("batch_index", INT32, "8+"),
                                field(
                                    "batch_index_error_message",
                                    STRING,
                                    "8+",
                                    nullable="8+",
                                    default=None,
                                ),
                            ),
                            "8+",
                            ignorable=True,
                        ),
                        field(
                            "error_message",
                            STRING,
                            "8+",
                            nullable="8+",
                            default=None,
                            ignorable=True,
                        ),
                        field(
                            "current_leader",
                            struct(
                                field("leader_id", INT32, "10+", default=-1),
                                field("leader_epoch", INT32, "10+", default=-1),
                            ),
                            "10+",
                            tag=0,
                            tagged="10+",
                        ),
                    ),
                    "0+",
                ),
            ),
            "0+",
        ),
        field("throttle_time_ms", INT32, "1+", ignorable=True),
        field(
            "node_endpoints",
            array(
                field("node_id", INT32, "10+"),
                field("host", STRING, "10+"),
                field("port", INT32, "10+"),
                field("rack", STRING, "10+", nullable="10+", default=None),
            ),
            "10+",
            tag=0,
            tagged="10+",
        ),
    ),
)

_TOPICS = array(field("name", STRING, "0+"), field("partitions", Array(INT32), "0+"))
_RESULTS = array(
    field("name", STRING, "0+"),
    field(
        "results_by_partition",
        array(
            field("partition_index", INT32, "0+"),
            field("partition_error_code", INT16, "0+"),
        ),
        "0+",
    ),
)

ADD_PARTITIONS_TO_TXN = api(
    24,
    "AddPartitionsToTxn",
    "0-5",
    flexible_from=3,
    request=(
        field(
            "transactions",
            array(
                field("transactional_id", STRING, "4+"),
                field("producer_id", INT64, "4+"),
                field("producer_epoch", INT16, "4+"),
                field("verify_only", BOOL, "4+", default=False),
                field("topics", _TOPICS, "4+"),
            ),
            "4+",
        ),
        field("v3_and_below_transactional_id", STRING, "0-3"),
        field("v3_and_below_producer_id", INT64, "0-3"),
        field("v3_and_below_producer_epoch", INT16, "0-3"),
        field("v3_and_below_topics", _TOPICS, "0-3"),
    ),
    response=(
        field("throttle_time_ms", INT32, "0+"),
        field("error_code", INT16, "4+", ignorable=True),
        field(
            "results_by_transaction",
            array(
                field("transactional_id", STRING, "4+"),
                field("topic_results", _RESULTS, "4+"),
            ),
            "4+",
        ),
        field("results_by_topic_v3_and_below", _RESULTS, "0-3"),
    ),
)

WRITE_TXN_MARKERS = api(
    27,
    "WriteTxnMarkers",
    "0-2",
    flexible_from=1,
    request=(
        field(
            "markers",
            array(
                field("producer_id", INT64, "0+"),
                field("producer_epoch", INT16, "0+"),
                field("transaction_result", BOOL, "0+"),
                field(
                    "topics",
                    array(
                        field("name", STRING, "0+"),
                        field("partition_indexes", Array(INT32), "0+"),
                    ),
                    "0+",
                ),
                field("coordinator_epoch", INT32, "0+"),
                field("transaction_version", INT8, "2+", ignorable=True),
            ),
            "0+",
        ),
    ),
    response=(
        field(
            "markers",
            array(
                field("producer_id", INT64, "0+"),
                field(
                    "topics",
                    array(
                        field("name", STRING, "0+"),
                        field(
                            "partitions",
                            array(
                                field("partition_index", INT32, "0+"),
                                field("error_code", INT16, "0+"),
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
