"""Topics that were enabled and are gone, and new topics that bear their names (H39). Pure.

A topic is its id. One that is deleted and made again under the same name is another topic: nothing
was decided for it, and the remote data of the first never becomes its own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kip405.ids import Uuid
from rlm.plans.problems import Finding, ProblemKind
from rlmm.settings_records import TopicRecord

PresentTopics = Mapping[str, Uuid]
"""Ids of the topics that exist now, by name; a name without an entry is no topic's now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoneTopic:
    """A topic that something was decided for and that exists no more.

    `present_id`: of the topic that has its name now, None where there is none.
    """

    record: TopicRecord
    present_id: Uuid | None


def gone_topics(records: Iterable[TopicRecord], present: PresentTopics) -> tuple[GoneTopic, ...]:
    """Those whose id no topic has now, in the order given."""
    return tuple(
        GoneTopic(record=record, present_id=present.get(record.name))
        for record in records
        if present.get(record.name) != record.topic_id
    )


def made_anew(records: Iterable[TopicRecord], present: PresentTopics) -> tuple[GoneTopic, ...]:
    """By name, the newest of those gone, where it was enabled and nothing was decided for the topic
    that has the name now. `records` as of `topic_records`.
    """
    known = tuple(records)
    decided = {record.topic_id for record in known}
    newest = {gone.record.name: gone for gone in gone_topics(known, present)}
    return tuple(
        gone
        for gone in newest.values()
        if gone.record.state == "enabled"
        and gone.present_id is not None
        and gone.present_id not in decided
    )


def made_anew_text(gone: GoneTopic) -> str:
    """One sentence, with both ids, and what to do."""
    name = gone.record.name
    return (
        f"topic {name} was deleted and made anew: the present one (id {gone.present_id}) is not "
        f"tiered and nothing of it is copied; the one that was enabled (id {gone.record.topic_id}) "
        f"is gone, its remote data is kept; `rlm topics enable {name}` tiers the present one, "
        f"`rlm topics disable {name}` leaves it as it is"
    )


def gone_text(gone: GoneTopic) -> str:
    """What a description of one that is gone says."""
    return (
        f"no topic has the id {gone.record.topic_id} any more: {gone.record.name} was deleted; its "
        "remote data is kept"
    )


def former_texts(records: Iterable[TopicRecord], name: str, topic_id: Uuid) -> tuple[str, ...]:
    """What whoever enables a topic should know of others that had its name."""
    former = [str(one.topic_id) for one in records if one.name == name and one.topic_id != topic_id]
    if not former:
        return ()
    return (
        f"a former topic {name} is gone (id {', '.join(former)}): its remote data is kept and is "
        "not read under this name",
    )


def made_anew_findings(gone: Iterable[GoneTopic], why: Mapping[Uuid, str]) -> tuple[Finding, ...]:
    """As problems. `why`, by present id: what kept the service from enabling one by itself."""
    return tuple(
        Finding(
            kind=ProblemKind.TOPIC_MADE_ANEW,
            subject=f"topic {one.record.name}",
            topic=one.record.name,
            text=made_anew_text(one) + _because(one, why),
        )
        for one in gone
    )


def _because(gone: GoneTopic, why: Mapping[Uuid, str]) -> str:
    reason = why.get(gone.present_id) if gone.present_id is not None else None
    return f"; it could not be enabled by the service: {reason}" if reason else ""
