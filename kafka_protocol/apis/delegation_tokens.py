"""CreateDelegationToken, ExpireDelegationToken and DescribeDelegationToken (KIP-48, KIP-373).

Whoever has a token's id and HMAC is its owner to the brokers, so no value of these is ever logged.
Rows follow Kafka's message JSON; a test compares them with the JSON in the kafka-clients jar.
"""

from kafka_protocol.schema import Scalar, api, array, field

BYTES = Scalar.BYTES
INT16 = Scalar.INT16
INT32 = Scalar.INT32
INT64 = Scalar.INT64
STRING = Scalar.STRING

_PRINCIPALS = array(field("principal_type", STRING, "0+"), field("principal_name", STRING, "0+"))

CREATE_DELEGATION_TOKEN = api(
    38,
    "CreateDelegationToken",
    "1-3",
    flexible_from=2,
    request=(
        field("owner_principal_type", STRING, "3+", nullable="3+"),
        field("owner_principal_name", STRING, "3+", nullable="3+"),
        field("renewers", _PRINCIPALS, "0+"),
        field("max_lifetime_ms", INT64, "0+"),
    ),
    response=(
        field("error_code", INT16, "0+"),
        field("principal_type", STRING, "0+"),
        field("principal_name", STRING, "0+"),
        field("token_requester_principal_type", STRING, "3+"),
        field("token_requester_principal_name", STRING, "3+"),
        field("issue_timestamp_ms", INT64, "0+"),
        field("expiry_timestamp_ms", INT64, "0+"),
        field("max_timestamp_ms", INT64, "0+"),
        field("token_id", STRING, "0+"),
        field("hmac", BYTES, "0+"),
        field("throttle_time_ms", INT32, "0+"),
    ),
)

EXPIRE_DELEGATION_TOKEN = api(
    40,
    "ExpireDelegationToken",
    "1-2",
    flexible_from=2,
    request=(
        field("hmac", BYTES, "0+"),
        field("expiry_time_period_ms", INT64, "0+"),
    ),
    response=(
        field("error_code", INT16, "0+"),
        field("expiry_timestamp_ms", INT64, "0+"),
        field("throttle_time_ms", INT32, "0+"),
    ),
)

DESCRIBE_DELEGATION_TOKEN = api(
    41,
    "DescribeDelegationToken",
    "1-3",
    flexible_from=2,
    request=(field("owners", _PRINCIPALS, "0+", nullable="0+"),),
    response=(
        field("error_code", INT16, "0+"),
        field(
            "tokens",
            array(
                field("principal_type", STRING, "0+"),
                field("principal_name", STRING, "0+"),
                field("token_requester_principal_type", STRING, "3+"),
                field("token_requester_principal_name", STRING, "3+"),
                field("issue_timestamp", INT64, "0+"),
                field("expiry_timestamp", INT64, "0+"),
                field("max_timestamp", INT64, "0+"),
                field("token_id", STRING, "0+"),
                field("hmac", BYTES, "0+"),
                field("renewers", _PRINCIPALS, "0+"),
            ),
            "0+",
        ),
        field("throttle_time_ms", INT32, "0+"),
    ),
)
