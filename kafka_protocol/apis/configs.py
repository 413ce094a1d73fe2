"""Configurations: DescribeConfigs and IncrementalAlterConfigs.

Rows follow Kafka's message JSON; a test compares them with the JSON in the kafka-clients jar.
"""

from kafka_protocol.schema import Array, Scalar, api, array, field

BOOL = Scalar.BOOL
INT16 = Scalar.INT16
INT32 = Scalar.INT32
INT8 = Scalar.INT8
STRING = Scalar.STRING

DESCRIBE_CONFIGS = api(
    32,
    "DescribeConfigs",
    "1-4",
    flexible_from=4,
    request=(
        field(
            "resources",
            array(
                field("resource_type", INT8, "0+"),
                field("resource_name", STRING, "0+"),
                field("configuration_keys", Array(STRING), "0+", nullable="0+"),
            ),
            "0+",
        ),
        field("include_synonyms", BOOL, "1+"),
        field("include_documentation", BOOL, "3+"),
    ),
    response=(
        field("throttle_time_ms", INT32, "0+"),
        field(
            "results",
            array(
                field("error_code", INT16, "0+"),
                field("error_message", STRING, "0+", nullable="0+"),
                field("resource_type", INT8, "0+"),
                field("resource_name", STRING, "0+"),
                field(
                    "configs",
                    array(
                        field("name", STRING, "0+"),
                        field("value", STRING, "0+", nullable="0+"),
                        field("read_only", BOOL, "0+"),
                        field("config_source", INT8, "1+", default=-1, ignorable=True),
                        field("is_sensitive", BOOL, "0+"),
                        field(
                            "synonyms",
                            array(
                                field("name", STRING, "1+"),
                                field("value", STRING, "1+", nullable="0+"),
                                field("source", INT8, "1+"),
                            ),
                            "1+",
                            ignorable=True,
                        ),
                        field("config_type", INT8, "3+", ignorable=True),
                        field("documentation", STRING, "3+", nullable="0+", ignorable=True),
                    ),
                    "0+",
                ),
            ),
            "0+",
        ),
    ),
)

INCREMENTAL_ALTER_CONFIGS = api(
    44,
    "IncrementalAlterConfigs",
    "0-1",
    flexible_from=1,
    request=(
        field(
            "resources",
            array(
                field("resource_type", INT8, "0+"),
                field("resource_name", STRING, "0+"),
                field(
                    "configs",
                    array(
                        field("name", STRING, "0+"),
                        field("config_operation", INT8, "0+"),
                        field("value", STRING, "0+", nullable="0+"),
                    ),
                    "0+",
                ),
            ),
            "0+",
        ),
        field("validate_only", BOOL, "0+"),
    ),
    response=(
        field("throttle_time_ms", INT32, "0+"),
        field(
            "responses",
            array(
                field("error_code", INT16, "0+"),
                field("error_message", STRING, "0+", nullable="0+"),
                field("resource_type", INT8, "0+"),
                field("resource_name", STRING, "0+"),
            ),
            "0+",
        ),
    ),
)
