"""What an operator sets on a topic himself with retention.takeover=external, and in which words.

The service then alters no configuration (H14). rlm.topics.emitted writes the change for the tool
that owns the topic. Pure.
"""

from rlm.topics.rules import Config
from rlm.topics.takeover import bounds_of, is_taken_over
from rlmm.settings_records import TopicRecord


def to_be_set(record: TopicRecord, config: Config) -> tuple[str, ...]:
    """A remark while the brokers' retention of a topic in mode tier is bounded."""
    bounds = bounds_of(config) if is_taken_over(record) else ""
    if not bounds:
        return ()
    return (
        f"nothing is trimmed before every broker says -1, now it is {bounds}: set it "
        f"(retention.takeover=external), `rlm topics enable {record.name} --trim --emit "
        "kafka-configs` says how",
    )


def to_be_given_back(before: TopicRecord) -> tuple[str, ...]:
    """A remark when a topic leaves mode tier: its retention stays off until somebody sets it."""
    if not is_taken_over(before):
        return ()
    known = ", ".join(
        f"{name} was not set" if value is None else f"{name}={value}"
        for name, value in before.originals.items()
    )
    return (
        "the topic's configuration is not altered (retention.takeover=external): while its "
        "retention is -1 the brokers delete nothing; set it to what you want"
        + (f", before this service took it over: {known}" if known else ""),
    )
