"""What an operator applies himself with retention.takeover=external."""

import pytest

from rlm.topics.emitted import FORMATS, emitted

EXPECTED = {
    "kafka-configs": """\
kafka-configs.sh --bootstrap-server "$BOOTSTRAP_SERVERS" --alter --entity-type topics \\
  --entity-name Orders_EU.v1 --add-config retention.ms=-1,retention.bytes=-1
""",
    "strimzi": """\
# Merge spec.config into the KafkaTopic of this topic.
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaTopic
metadata:
  name: orders-eu-v1
spec:
  topicName: "Orders_EU.v1"
  config:
    retention.ms: -1
    retention.bytes: -1
""",
    "terraform": """\
# Merge config into the resource of this topic; its other arguments stay as they are.
resource "kafka_topic" "orders_eu_v1" {
  name = "Orders_EU.v1"
  config = {
    "retention.ms" = "-1"
    "retention.bytes" = "-1"
  }
}
""",
}


@pytest.mark.parametrize("form", list(FORMATS))
def test_h14_the_change_in_the_words_of_each_tool(form: str) -> None:
    assert emitted("Orders_EU.v1", form) == EXPECTED[form]


@pytest.mark.parametrize(
    ("topic", "name"),
    [("7-days", "topic-7-days"), ("__x__", "x"), ("...", "topic"), ("a.b", "a-b")],
)
def test_a_resource_has_a_name_that_the_tool_allows(topic: str, name: str) -> None:
    assert f"\n  name: {name}\n" in emitted(topic, "strimzi")
