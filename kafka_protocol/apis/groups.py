"""Groups: ListGroups, OffsetFetch, FindCoordinator, DescribeShareGroupOffsets.

Rows follow Kafka's message JSON; a test compares them with the JSON in the kafka-clients jar.
"""

from kafka_protocol.schema import Array, Scalar, api, array, field

BOOL = Scalar.BOOL
INT16 = Scalar.INT16
INT32 = Scalar.INT32
INT64 = Scalar.INT64
INT8 = Scalar.INT8
STRING = Scalar.STRING
UUID = Scalar.UUID

LIST_GROUPS = api(
    16,
    "ListGroups",
    "0-5",
    flexible_from=3,
    request=(
        field("states_filter", Array(STRING), "4+"),
        field("types_filter", Array(STRING), "5+"),
    ),
    response=(
        field("throttle_time_ms", INT32, "1+", ignorable=True),
        field("error_code", INT16, "0+"),
        field(
            "groups",
            array(
                field("group_id", STRING, "0+"),
                field("protocol_type", STRING, "0+"),
                field("group_state", STRING, "4+", ignorable=True),
                field("group_type", STRING, "5+", ignorable=True),
            ),
            "0+",
        ),
    ),
)

OFFSET_FETCH = api(
    9,
    "OffsetFetch",
    "1-10",
    flexible_from=6,
    request=(
        field("group_id", STRING, "0-7"),
        field(
            "topics",
            array(
                field("name", STRING, "0-7"),
                field("partition_indexes", Array(INT32), "0-7"),
            ),
            "0-7",
            nullable="2-7",
        ),
        field(
            "groups",
            array(
                field("group_id", STRING, "8+"),
                field("member_id", STRING, "9+", nullable="9+", default=None, ignorable=True),
                field("member_epoch", INT32, "9+", default=-1, ignorable=True),
                field(
                    "topics",
                    array(
                        field("name", STRING, "8-9", ignorable=True),
                        field("topic_id", UUID, "10+", ignorable=True),
                        field("partition_indexes", Array(INT32), "8+"),
                    ),
                    "8+",
                    nullable="8+",
                ),
            ),
            "8+",
        ),
        field("require_stable", BOOL, "7+"),
    ),
    response=(
        field("throttle_time_ms", INT32, "3+", ignorable=True),
        field(
            "topics",
            array(
                field("name", STRING, "0-7"),
                field(
                    "partitions",
                    array(
                        field("partition_index", INT32, "0-7"),
                        field("committed_offset", INT64, "0-7"),
                        field("committed_leader_epoch", INT32, "5-7", default=-1, ignorable=True),
                        field("metadata", STRING, "0-7", nullable="0-7"),
                        field("error_code", INT16, "0-7"),
                    ),
                    "0-7",
                ),
            ),
            "0-7",
        ),
        field("error_code", INT16, "2-7", ignorable=True),
        field(
            "groups",
            array(
                field("group_id", STRING, "8+"),
                field(
                    "topics",
                    array(
                        field("name", STRING, "8-9", ignorable=True),
                        field("topic_id", UUID, "10+", ignorable=True),
                        field(
                            "partitions",
                            array(
                                field("partition_index", INT32, "8+"),
                                field("committed_offset", INT64, "8+"),
                                field(
                                    "committed_leader_epoch",
                                    INT32,
                                    "8+",
                                    default=-1,
                                    ignorable=True,
                                ),
                                field("metadata", STRING, "8+", nullable="8+"),
                                field("error_code", INT16, "8+"),
                            ),
                            "8+",
                        ),
                    ),
                    "8+",
                ),
                field("error_code", INT16, "8+"),
            ),
            "8+",
        ),
    ),
)

FIND_COORDINATOR = api(
    10,
    "FindCoordinator",
    "0-6",
    flexible_from=3,
    request=(
        field("key", STRING, "0-3"),
        field("key_type", INT8, "1+"),
        field("coordinator_keys", Array(STRING), "4+"),
    ),
    response=(
        field("throttle_time_ms", INT32, "1+", ignorable=True),
        field("error_code", INT16, "0-3"),
        field("error_message", STRING, "1-3", nullable="1-3", ignorable=True),
        field("node_id", INT32, "0-3"),
        field("host", STRING, "0-3"),
        field("port", INT32, "0-3"),
        field(
            "coordinators",
            array(
                field("key", STRING, "4+"),
                field("node_id", INT32, "4+"),
                field("host", STRING, "4+"),
                field("port", INT32, "4+"),
                field("error_code", INT16, "4+"),
                field("error_message", STRING, "4+", nullable="4+", ignorable=True),
            ),
            "4+",
        ),
    ),
)

DESCRIBE_SHARE_GROUP_OFFSETS = api(
    90,
    "DescribeShareGroupOffsets",
    "0-1",
    flexible_from=0,
    request=(
        field(
            "groups",
            array(
                field("group_id", STRING, "0+"),
                field(
                    "topics",
                    array(
                        field("topic_name", STRING, "0+"),
                        field("partitions", Array(INT32), "0+"),
                    ),
                    "0+",
                    nullable="0+",
                ),
            ),
            "0+",
        ),
    ),
    response=(
        field("throttle_time_ms", INT32, "0+"),
        field(
            "groups",
            array(
                field("group_id", STRING, "0+"),
                field(
                    "topics",
                    array(
                        field("topic_name", STRING, "0+"),
                        field("topic_id", UUID, "0+"),
                        field(
                            "partitions",
                            array(
                                field("partition_index", INT32, "0+"),
                                field("start_offset", INT64, "0+"),
                                field("leader_epoch", INT32, "0+"),
                                field("lag", INT64, "1+", default=-1, ignorable=True),
                                field("error_code", INT16, "0+"),
                                field("error_message", STRING, "0+", nullable="0+", default=None),
                            ),
                            "0+",
                        ),
                    ),
                    "0+",
                ),
                field("error_code", INT16, "0+"),
                field("error_message", STRING, "0+", nullable="0+", default=None),
            ),
            "0+",
        ),
    ),
)
