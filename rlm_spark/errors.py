"""The errors of the connector; each names the topic, partition and offset that it concerns.

They cross from executors to the driver, so each pickles: the arguments of `Exception` are exactly
those of the constructor, and the message is made from them.
"""


class ConnectorError(Exception):
    """Base of every error of this connector; the message is one line."""


class SparkTooOldError(ConnectorError):
    """This Spark has no Python data sources; `rlm_spark.read` works on it."""

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self.version = version

    def __str__(self) -> str:
        return (
            f'format("kafka_tiered") needs PySpark 4.0 or newer, and this is {self.version}: '
            "rlm_spark.read(spark, ...) gives the same rows as a batch"
        )


class DecodeError(ConnectorError):
    """Stored bytes that are no record batches: corrupt, of an unknown format, or hostile.

    `offset` is the record's where known, else its batch's, else the requested one. Not retriable:
    the same bytes give the same error.
    """

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(topic, partition, offset, reason)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} at offset {self.offset}: {self.reason}"


class ServiceError(ConnectorError):
    """The fetch API refused or failed for good. `kind`: name of rlm.v1.ErrorKind, shortened."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(kind, reason)
        self.kind = kind
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.reason} ({self.kind})"


class KafkaClientError(ConnectorError):
    """The connector's own consumer could not do what was asked; the message has no secrets."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class TopicChangedError(ConnectorError):
    """A topic was deleted and recreated under its name while it was read (H6).

    Offsets of the old topic mean other records in the new one.
    """

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(topic, reason)
        self.topic = topic
        self.reason = reason

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.reason}"


class DataLossError(ConnectorError):
    """Offsets [start_offset, end_offset) that no tier of the read mode has, in Spark's words."""

    def __init__(
        self, topic: str, partition: int, start_offset: int, end_offset: int, reason: str
    ) -> None:
        super().__init__(topic, partition, start_offset, end_offset, reason)
        self.topic = topic
        self.partition = partition
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"Cannot fetch records in [{self.start_offset}, {self.end_offset}) of "
            f"{self.topic}-{self.partition}: {self.reason}. Some data may have been lost because "
            "they are not available in Kafka any more; either the data was aged out by Kafka or "
            "the topic may have been deleted before all the data in the topic was processed. "
            "If you don't want your streaming query to fail on such cases, set the source option "
            '"failOnDataLoss" to "false".'
        )
