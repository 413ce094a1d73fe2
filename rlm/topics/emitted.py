"""Writes the configuration of a topic in mode tier for the tool that owns the topic (H14).

Pure, and with few imports: commands need it.
"""

import re
import shlex
from collections.abc import Callable, Mapping

from rlm.topics.retention_configs import TAKEN_OVER, UNLIMITED


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
