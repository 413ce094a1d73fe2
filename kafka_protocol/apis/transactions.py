"""What a transactional producer sends besides Produce and AddPartitionsToTxn (`produce.py`).

Rows follow Kafka's message JSON; a test compares them with the JSON in the kafka-clients jar.
"""

from kafka_protocol.schema import Scalar, api, array, field

BOOL = Scalar.BOOL
INT16 = Scalar.INT16
INT32 = Scalar.INT32
INT64 = Scalar.INT64
STRING = Scalar.STRING

INIT_PRODUCER_ID = api(
    22,
    "InitProducerId",
    "0-6",
    flexible_from=2,
    request=(
        field("transactional_id", STRING, "0+", nullable="0+"),
        field("transaction_timeout_ms", INT32, "0+"),
        field("producer_id", INT64, "3+", default=-1),
        field("producer_epoch", INT16, "3+", default=-1),
        field("enable2_pc", BOOL, "6+", default=False),
        field("keep_prepared_txn", BOOL, "6+", default=False),
    ),
    response=(
        field("throttle_time_ms", INT32, "0+", ignorable=True),
        field("error_code", INT16, "0+"),
        field("producer_id", INT64, "0+", default=-1),
        field("producer_epoch", INT16, "0+"),
        field("ongoing_txn_producer_id", INT64, "6+", default=-1),
        field("ongoing_txn_producer_epoch", INT16, "6+", default=-1),
    ),
)

_PRODUCER = (
    field("transactional_id", STRING, "0+"),
    field("producer_id", INT64, "0+"),
    field("producer_epoch", INT16, "0+"),
)

ADD_OFFSETS_TO_TXN = api(
    25,
    "AddOffsetsToTxn",
    "0-4",
    flexible_from=3,
    request=(*_PRODUCER, field("group_id", STRING, "0+")),
    response=(
        field("throttle_time_ms", INT32, "0+"),
        field("error_code", INT16, "0+"),
    ),
)

END_TXN = api(
    26,
    "EndTxn",
    "0-5",
    flexible_from=3,
    request=(*_PRODUCER, field("committed", BOOL, "0+")),
    response=(
        field("throttle_time_ms", INT32, "0+"),
        field("error_code", INT16, "0+"),
        field("producer_id", INT64, "5+", default=-1, ignorable=True),
        field("producer_epoch", INT16, "5+", default=-1, ignorable=True),
    ),
)

TXN_OFFSET_COMMIT = api(
    28,
    "TxnOffsetCommit",
    "0-5",
    flexible_from=3,
    request=(
        field("transactional_id", STRING, "0+"),
        field("group_id", STRING, "0+"),
        field("producer_id", INT64, "0+"),
        field("producer_epoch", INT16, "0+"),
        field("generation_id", INT32, "3+", default=-1),
        field("member_id", STRING, "3+", default=""),
        field("group_instance_id", STRING, "3+", nullable="3+", default=None),
        field(
            "topics",
            array(
                field("name", STRING, "0+"),
                field(
                    "partitions",
                    array(
                        field("partition_index", INT32, "0+"),
                        field("committed_offset", INT64, "0+"),
                        field("committed_leader_epoch", INT32, "2+", default=-1, ignorable=True),
                        field("committed_metadata", STRING, "0+", nullable="0+"),
                    ),
                    "0+",
                ),
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
                    ),
                    "0+",
                ),
            ),
            "0+",
        ),
    ),
)
