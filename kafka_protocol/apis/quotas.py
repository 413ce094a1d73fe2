"""DescribeClientQuotas (KIP-546, KIP-612): quotas of users, client ids and addresses.

Rows follow Kafka's message JSON; a test compares them with the JSON in the kafka-clients jar.
"""

from kafka_protocol.schema import Scalar, api, array, field

INT16 = Scalar.INT16
INT32 = Scalar.INT32
STRING = Scalar.STRING

DESCRIBE_CLIENT_QUOTAS = api(
    48,
    "DescribeClientQuotas",
    "0-1",
    flexible_from=1,
    request=(
        field(
            "components",
            array(
                field("entity_type", STRING, "0+"),
                field("match_type", Scalar.INT8, "0+"),
                field("match", STRING, "0+", nullable="0+"),
            ),
            "0+",
        ),
        field("strict", Scalar.BOOL, "0+"),
    ),
    response=(
        field("throttle_time_ms", INT32, "0+"),
        field("error_code", INT16, "0+"),
        field("error_message", STRING, "0+", nullable="0+"),
        field(
            "entries",
            array(
                field(
                    "entity",
                    array(
                        field("entity_type", STRING, "0+"),
                        field("entity_name", STRING, "0+", nullable="0+"),
                    ),
                    "0+",
                ),
                field(
                    "values",
                    array(field("key", STRING, "0+"), field("value", Scalar.FLOAT64, "0+")),
                    "0+",
                ),
            ),
            "0+",
            nullable="0+",
        ),
    ),
)
