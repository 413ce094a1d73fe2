"""One row of a table of settings: key, kind, default, doc. Pure."""

from dataclasses import dataclass
from typing import Any

from rlm.config.values import TEXT, Kind

REQUIRED = object()
"""Default of a setting that must be given (or found in the broker's files)."""

Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table. `default_doc` says what stands in when the default is computed."""

    key: str
    kind: Kind
    default: Any
    doc: str
    unit: str = ""
    secret: bool = False
    default_doc: str = ""


def _not_yet(key: str, doc: str, *, secret: bool = False) -> Setting:
    return Setting(key=key, kind=TEXT, default=None, doc=doc, secret=secret)


NOT_YET = (
    _not_yet("kafka.sasl.mechanism", "SASL mechanism."),
    _not_yet("kafka.sasl.username", "User name for SASL."),
    _not_yet("kafka.sasl.password", "Password for SASL.", secret=True),
    _not_yet("kafka.ssl.truststore.location", "PEM file of trusted certificates."),
    _not_yet("kafka.ssl.keystore.location", "PEM file of the client's certificate and key."),
    _not_yet("kafka.ssl.key.password", "Password of that key.", secret=True),
)
"""Settings of secured Kafka clients: named, and refused until they work."""
