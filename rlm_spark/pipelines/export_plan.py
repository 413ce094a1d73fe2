"""What one run of an export has to do: chunks left by earlier runs, and new ones, planned for good.

Runs on the driver under the target's lock. Must not know Spark.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rlm_spark import offsets
from rlm_spark.offsets import Positions
from rlm_spark.options import BatchQuery
from rlm_spark.pipelines.chunks import Chunk, ChunkSize, covered, new_chunks
from rlm_spark.pipelines.records import ExportError
from rlm_spark.pipelines.spans import spans
from rlm_spark.pipelines.target import Book
from rlm_spark.values import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """What is known of topics beside offsets: their ids (22 characters), and stored bytes an offset
    by partition.
    """

    ids: Mapping[str, str | None] = field(default_factory=dict)
    bytes_per_offset: Mapping[TopicPartition, float] = field(default_factory=dict)


def prepare(
    book: Book,
    query: BatchQuery,
    positions: Positions,
    facts_of: Callable[[Sequence[str]], TopicFacts],
    *,
    goes_on: bool,
    size: ChunkSize,
    workers: int,
) -> tuple[Chunk, ...]:
    """The chunks of the query's topics that are to be done now, oldest plans first; new ones such
    that so many workers share them.

    Whatever was left half done is finished or thrown away first. Errors as of `spans`; ExportError
    for a topic that was made anew under its name. Nothing is planned then.
    """
    left = book.left()  # before recovery: what counts from now on is met by who works on it
    book.recover()
    known = book.chunks()
    places = offsets.assigned(query.subscription, positions, must_exist=True)
    topics = {place.topic for place in places}
    facts = facts_of(sorted(topics))
    _check_same_topics((chunk for chunk in known if chunk.topic in topics), facts.ids)
    taken = covered(known)
    wanted = spans(query, places, positions, taken, goes_on=goes_on)
    total = sum(span.end_offset - span.start_offset for span in wanted.values())
    new = new_chunks(
        book.next_plan(),
        wanted,
        taken,
        topic_ids=facts.ids,
        size=size.shared(total, workers),
        bytes_per_offset=facts.bytes_per_offset,
    )
    book.write_plan(new)
    return (*(chunk for chunk in left if chunk.topic in topics), *new)


def _check_same_topics(known: Iterable[Chunk], ids: Mapping[str, str | None]) -> None:
    for chunk in known:
        now = ids.get(chunk.topic)
        if now is not None and chunk.topic_id is not None and now != chunk.topic_id:
            raise ExportError(
                f"topic {chunk.topic} was deleted and made anew: {chunk.topic_id} was exported, "
                f"it is {now} now; export that to another directory"
            )
