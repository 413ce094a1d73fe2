"""Ids of topics and the density of their partitions, asked of the fetch API and of Kafka.

Must not know what they are for.
"""

from collections.abc import Sequence

from kip405.ids import Uuid
from rlm_spark import kafka_client
from rlm_spark.kafka_messages import NO_TOPIC_ID
from rlm_spark.kafka_options import kafka_settings
from rlm_spark.pipelines.export_plan import TopicFacts
from rlm_spark.pipelines.segments_client import bytes_per_offset, leased_client
from rlm_spark.stopping import Stop
from rlm_spark.values import ConnectorOptions, TopicPartition


def topic_facts(options: ConnectorOptions, topics: Sequence[str]) -> TopicFacts:
    """Of tiered topics by the fetch API where there is one, of the others by Kafka.

    A topic of neither, or of a Kafka without topic ids, has none. ConnectorError.
    """
    stop = Stop()
    ids: dict[str, str | None] = {}
    density: dict[TopicPartition, float] = {}
    if options.service is not None:
        with leased_client(options.service, options.poll_timeout_ms) as client:
            for topic in client.describe_topics(tuple(topics), TopicPartition("", 0), stop):
                ids[topic.topic] = str(Uuid(topic.topic_id))
                density |= bytes_per_offset(client.finished_segments(topic.topic, stop))
    others = [topic for topic in topics if topic not in ids]
    if others and options.has_kafka:
        ids |= _ids_by_kafka(options, others, stop)
    return TopicFacts(ids=ids, bytes_per_offset=density)


def _ids_by_kafka(
    options: ConnectorOptions, topics: Sequence[str], stop: Stop
) -> dict[str, str | None]:
    settings = kafka_settings(options.kafka)
    with kafka_client.leased_client(settings, options.poll_timeout_ms) as client:
        found = client.topics(topics, stop)
    return {
        name: None if topic.topic_id == NO_TOPIC_ID else str(Uuid(topic.topic_id))
        for name, topic in found.items()
    }
