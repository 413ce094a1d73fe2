"""Plans one run of an export: chunks that earlier runs left, and new chunks that never change.

Runs on the driver under the target's lock. `topic_details` asks the fetch API and Kafka for the
ids of topics and the density of their partitions. This module must not know Spark.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kip405.ids import Uuid
from rlm_spark.pipelines.chunks import Chunk, ChunkSize, ExportError, covered, new_chunks
from rlm_spark.pipelines.segments_client import bytes_per_offset, leased_client
from rlm_spark.pipelines.spans import spans
from rlm_spark.pipelines.target import Book
from rlm_spark.plan import offsets
from rlm_spark.plan.offsets import Positions
from rlm_spark.plan.options import BatchQuery
from tiered_reads import kafka_client
from tiered_reads.kafka_options import kafka_settings
from tiered_reads.kafka_requests import NO_TOPIC_ID
from tiered_reads.stopping import Stop
from tiered_reads.values import ConnectorOptions, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDetails:
    """Ids of topics (22 characters), and stored bytes for each offset by partition."""

    ids: Mapping[str, str | None] = field(default_factory=dict)
    bytes_per_offset: Mapping[TopicPartition, float] = field(default_factory=dict)


def prepare(
    book: Book,
    query: BatchQuery,
    positions: Positions,
    details_of: Callable[[Sequence[str]], TopicDetails],
    *,
    goes_on: bool,
    size: ChunkSize,
    workers: int,
) -> tuple[Chunk, ...]:
    """The chunks of the query's topics that this run exports, oldest plans first.

    New chunks are sized so that `workers` workers share them. Unfinished attempts are completed or
    discarded first. Errors are those of `spans`, and ExportError for a topic that was recreated
    under its name; then nothing is planned.
    """
    left = book.left()  # before recovery: a chunk committed later is skipped by its task
    book.recover()
    known = book.chunks()
    topic_partitions = offsets.assigned(query.subscription, positions, must_exist=True)
    topics = {topic_partition.topic for topic_partition in topic_partitions}
    details = details_of(sorted(topics))
    _check_same_topics((chunk for chunk in known if chunk.topic in topics), details.ids)
    taken = covered(known)
    wanted = spans(query, topic_partitions, positions, taken, goes_on=goes_on)
    total = sum(span.end_offset - span.start_offset for span in wanted.values())
    new = new_chunks(
        book.next_plan(),
        wanted,
        taken,
        topic_ids=details.ids,
        size=size.shared(total, workers),
        bytes_per_offset=details.bytes_per_offset,
    )
    book.write_plan(new)
    return (*(chunk for chunk in left if chunk.topic in topics), *new)


def _check_same_topics(known: Iterable[Chunk], ids: Mapping[str, str | None]) -> None:
    for chunk in known:
        now = ids.get(chunk.topic)
        if now is not None and chunk.topic_id is not None and now != chunk.topic_id:
            raise ExportError(
                f"topic {chunk.topic} was deleted and recreated: {chunk.topic_id} was exported, "
                f"it is {now} now; export that to another directory"
            )


def topic_details(options: ConnectorOptions, topics: Sequence[str]) -> TopicDetails:
    """Asks the fetch API about tiered topics, and Kafka about the others.

    A topic that neither knows, or of a Kafka without topic ids, has no id. ConnectorError.
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
    return TopicDetails(ids=ids, bytes_per_offset=density)


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
