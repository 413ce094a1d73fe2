"""What makes and changes topics: CreateTopics, DeleteTopics, CreatePartitions, AlterConfigs and
IncrementalAlterConfigs.

Rows follow Kafka's message JSON; a test compares them with the JSON in the kafka-clients jar.
"""

from kafka_protocol.schema import Api, Array, Field, Scalar, api, array, field

BOOL = Scalar.BOOL
INT16 = Scalar.INT16
INT32 = Scalar.INT32
INT8 = Scalar.INT8
STRING = Scalar.STRING
UUID = Scalar.UUID

TOPIC_RESOURCE = 2
"""The resource type of a topic's configuration (ConfigResource.Type)."""

CREATE_TOPICS = api(
    19,
    "CreateTopics",
    "0-7",
    flexible_from=5,
    request=(
        field(
            "topics",
            array(
                field("name", STRING, "0+"),
                field("num_partitions", INT32, "0+"),
                field("replication_factor", INT16, "0+"),
                field(
                    "assignments",
                    array(
                        field("partition_index", INT32, "0+"),
                        field("broker_ids", Array(INT32), "0+"),
                    ),
                    "0+",
                ),
                field(
                    "configs",
                    array(
                        field("name", STRING, "0+"),
                        field("value", STRING, "0+", nullable="0+"),
                    ),
                    "0+",
                ),
            ),
            "0+",
        ),
        field("timeout_ms", INT32, "0+", default=60_000),
        field("validate_only", BOOL, "1+"),
    ),
    response=(
        field("throttle_time_ms", INT32, "2+", ignorable=True),
        field(
            "topics",
            array(
                field("name", STRING, "0+"),
                field("topic_id", UUID, "7+", ignorable=True),
                field("error_code", INT16, "0+"),
                field("error_message", STRING, "1+", nullable="0+", ignorable=True),
                field(
                    "topic_config_error_code",
                    INT16,
                    "5+",
                    tag=0,
                    tagged="5+",
                    ignorable=True,
                ),
                field("num_partitions", INT32, "5+", default=-1, ignorable=True),
                field("replication_factor", INT16, "5+", default=-1, ignorable=True),
                field(
                    "configs",
                    array(
                        field("name", STRING, "5+"),
                        field("value", STRING, "5+", nullable="5+"),
                        field("read_only", BOOL, "5+"),
                        field("config_source", INT8, "5+", default=-1, ignorable=True),
                        field("is_sensitive", BOOL, "5+"),
                    ),
                    "5+",
                    nullable="5+",
                    ignorable=True,
                ),
            ),
            "0+",
        ),
    ),
)

DELETE_TOPICS = api(
    20,
    "DeleteTopics",
    "0-6",
    flexible_from=4,
    request=(
        field(
            "topics",
            array(
                field("name", STRING, "6+", nullable="6+", default=None),
                field("topic_id", UUID, "6+"),
            ),
            "6+",
        ),
        field("topic_names", Array(STRING), "0-5", ignorable=True),
        field("timeout_ms", INT32, "0+"),
    ),
    response=(
        field("throttle_time_ms", INT32, "1+", ignorable=True),
        field(
            "responses",
            array(
                field("name", STRING, "0+", nullable="6+"),
                field("topic_id", UUID, "6+", ignorable=True),
                field("error_code", INT16, "0+"),
                field("error_message", STRING, "5+", nullable="5+", default=None, ignorable=True),
            ),
            "0+",
        ),
    ),
)

CREATE_PARTITIONS = api(
    37,
    "CreatePartitions",
    "0-3",
    flexible_from=2,
    request=(
        field(
            "topics",
            array(
                field("name", STRING, "0+"),
                field("count", INT32, "0+"),
                field(
                    "assignments",
                    array(field("broker_ids", Array(INT32), "0+")),
                    "0+",
                    nullable="0+",
                ),
            ),
            "0+",
        ),
        field("timeout_ms", INT32, "0+"),
        field("validate_only", BOOL, "0+"),
    ),
    response=(
        field("throttle_time_ms", INT32, "0+"),
        field(
            "results",
            array(
                field("name", STRING, "0+"),
                field("error_code", INT16, "0+"),
                field("error_message", STRING, "0+", nullable="0+", default=None),
            ),
            "0+",
        ),
    ),
)

_ALTERED = array(
    field("error_code", INT16, "0+"),
    field("error_message", STRING, "0+", nullable="0+"),
    field("resource_type", INT8, "0+"),
    field("resource_name", STRING, "0+"),
)


def _altering(key: int, name: str, versions: str, flexible_from: int, *config: Field) -> Api:
    """An API that changes configurations; each change of a resource has the fields `config`."""
    resource = array(
        field("resource_type", INT8, "0+"),
        field("resource_name", STRING, "0+"),
        field("configs", array(*config), "0+"),
    )
    return api(
        key,
        name,
        versions,
        flexible_from=flexible_from,
        request=(field("resources", resource, "0+"), field("validate_only", BOOL, "0+")),
        response=(field("throttle_time_ms", INT32, "0+"), field("responses", _ALTERED, "0+")),
    )


ALTER_CONFIGS = _altering(
    33,
    "AlterConfigs",
    "0-2",
    2,
    field("name", STRING, "0+"),
    field("value", STRING, "0+", nullable="0+"),
)

INCREMENTAL_ALTER_CONFIGS = _altering(
    44,
    "IncrementalAlterConfigs",
    "0-1",
    1,
    field("name", STRING, "0+"),
    field("config_operation", INT8, "0+"),
    field("value", STRING, "0+", nullable="0+"),
)
