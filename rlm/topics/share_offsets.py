"""Kafka's DescribeShareGroupOffsets (KIP-932), which only the checks before a trim need (H19).

Rows follow Kafka's message JSON; a test compares them with the JSON in the kafka-clients jar.
"""

from rlm.wire.schema import Array, Scalar, api, array, field

DESCRIBE_SHARE_GROUP_OFFSETS = api(
    90,
    "DescribeShareGroupOffsets",
    "0-1",
    flexible_from=0,
    request=(
        field(
            "groups",
            array(
                field("group_id", Scalar.STRING, "0+"),
                field(
                    "topics",
                    array(
                        field("topic_name", Scalar.STRING, "0+"),
                        field("partitions", Array(Scalar.INT32), "0+"),
                    ),
                    "0+",
                    nullable="0+",
                ),
            ),
            "0+",
        ),
    ),
    response=(
        field("throttle_time_ms", Scalar.INT32, "0+"),
        field(
            "groups",
            array(
                field("group_id", Scalar.STRING, "0+"),
                field(
                    "topics",
                    array(
                        field("topic_name", Scalar.STRING, "0+"),
                        field("topic_id", Scalar.UUID, "0+"),
                        field(
                            "partitions",
                            array(
                                field("partition_index", Scalar.INT32, "0+"),
                                field("start_offset", Scalar.INT64, "0+"),
                                field("leader_epoch", Scalar.INT32, "0+"),
                                field("lag", Scalar.INT64, "1+", default=-1, ignorable=True),
                                field("error_code", Scalar.INT16, "0+"),
                                field(
                                    "error_message",
                                    Scalar.STRING,
                                    "0+",
                                    nullable="0+",
                                    default=None,
                                ),
                            ),
                            "0+",
                        ),
                    ),
                    "0+",
                ),
                field("error_code", Scalar.INT16, "0+"),
                field("error_message", Scalar.STRING, "0+", nullable="0+", default=None),
            ),
            "0+",
        ),
    ),
)
