"""Kafka's own message JSON, from the kafka-clients jar of the pinned Kafka."""

import pytest

from rlm_sandbox.kafka_dist import resolve_kafka
from tests.kafka_protocol.oracle import Oracle, load_messages


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    dist = resolve_kafka()
    (jar,) = [one for one in dist.jars if one.name.startswith(f"kafka-clients-{dist.version}")]
    return Oracle(load_messages(jar))
