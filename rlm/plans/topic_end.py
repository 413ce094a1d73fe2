"""Decides when a topic is known to be deleted, and when its remote data may be deleted too (H7).

Absence is no evidence: a broker leaves topics out of lists after a change of ACLs, and one that
still reads its metadata knows nothing yet. Evidence is the answer UNKNOWN_TOPIC_ID to Metadata by
topic id,

- of every broker that answered, and of at least two (of all, where there are fewer),
- of the cluster that the settings name, each of which describes our ledger topic in that same
  answer,
- on two occasions a grace period apart, with no other answer in between.

Several such topics at a time, or a large share of all remote bytes, are more likely a mistake than
a wish: they wait for an operator. What is decided is recorded (state `deleting`) and carried out
after a delay, within which it can be revoked. Pure; the steps are in `rlm/tasks/partition_end.py`.
"""

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kip405.ids import Uuid
from kip405.segments import RemotePartitionDeleteState

NO_ERROR = 0
UNKNOWN_TOPIC_ID = 100
_ENOUGH_BROKERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAnswer:
    """What one broker answered to Metadata by topic id.

    `error_codes`: Kafka's, by topic id. `brokers`: node ids that are alive by this answer or have
    a replica of a topic that it describes.
    """

    node_id: int
    cluster_id: str | None
    error_codes: Mapping[Uuid, int]
    brokers: frozenset[int]


def doubt(answers: Sequence[BrokerAnswer], *, cluster_id: str, ledger_topic_id: Uuid) -> str | None:
    """Why the answers of one occasion prove nothing; None = they count.

    One answer is enough where it knows all topics: only what is unknown needs more brokers.
    """
    for answer in answers:
        who = f"broker {answer.node_id}"
        if answer.cluster_id != cluster_id:
            return f"{who} belongs to cluster {answer.cluster_id}, not {cluster_id}"
        code = answer.error_codes.get(ledger_topic_id)
        if code != NO_ERROR:
            return f"{who} does not describe the ledger topic (error code {code})"
    known = frozenset[int]().union(*(answer.brokers for answer in answers))
    needed = max(1, min(_ENOUGH_BROKERS, len(known)))
    codes = {code for answer in answers for code in answer.error_codes.values()}
    if len(answers) < needed and (not answers or UNKNOWN_TOPIC_ID in codes):
        return f"{len(answers)} brokers answered, {needed} are needed"
    return None


def unknown_everywhere(
    answers: Sequence[BrokerAnswer], topic_ids: Iterable[Uuid]
) -> frozenset[Uuid]:
    """Topics of which every broker answered that it knows no such id."""
    return frozenset(
        topic_id
        for topic_id in topic_ids
        if answers
        and all(answer.error_codes.get(topic_id) == UNKNOWN_TOPIC_ID for answer in answers)
    )


def described_by(answers: Iterable[BrokerAnswer], topic_id: Uuid) -> tuple[int, ...]:
    """Node ids of the brokers that know the topic."""
    return tuple(
        answer.node_id for answer in answers if answer.error_codes.get(topic_id) == NO_ERROR
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasions:
    """Since when (monotonic ms) each topic was unknown on every occasion; immutable."""

    unknown_since_ms: Mapping[Uuid, int] = field(default_factory=dict)

    def followed_by(self, unknown: Collection[Uuid], now_ms: int) -> "Occasions":
        """After another occasion; topics that are not unknown now begin again."""
        before = self.unknown_since_ms
        return Occasions(
            unknown_since_ms={topic_id: before.get(topic_id, now_ms) for topic_id in unknown}
        )

    def proven(self, now_ms: int, grace_ms: int) -> frozenset[Uuid]:
        """Topics that were unknown for a whole grace period."""
        return frozenset(
            topic_id
            for topic_id, since_ms in self.unknown_since_ms.items()
            if now_ms - since_ms >= grace_ms
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndLimits:
    """What ends without an operator: topics at a time, and their share of all remote bytes."""

    max_topics: int
    max_share_percent: int


def needs_operator(
    *, topics: int, size_bytes: int, all_bytes: int, limits: EndLimits
) -> str | None:
    """Why deleted topics wait for `rlm purge --confirm`; None = they need not.

    `topics`, `size_bytes`: of all that seem to be deleted now, also of those whose remote data is
    about to be deleted. `all_bytes`: of all topics.
    """
    if topics > limits.max_topics:
        return f"{topics} topics seem to be deleted at once (at most {limits.max_topics} may be)"
    if size_bytes * 100 > all_bytes * limits.max_share_percent:
        share = size_bytes * 100 // all_bytes
        return (
            f"what seems to be deleted has {share} % of all remote bytes (at most "
            f"{limits.max_share_percent} % may go at once)"
        )
    return None


class EndStep(enum.Enum):
    """What is due next for a topic whose remote data is to be deleted."""

    MARK = "mark"
    WAIT = "wait"
    DELETE = "delete"
    FORGET = "forget"


_FINISHED = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED
PartitionEndStates = Collection[RemotePartitionDeleteState | None]


def next_step(states: PartitionEndStates, *, age_ms: int, delay_ms: int) -> EndStep:
    """`states`: of every partition of which anything may be left, None = without a
    partition-delete record. `age_ms`: how long ago the deletion was certainly decided.
    """
    if None in states:
        return EndStep.MARK
    if age_ms < delay_ms:
        return EndStep.WAIT
    if all(state is _FINISHED for state in states):
        return EndStep.FORGET
    return EndStep.DELETE


def chosen_node(
    stores_of: Mapping[int, Collection[Uuid] | None], needed: Collection[Uuid]
) -> int | None:
    """The live service that works on a topic: the lowest node id that knows all stores, else the
    lowest; None without any. `stores_of`: by live node, None = it does not say.
    """
    able = [
        node_id
        for node_id, stores in stores_of.items()
        if stores is None or set(needed) <= set(stores)
    ]
    return min(able or stores_of, default=None)
