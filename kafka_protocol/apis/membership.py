"""Membership of groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and OffsetCommit.

Rows follow Kafka's message JSON; a test compares them with the JSON in the kafka-clients jar.
"""

from kafka_protocol.schema import Scalar, api, array, field

BOOL = Scalar.BOOL
BYTES = Scalar.BYTES
INT16 = Scalar.INT16
INT32 = Scalar.INT32
INT64 = Scalar.INT64
STRING = Scalar.STRING
UUID = Scalar.UUID

JOIN_GROUP = api(
    11,
    "JoinGroup",
    "0-9",
    flexible_from=6,
    request=(
        field("group_id", STRING, "0+"),
        field("session_timeout_ms", INT32, "0+"),
        field("rebalance_timeout_ms", INT32, "1+", default=-1, ignorable=True),
        field("member_id", STRING, "0+"),
        field("group_instance_id", STRING, "5+", nullable="5+", default=None),
        field("protocol_type", STRING, "0+"),
        field(
            "protocols",
            array(field("name", STRING, "0+"), field("metadata", BYTES, "0+")),
            "0+",
        ),
        field("reason", STRING, "8+", nullable="8+", default=None, ignorable=True),
    ),
    response=(
        field("throttle_time_ms", INT32, "2+", ignorable=True),
        field("error_code", INT16, "0+"),
        field("generation_id", INT32, "0+", default=-1),
        field("protocol_type", STRING, "7+", nullable="7+", default=None, ignorable=True),
        field("protocol_name", STRING, "0+", nullable="7+"),
        field("leader", STRING, "0+"),
        field("skip_assignment", BOOL, "9+", default=False),
        field("member_id", STRING, "0+"),
        field(
            "members",
            array(
                field("member_id", STRING, "0+"),
                field(
                    "group_instance_id", STRING, "5+", nullable="5+", default=None, ignorable=True
                ),
                field("metadata", BYTES, "0+"),
            ),
            "0+",
        ),
    ),
)

SYNC_GROUP = api(
    14,
    "SyncGroup",
    "0-5",
    flexible_from=4,
    request=(
        field("group_id", STRING, "0+"),
        field("generation_id", INT32, "0+"),
        field("member_id", STRING, "0+"),
        field("group_instance_id", STRING, "3+", nullable="3+", default=None),
        field("protocol_type", STRING, "5+", nullable="5+", default=None, ignorable=True),
        field("protocol_name", STRING, "5+", nullable="5+", default=None, ignorable=True),
        field(
            "assignments",
            array(field("member_id", STRING, "0+"), field("assignment", BYTES, "0+")),
            "0+",
        ),
    ),
    response=(
        field("throttle_time_ms", INT32, "1+", ignorable=True),
        field("error_code", INT16, "0+"),
        field("protocol_type", STRING, "5+", nullable="5+", default=None, ignorable=True),
        field("protocol_name", STRING, "5+", nullable="5+", default=None, ignorable=True),
        field("assignment", BYTES, "0+"),
    ),
)

HEARTBEAT = api(
    12,
    "Heartbeat",
    "0-4",
    flexible_from=4,
    request=(
        field("group_id", STRING, "0+"),
        field("generation_id", INT32, "0+"),
        field("member_id", STRING, "0+"),
        field("group_instance_id", STRING, "3+", nullable="3+", default=None),
    ),
    response=(
        field("throttle_time_ms", INT32, "1+", ignorable=True),
        field("error_code", INT16, "0+"),
    ),
)

LEAVE_GROUP = api(
    13,
    "LeaveGroup",
    "0-5",
    flexible_from=4,
    request=(
        field("group_id", STRING, "0+"),
        field("member_id", STRING, "0-2"),
        field(
            "members",
            array(
                field("member_id", STRING, "3+"),
                field("group_instance_id", STRING, "3+", nullable="3+", default=None),
                field("reason", STRING, "5+", nullable="5+", default=None, ignorable=True),
            ),
            "3+",
        ),
    ),
    response=(
        field("throttle_time_ms", INT32, "1+", ignorable=True),
        field("error_code", INT16, "0+"),
        field(
            "members",
            array(
                field("member_id", STRING, "3+"),
                field("group_instance_id", STRING, "3+", nullable="3+"),
                field("error_code", INT16, "3+"),
            ),
            "3+",
        ),
    ),
)

OFFSET_COMMIT = api(
    8,
    "OffsetCommit",
    "2-10",
    flexible_from=8,
    request=(
        field("group_id", STRING, "0+"),
        field("generation_id_or_member_epoch", INT32, "1+", default=-1, ignorable=True),
        field("member_id", STRING, "1+", ignorable=True),
        field("group_instance_id", STRING, "7+", nullable="7+", default=None),
        field("retention_time_ms", INT64, "2-4", default=-1, ignorable=True),
        field(
            "topics",
            array(
                field("name", STRING, "0-9", ignorable=True),
                field("topic_id", UUID, "10+", ignorable=True),
                field(
                    "partitions",
                    array(
                        field("partition_index", INT32, "0+"),
                        field("committed_offset", INT64, "0+"),
                        field("committed_leader_epoch", INT32, "6+", default=-1, ignorable=True),
                        field("committed_metadata", STRING, "0+", nullable="0+"),
                    ),
                    "0+",
                ),
            ),
            "0+",
        ),
    ),
    response=(
        field("throttle_time_ms", INT32, "3+", ignorable=True),
        field(
            "topics",
            array(
                field("name", STRING, "0-9", ignorable=True),
                field("topic_id", UUID, "10+", ignorable=True),
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
