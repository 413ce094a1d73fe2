"""The errors of reads from both tiers.

Each error names the topic, partition and offset that it concerns. Errors cross from Spark's
executors to the driver, so each pickles: the arguments of `Exception` are exactly those of the
constructor, and the message is made from them.
"""


class ConnectorError(Exception):
    """Base of every error of this connector; the message is one line."""


class DecodeError(ConnectorError):
    """Stored bytes that are not record batches: corrupt, of an unknown format, or hostile.

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
