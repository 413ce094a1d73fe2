"""APIs about offsets: ListOffsets, OffsetForLeaderEpoch, DeleteRecords.

Rows follow Kafka's message JSON; a test compares them with the JSON in the kafka-clients jar.
"""

from kafka_protocol.schema import Scalar, api, array, field

INT16 = Scalar.INT16
INT32 = Scalar.INT32
INT64 = Scalar.INT64
INT8 = Scalar.INT8
STRING = Scalar.STRING

# Positions that ListOffsets takes in place of a timestamp (ListOffsetsRequest).
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6

DEBUGGING_REPLICA_ID = -2
"""Any replica answers, the leader or not (ListOffsetsRequest.DEBUGGING_REPLICA_ID)."""

LIST_OFFSETS = api(
    2,
    "ListOffsets",
    "1-11",
    flexible_from=6,
    request=(
        field("replica_id", INT32, "0+"),
        field("isolation_level", INT8, "2+"),
        field(
            "topics",
            array(
                field("name", STRING, "0+"),
                field(
                    "partitions",
                    array(
                        field("partition_index", INT32, "0+"),
                        field("current_leader_epoch", INT32, "4+", default=-1, ignorable=True),
                        field("timestamp", INT64, "0+"),
                    ),
                    "0+",
                ),
            ),
            "0+",
        ),
        field("timeout_ms", INT32, "10+", ignorable=True),
    ),
    response=(
        field("throttle_time_ms", INT32, "2+", ignorable=True),
        field(
            "topics",
            array(
                field("name", STRING, "0+"),
                field(
                    "partitions",
                    array(
                        field("partition_index", INT32, "0+"),
                        field("error_code", INT16, "0+"),
                        field("timestamp", INT64, "1+", default=-1),
                        field("offset", INT64, "1+", default=-1),
                        field("leader_epoch", INT32, "4+", default=-1),
                    ),
                    "0+",
                ),
            ),
            "0+",
        ),
    ),
)

OFFSET_FOR_LEADER_EPOCH = api(
    23,
    "OffsetForLeaderEpoch",
    "2-4",
    flexible_from=4,
    request=(
        field("replica_id", INT32, "3+", default=-2, ignorable=True),
        field(
            "topics",
            array(
                field("topic", STRING, "0+"),
                field(
                    "partitions",
                    array(
                        field("partition", INT32, "0+"),
                        field("current_leader_epoch", INT32, "2+", default=-1, ignorable=True),
                        field("leader_epoch", INT32, "0+"),
                    ),
                    "0+",
                ),
            ),
            "0+",
        ),
    ),
    response=(
        field("throttle_time_ms", INT32, "2+", ignorable=True),
        field(
            "topics",
            array(
                field("topic", STRING, "0+"),
                field(
                    "partitions",
                    array(
                        field("error_code", INT16, "0+"),
                        field("partition", INT32, "0+"),
                        field("leader_epoch", INT32, "1+", default=-1, ignorable=True),
                        field("end_offset", INT64, "0+", default=-1),
                    ),
                    "0+",
                ),
            ),
            "0+",
        ),
    ),
)

DELETE_RECORDS = api(
    21,
    "DeleteRecords",
    "0-2",
    flexible_from=2,
    request=(
        field(
            "topics",
            array(
                field("name", STRING, "0+"),
                field(
                    "partitions",
                    array(
                        field("partition_index", INT32, "0+"),
                        field("offset", INT64, "0+"),
                    ),
                    "0+",
                ),
            ),
            "0+",
        ),
        field("timeout_ms", INT32, "0+"),
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
                        field("low_watermark", INT64, "0+"),
                        field("error_code", INT16, "0+"),
                    ),
                    "0+",
                ),
            ),
            "0+",
        ),
    ),
)
