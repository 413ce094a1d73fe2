"""ACLs: DescribeAcls, by which the command `rlm acls` asks what a principal may do, and CreateAcls,
by which a secured sandbox gives its principals their rights.

Rows follow Kafka's message JSON; a test compares them with the JSON in the kafka-clients jar.
"""

from kafka_protocol.schema import Scalar, api, array, field

INT8, INT16, INT32, STRING = Scalar.INT8, Scalar.INT16, Scalar.INT32, Scalar.STRING
LITERAL_PATTERN = 3

DESCRIBE_ACLS = api(
    29,
    "DescribeAcls",
    "1-3",
    flexible_from=2,
    request=(
        field("resource_type_filter", INT8, "0+"),
        field("resource_name_filter", STRING, "0+", nullable="0+"),
        field("pattern_type_filter", INT8, "1+", default=LITERAL_PATTERN),
        field("principal_filter", STRING, "0+", nullable="0+"),
        field("host_filter", STRING, "0+", nullable="0+"),
        field("operation", INT8, "0+"),
        field("permission_type", INT8, "0+"),
    ),
    response=(
        field("throttle_time_ms", INT32, "0+"),
        field("error_code", INT16, "0+"),
        field("error_message", STRING, "0+", nullable="0+"),
        field(
            "resources",
            array(
                field("resource_type", INT8, "0+"),
                field("resource_name", STRING, "0+"),
                field("pattern_type", INT8, "1+", default=LITERAL_PATTERN),
                field(
                    "acls",
                    array(
                        field("principal", STRING, "0+"),
                        field("host", STRING, "0+"),
                        field("operation", INT8, "0+"),
                        field("permission_type", INT8, "0+"),
                    ),
                    "0+",
                ),
            ),
            "0+",
        ),
    ),
)

CREATE_ACLS = api(
    30,
    "CreateAcls",
    "1-3",
    flexible_from=2,
    request=(
        field(
            "creations",
            array(
                field("resource_type", INT8, "0+"),
                field("resource_name", STRING, "0+"),
                field("resource_pattern_type", INT8, "1+", default=LITERAL_PATTERN),
                field("principal", STRING, "0+"),
                field("host", STRING, "0+"),
                field("operation", INT8, "0+"),
                field("permission_type", INT8, "0+"),
            ),
            "0+",
        ),
    ),
    response=(
        field("throttle_time_ms", INT32, "0+"),
        field(
            "results",
            array(
                field("error_code", INT16, "0+"),
                field("error_message", STRING, "0+", nullable="0+"),
            ),
            "0+",
        ),
    ),
)
