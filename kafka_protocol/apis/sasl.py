"""SaslHandshake and SaslAuthenticate: who a connection is. A broker takes both again on an open
connection, before the session that it granted ends (KIP-368).

Rows follow Kafka's message JSON; a test compares them with the JSON in the kafka-clients jar.
"""

from kafka_protocol.schema import Array, Scalar, api, field

BYTES = Scalar.BYTES
INT16 = Scalar.INT16
INT64 = Scalar.INT64
STRING = Scalar.STRING

SASL_HANDSHAKE = api(
    17,
    "SaslHandshake",
    "0-1",
    flexible_from=2,
    request=(field("mechanism", STRING, "0+"),),
    response=(
        field("error_code", INT16, "0+"),
        field("mechanisms", Array(STRING), "0+"),
    ),
)

SASL_AUTHENTICATE = api(
    36,
    "SaslAuthenticate",
    "0-2",
    flexible_from=2,
    request=(field("auth_bytes", BYTES, "0+"),),
    response=(
        field("error_code", INT16, "0+"),
        field("error_message", STRING, "0+", nullable="0+"),
        field("auth_bytes", BYTES, "0+"),
        field("session_lifetime_ms", INT64, "1+", ignorable=True),
    ),
)
