"""The right that each method of the API needs, in one table. Pure.

A method that is not in the table is refused to everybody while the API is authorised
(rlm.api.authorization); a test compares the table with the protos. `needs` are the rights on topics
that a request must have before anything of it is done. `keep` takes out of an answer about all
topics what the caller may not describe. A call that names no topic, and is not such a list, is
about the cluster, and needs its right on every topic. Topics are given here by name: whoever asks
resolves ids first (`TopicNames`), so that no id is taken for a name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from google.protobuf.message import Message

from rlm.plans.api_rights import EVERY_TOPIC, ApiRight, Need
from rlm.v1 import admin_pb2, fetch_pb2

ADMIN = admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name
FETCH = fetch_pb2.DESCRIPTOR.services_by_name["FetchService"].full_name

_D, _R, _O = ApiRight.DESCRIBE, ApiRight.READ, ApiRight.OPERATE
_C, _X = ApiRight.CONFIGURE, ApiRight.DELETE

Sees = Callable[[str], bool]
"""Whether the caller may describe a topic."""


class TopicNames(Protocol):
    """Resolves ids of topics (rlm.api.authorization)."""

    async def of_ref(self, ref: fetch_pb2.TopicRef) -> str:
        """The name of the topic; NotFound where its id is not known."""
        ...

    def meant_by(self, text: str) -> tuple[str, ...]:
        """The names of all topics that a text means which may be a name or an id."""
        ...


Needs = Callable[[Any, TopicNames], Iterable[Need]]
Changes = Callable[[Any], bool]


def _never(request: Message) -> bool:
    return False


def _always(request: Message) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodRule:
    """One row. `words` say for people which right the method needs, on what.

    `needs`: of a request whose topics are names. `by_ref`: the request names its topic by
    TopicRef. `changes`: whether a request changes something, so that it leaves a line in the audit
    log. `keep`: see the module. `never_waits`: the command is carried out although its line cannot
    be written within a second: it only stops what deletes, or it makes room on a disk that is full.
    """

    words: str
    needs: Needs = lambda request, names: ()
    by_ref: ApiRight | None = None
    changes: Changes = _never
    keep: Callable[[Any, Sees], None] | None = None
    never_waits: bool = False

    @property
    def may_change(self) -> bool:
        """Whether there are requests of this method that change something."""
        return self.changes is not _never


def _on_topic(*rights: ApiRight) -> Needs:
    def needs(request: Any, names: TopicNames) -> Iterator[Need]:
        for right in rights:
            yield Need(right=right, topic=request.topic)

    return needs


def _on_topic_or_every(right: ApiRight) -> Needs:
    def needs(request: Any, names: TopicNames) -> Iterator[Need]:
        yield Need(right=right, topic=request.topic or EVERY_TOPIC)

    return needs


def _on_meant_or_every(right: ApiRight) -> Needs:
    """For commands that take the id of a topic for its name."""

    def needs(request: Any, names: TopicNames) -> Iterator[Need]:
        if not request.topic:
            yield Need(right=right, topic=EVERY_TOPIC)
            return
        for topic in names.meant_by(request.topic):
            yield Need(right=right, topic=topic, named=request.topic)

    return needs


def _on_every(*rights: ApiRight) -> Needs:
    return lambda request, names: [Need(right=right, topic=EVERY_TOPIC) for right in rights]


def _on_topic_if(right: ApiRight, switch: Callable[[Any], bool], otherwise: ApiRight) -> Needs:
    def needs(request: Any, names: TopicNames) -> Iterator[Need]:
        yield Need(right=right if switch(request) else otherwise, topic=request.topic)

    return needs


def _disable(request: admin_pb2.DisableTopicRequest, names: TopicNames) -> Iterator[Need]:
    rights = (_C, _X) if request.delete_remote else (_C,)
    for topic in names.meant_by(request.topic):
        for right in rights:
            yield Need(right=right, topic=topic, named=request.topic)


def _undo(request: admin_pb2.UndoDeletionRequest, names: TopicNames) -> Iterator[Need]:
    for topic in names.meant_by(request.topic):
        yield Need(right=_C, topic=topic, named=request.topic)


def _purge(request: admin_pb2.PurgeRequest, names: TopicNames) -> Iterator[Need]:
    if not request.confirm:
        return
    if not request.topics:
        yield Need(right=_X, topic=EVERY_TOPIC)
    for text in request.topics:
        for topic in names.meant_by(text):
            yield Need(right=_X, topic=topic, named=text)


def _plan_topic(request: admin_pb2.PlanTopicRequest, names: TopicNames) -> Iterator[Need]:
    """As for EnableTopic, which says as much of groups, brokers and their directories."""
    yield Need(right=_C, topic=request.enable.topic)


def _copy_closed(request: admin_pb2.CopyClosedRequest, names: TopicNames) -> Iterator[Need]:
    if not request.targets:
        yield Need(right=_O, topic=EVERY_TOPIC)
    for target in request.targets:
        yield Need(right=_O, topic=target.topic)


def _describe_if_named(request: Any, names: TopicNames) -> Iterator[Need]:
    if request.topic:
        yield Need(right=_D, topic=request.topic)


def _describe_named(request: fetch_pb2.DescribeTopicsRequest, names: TopicNames) -> Iterator[Need]:
    for topic in request.topics:
        yield Need(right=_D, topic=topic)


def _keep(field: str) -> Callable[[Any, Sees], None]:
    """Keeps the rows of a repeated field that are about a topic which the caller sees."""

    def keep(answer: Any, sees: Sees) -> None:
        _only(getattr(answer, field), sees)

    return keep


def _only(rows: Any, sees: Sees) -> None:
    """Rows that name no topic are about the cluster, and for those who see every topic."""
    kept = [row for row in rows if sees(row.topic or EVERY_TOPIC)]
    if len(kept) < len(rows):
        del rows[:]
        rows.extend(kept)


def _keep_freezes(answer: Any, sees: Sees) -> None:
    """A freeze of everything concerns everybody."""
    kept = [row for row in answer.freezes if not row.topic or sees(row.topic)]
    del answer.freezes[:]
    answer.freezes.extend(kept)


def _keep_status(answer: admin_pb2.StatusResponse, sees: Sees) -> None:
    """What is said of services has names of hosts, stores and files."""
    for rows in (answer.partitions, answer.problems, answer.deletions):
        _only(rows, sees)
    _keep_freezes(answer, sees)
    if not sees(EVERY_TOPIC):
        del answer.services[:]
        del answer.readers[:]


def _keep_events(answer: admin_pb2.ListEventsResponse, sees: Sees) -> None:
    """Sources have names of all topics whose tasks run."""
    _only(answer.events, sees)
    if not sees(EVERY_TOPIC):
        del answer.sources[:]


def _has_limits(request: admin_pb2.AcceptRetentionRequest) -> bool:
    return request.HasField("retention_ms") or request.HasField("retention_bytes")


_EACH = "describe, for each topic that the answer is to have"
_ADMIN_RULES: Mapping[str, MethodRule] = {
    "EnableTopic": MethodRule(words="configure on the topic", needs=_on_topic(_C), changes=_always),
    "PlanRetention": MethodRule(words="describe on the topic", needs=_on_topic(_D)),
    "PlanTopic": MethodRule(words="configure on the topic", needs=_plan_topic),
    "DescribeCosts": MethodRule(words="describe on every topic", needs=_on_every(_D)),
    "AcceptRetention": MethodRule(
        words="configure on the topic; describe, where it only plans",
        needs=_on_topic_if(_C, _has_limits, _D),
        changes=_has_limits,
    ),
    "DisableTopic": MethodRule(
        words="configure on the topic; delete too, with `delete_remote`",
        needs=_disable,
        changes=_always,
    ),
    "SetTrim": MethodRule(words="configure on the topic", needs=_on_topic(_C), changes=_always),
    "ListTopics": MethodRule(words=_EACH, keep=_keep("topics")),
    "DescribeTopic": MethodRule(words="describe on the topic", needs=_on_topic(_D)),
    "ListCandidates": MethodRule(words=_EACH, keep=_keep("topics")),
    "Freeze": MethodRule(
        words="operate on the topic, or on every topic",
        needs=_on_meant_or_every(_O),
        changes=_always,
        keep=_keep_freezes,
        never_waits=True,
    ),
    "Unfreeze": MethodRule(
        words="operate on the topic, or on every topic",
        needs=_on_meant_or_every(_O),
        changes=_always,
        keep=_keep_freezes,
    ),
    "ListCopyLimits": MethodRule(words="describe on every topic", needs=_on_every(_D)),
    "SetCopyLimit": MethodRule(
        words="operate on every topic", needs=_on_every(_O), changes=_always
    ),
    "ReloadConfig": MethodRule(
        words="configure on every topic", needs=_on_every(_C), changes=_always
    ),
    "ListDeletions": MethodRule(words=_EACH, keep=_keep("deletions")),
    "UndoDeletion": MethodRule(words="configure on the topic", needs=_undo, changes=_always),
    "Status": MethodRule(
        words="describe on the topic, or for each topic that the answer is to have; services only "
        "with describe on every topic",
        needs=_describe_if_named,
        keep=_keep_status,
    ),
    "InspectStores": MethodRule(words="describe on every topic", needs=_on_every(_D)),
    "AdoptPartition": MethodRule(words="delete on the topic", needs=_on_topic(_X), changes=_always),
    "DiscardPartition": MethodRule(
        words="delete on the topic; describe, where it only plans",
        needs=_on_topic_if(_X, lambda request: request.confirm, _D),
        changes=lambda request: bool(request.confirm),
    ),
    "AdoptLogStart": MethodRule(words="delete on the topic", needs=_on_topic(_X), changes=_always),
    "AcceptLoss": MethodRule(
        words="delete on the topic; describe, where it only lists",
        needs=_on_topic_if(_X, lambda request: request.apply, _D),
        changes=lambda request: bool(request.apply),
    ),
    "Verify": MethodRule(
        words="operate on the topic, or on every topic", needs=_on_topic_or_every(_O)
    ),
    "CopyClosed": MethodRule(
        words="operate on each topic that it names",
        needs=_copy_closed,
        changes=_always,
        never_waits=True,
    ),
    "ExplainPartition": MethodRule(words="describe on the topic", needs=_on_topic(_D)),
    "PlanExpiry": MethodRule(words="describe on the topic", needs=_on_topic(_D)),
    "Diagnose": MethodRule(words="describe and operate on every topic", needs=_on_every(_D, _O)),
    "ListEvents": MethodRule(
        words="describe on the topic, or for each topic that the answer is to have; services only "
        "with describe on every topic",
        needs=_describe_if_named,
        keep=_keep_events,
    ),
    "Purge": MethodRule(
        words="delete on each topic that it names, or on every topic; describe for each topic that "
        "the answer is to have",
        needs=_purge,
        changes=lambda request: bool(request.confirm),
        keep=_keep("topics"),
    ),
    "ListClients": MethodRule(words="describe on every topic", needs=_on_every(_D)),
    "ProveAccess": MethodRule(words="operate on the topic", needs=_on_topic(_O)),
}
_FETCH_RULES: Mapping[str, MethodRule] = {
    "Fetch": MethodRule(words="read on the topic", by_ref=_R),
    "ListOffsets": MethodRule(words="describe on the topic", by_ref=_D),
    "DescribeTopics": MethodRule(
        words="describe on each topic that it names, or for each topic that the answer is to have",
        needs=_describe_named,
        keep=_keep("topics"),
    ),
    "DescribeEndpoints": MethodRule(words="none: every known caller may ask"),
    "DescribePartition": MethodRule(words="describe on the topic", by_ref=_D),
    "ListSegments": MethodRule(words="describe on the topic", by_ref=_D),
    "DescribeRemoteLog": MethodRule(words="describe on the topic", by_ref=_D),
    "ReadObject": MethodRule(words="read on the topic", by_ref=_R),
    "BuildRemoteLogAuxState": MethodRule(words="read on the topic", by_ref=_R),
    "Copy": MethodRule(words="operate on the topic", by_ref=_O, changes=_always, never_waits=True),
}
METHOD_RULES: Mapping[str, MethodRule] = {
    **{f"/{ADMIN}/{name}": rule for name, rule in _ADMIN_RULES.items()},
    **{f"/{FETCH}/{name}": rule for name, rule in _FETCH_RULES.items()},
}
"""By the full names of methods, as gRPC has them."""
