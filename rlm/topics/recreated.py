"""Detects enabled topics that were deleted, and topics that were recreated under the same name
(H39).

A topic is identified by its id. One that is deleted and recreated under the same name is another
topic: no decision applies to it, and the remote data of the first never becomes its own. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kip405.ids import Uuid
from rlm.plans.problems import Finding, ProblemKind
from rlmm.settings_records import DELETION_GONE, DELETION_PURGE, TopicRecord

PresentTopics = Mapping[str, Uuid]
"""Ids of the topics that exist now, by name; no entry = no topic has the name now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoneTopic:
    """A topic that has a settings record and no longer exists.

    `present_id`: of the topic that has its name now, None where there is none.
    """

    record: TopicRecord
    present_id: Uuid | None


def gone_topics(records: Iterable[TopicRecord], present: PresentTopics) -> tuple[GoneTopic, ...]:
    """Topics whose id no topic has now, in the order given."""
    return tuple(
        GoneTopic(record=record, present_id=present.get(record.name))
        for record in records
        if present.get(record.name) != record.topic_id
    )


def is_gone_end(record: TopicRecord) -> bool:
    """Whether the topic's remote data is to be deleted because the topic itself was."""
    return record.state == "deleting" and record.deletion_cause in (DELETION_GONE, DELETION_PURGE)


def recreated(records: Iterable[TopicRecord], present: PresentTopics) -> tuple[GoneTopic, ...]:
    """By name, the newest deleted topic, where it was enabled and the topic that has the name now
    has no settings record. `records` as of `topic_records`.
    """
    known = tuple(records)
    decided = {record.topic_id for record in known}
    newest = {gone.record.name: gone for gone in gone_topics(known, present)}
    return tuple(
        gone
        for gone in newest.values()
        if (gone.record.state == "enabled" or is_gone_end(gone.record))
        and gone.present_id is not None
        and gone.present_id not in decided
    )


def recreated_text(gone: GoneTopic) -> str:
    """One sentence, with both ids and what to do."""
    name = gone.record.name
    return (
        f"topic {name} was deleted and recreated: the present one (id {gone.present_id}) is not "
        f"tiered and nothing of it is copied; the one that was enabled (id {gone.record.topic_id}) "
        f"is gone, {remote_data_text(gone.record)}; `rlm topics enable {name}` tiers the present "
        f"one, `rlm topics disable {name}` leaves it as it is and keeps that remote data"
    )


def gone_text(gone: GoneTopic) -> str:
    """The description of a deleted topic."""
    return (
        f"no topic has the id {gone.record.topic_id} any more: {gone.record.name} was deleted; "
        f"{remote_data_text(gone.record)}"
    )


def remote_data_text(record: TopicRecord) -> str:
    """What happens to the remote data of a topic that was deleted."""
    if record.state == "kept":
        return f"its remote data is kept (`rlm purge {record.topic_id} --confirm` deletes it)"
    return "its remote data will be deleted (`rlm purge` shows when)"


def former_texts(records: Iterable[TopicRecord], name: str, topic_id: Uuid) -> tuple[str, ...]:
    """What an operator who enables a topic should know of earlier topics with its name."""
    return tuple(
        f"a former topic {name} is gone (id {one.topic_id}): {remote_data_text(one)} and is not "
        "read under this name"
        for one in records
        if one.name == name and one.topic_id != topic_id
    )


def recreated_findings(gone: Iterable[GoneTopic], why: Mapping[Uuid, str]) -> tuple[Finding, ...]:
    """As problems. `why`, by present id: why the service did not enable the topic itself."""
    return tuple(
        Finding(
            kind=ProblemKind.TOPIC_RECREATED,
            subject=f"topic {one.record.name}",
            topic=one.record.name,
            text=recreated_text(one) + _because(one, why),
        )
        for one in gone
    )


def _because(gone: GoneTopic, why: Mapping[Uuid, str]) -> str:
    reason = why.get(gone.present_id) if gone.present_id is not None else None
    return f"; it could not be enabled by the service: {reason}" if reason else ""
