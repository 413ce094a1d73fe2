"""The Kafka versions that are supported: the source of the README's table and of the tests. Pure.

Each release line is tested with its newest version.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportedKafka:
    """A release line of Kafka, `3.9`, by the version that is tested."""

    version: str
    modes: tuple[str, ...] = ("kraft",)

    @property
    def line(self) -> str:
        major, minor, *_ = self.version.split(".")
        return f"{major}.{minor}"


_BOTH = ("kraft", "zookeeper")
SUPPORTED_KAFKA = (
    SupportedKafka(version="3.3.2", modes=_BOTH),
    SupportedKafka(version="3.4.1", modes=_BOTH),
    SupportedKafka(version="3.5.2", modes=_BOTH),
    SupportedKafka(version="3.6.2", modes=_BOTH),
    SupportedKafka(version="3.7.2", modes=_BOTH),
    SupportedKafka(version="3.8.1", modes=_BOTH),
    SupportedKafka(version="3.9.2", modes=_BOTH),
    SupportedKafka(version="4.0.2"),
    SupportedKafka(version="4.1.2"),
    SupportedKafka(version="4.2.2"),
    SupportedKafka(version="4.3.1"),
    SupportedKafka(version="4.4.0"),
)
"""Oldest first."""

MIXED_KAFKA = ("3.3.2,3.6.2,3.9.2", "3.9.2,4.1.2,4.4.0")
"""Three brokers in the middle of an upgrade, twice."""

_MODE_NAMES = {"kraft": "KRaft", "zookeeper": "ZooKeeper"}


def support_table() -> str:
    """The Markdown table of the README."""
    rows = (
        f"| {one.line} | {one.version} | {' or '.join(_MODE_NAMES[mode] for mode in one.modes)} |"
        for one in SUPPORTED_KAFKA
    )
    return "\n".join(("| Kafka | tested with | metadata in |", "|---|---|---|", *rows))
