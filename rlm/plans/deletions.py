"""Decides what happens next to a shorter total retention that is not enforced yet. Pure.

A shorter retention makes data deletable. It is announced by a record (`DeletionRecord`), then
written into the topic's record, and enforced only after a delay, so that it can be undone until
then. The topic's record says which retention is enforced; nothing is deleted by the age of a
record alone (H10: a record may land long after it was sent).

    decided and enforced          announcement     next step
    the same                      any              FORGET: remove the announcement
    decided is laxer in a part    any              WIDEN: that part is enforced as decided
    decided is stricter           none             ANNOUNCE
    decided is stricter           not due          wait; it can be undone
    decided is stricter           due              ENFORCE

A record of a version that does not know this has nothing enforced, so a retention that was stored
before and never enforced is announced too.
"""

from dataclasses import dataclass
from enum import Enum

from rlm.plans.retention import retention_in_force
from rlmm.settings_records import DELETES_BY_RETENTION, STOPS_DELETE, DeletionRecord, TopicRecord
from rlmm.settings_view import SettingsView


class DeletionStep(Enum):
    """What the service of the partition-0 leader does next."""

    ANNOUNCE = "announce"
    WIDEN = "widen"
    ENFORCE = "enforce"
    FORGET = "forget"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingDeletion:
    """Data of a topic that will be deletable, and can be kept by undoing the decision.

    `announced` None = the service of the partition-0 leader has not announced it yet. `due_in_ms`:
    it is not enforced earlier; it begins again when the topic's settings change.
    """

    record: TopicRecord
    announced: DeletionRecord | None
    due_in_ms: int | None


def is_pending(record: TopicRecord) -> bool:
    """Whether a stricter retention was decided than is in force."""
    return record.state == "enabled" and retention_in_force(record) != record.total


def pending_deletion(
    view: SettingsView, record: TopicRecord, *, monotonic_ms: int, now_ms: int
) -> PendingDeletion | None:
    """What is pending for a topic; None = nothing."""
    if not is_pending(record):
        return None
    announced = _announced(view, record)
    if announced is None:
        return PendingDeletion(record=record, announced=None, due_in_ms=None)
    age_ms = min(
        view.certain_age_ms(key, monotonic_ms=monotonic_ms, now_ms=now_ms)
        for key in (announced.key, record.key)
    )
    return PendingDeletion(
        record=record, announced=announced, due_in_ms=max(0, announced.delay_ms - age_ms)
    )


def next_step(
    view: SettingsView, record: TopicRecord, *, monotonic_ms: int, now_ms: int
) -> DeletionStep | None:
    """The step that is due for a topic; None = wait."""
    found = view.deletion(record.topic_id)
    if record.state == "deleting" or (found and found.what != DELETES_BY_RETENTION):
        return None
    pending = pending_deletion(view, record, monotonic_ms=monotonic_ms, now_ms=now_ms)
    if _lags(record):
        return DeletionStep.WIDEN
    if pending is None:
        return None if found is None else DeletionStep.FORGET
    if pending.announced is None:
        return DeletionStep.ANNOUNCE
    if pending.due_in_ms or view.stopped_by(record.topic_id, STOPS_DELETE):
        return None
    return DeletionStep.ENFORCE


def _lags(record: TopicRecord) -> bool:
    """Whether a stricter retention counts as enforced than was decided: a version that does not
    know this has made it longer.
    """
    return (
        record.state == "enabled"
        and record.enforced is not None
        and record.enforced != retention_in_force(record)
    )


def _announced(view: SettingsView, record: TopicRecord) -> DeletionRecord | None:
    found = view.deletion(record.topic_id)
    return found if found is not None and found.what == DELETES_BY_RETENTION else None
