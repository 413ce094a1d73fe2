"""What an operator sets on a topic himself with retention.takeover=external, and in which words.

The service then alters no configuration (H14). `emitted` writes the change for the tool that owns
the topic. Pure.
"""

import re
import shlex
from collections.abc import Callable, Mapping

from rlm.topics.rules import Config
from rlm.topics.takeover import TAKEN_OVER, UNLIMITED, bounds_of, is_taken_over
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


def _kafka_configs(topic: str) -> str:
    values = ",".join(f"{name}={UNLIMITED}" for name in TAKEN_OVER)
    return (
        'kafka-configs.sh --bootstrap-server "$BOOTSTRAP_SERVERS" --alter --entity-type topics \\\n'
        f"  --entity-name {shlex.quote(topic)} --add-config {values}\n"
    )


def _strimzi(topic: str) -> str:
    rows = "".join(f"    {name}: {UNLIMITED}\n" for name in TAKEN_OVER)
    return (
        "# Merge spec.config into the KafkaTopic of this topic.\n"
        "apiVersion: kafka.strimzi.io/v1beta2\n"
        "kind: KafkaTopic\n"
        "metadata:\n"
        f"  name: {_resource_name(topic, '-')}\n"
        "spec:\n"
        f'  topicName: "{topic}"\n'
        "  config:\n"
        f"{rows}"
    )


def _terraform(topic: str) -> str:
    rows = "".join(f'    "{name}" = "{UNLIMITED}"\n' for name in TAKEN_OVER)
    return (
        "# Merge config into the resource of this topic; its other arguments stay as they are.\n"
        f'resource "kafka_topic" "{_resource_name(topic, "_")}" {{\n'
        f'  name = "{topic}"\n'
        "  config = {\n"
        f"{rows}"
        "  }\n"
        "}\n"
    )


def _resource_name(topic: str, separator: str) -> str:
    """A name that the tool allows; the topic's own name stands beside it."""
    name = re.sub(r"[^a-z0-9]+", separator, topic.lower()).strip(separator)
    return name if name[:1].isalpha() else f"topic{separator}{name}".strip(separator)


FORMATS: Mapping[str, Callable[[str], str]] = {
    "kafka-configs": _kafka_configs,
    "strimzi": _strimzi,
    "terraform": _terraform,
}
"""By the values of --emit."""


def emitted(topic: str, form: str) -> str:
    """What sets the brokers' retention of a topic to -1, for a tool of FORMATS. The topic's name is
    one that Kafka allows.
    """
    return FORMATS[form](topic)
