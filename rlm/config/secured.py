"""Settings of secured Kafka clients, which do not work yet: they are named, and refused."""

from kip405.settings import TEXT, Setting, Table

NOT_YET = Table(
    *(
        Setting(key=key, kind=TEXT, doc=doc, secret=key.endswith("password"))
        for key, doc in (
            ("kafka.security.protocol", "Protocol of the Kafka clients, which speak PLAINTEXT."),
            ("kafka.sasl.mechanism", "SASL mechanism."),
            ("kafka.sasl.username", "User name for SASL."),
            ("kafka.sasl.password", "Password for SASL."),
            ("kafka.ssl.truststore.location", "PEM file of trusted certificates."),
            ("kafka.ssl.keystore.location", "PEM file of the client's certificate and key."),
            ("kafka.ssl.key.password", "Password of that key."),
        )
    )
)
