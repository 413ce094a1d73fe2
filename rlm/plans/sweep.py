"""Decides what to do with the leftovers of attempts: adopt, finish deleting, wait, or alarm (H6,
H10).

An entry is examined only when no live attempt can be behind it. Then the store is asked, and the
evidence decides. Nothing follows from a state alone (H3): an object with a manifest is never swept,
and the DELETE_SEGMENT_STARTED of another writer is continued only for a reason that is found again
now.

    manifest                   COPY_STARTED   DELETE_STARTED               DELETE_FINISHED
    none                       delete         delete                       delete
    there, objects complete    adopt          adopt; delete if it ended    adopt
    there, objects not so      alarm; delete  alarm; delete if it ended    alarm; delete if it ended
                               if it ended    or is superseded             or is superseded

"Ended": it lies below the remote log start, in no later leader epoch (plans/coverage). What has
ended and is whole is adopted first where nobody began to delete it: its end is expiry's. Adopt:
publish the manifest's FINISHED. Superseded: its records are in other copies that were seen now
(plans/coverage). Delete: DELETE_SEGMENT_STARTED (read back), objects, DELETE_SEGMENT_FINISHED,
tombstone. The manifest is deleted first, so an interrupted deletion is found without one. A
manifest without objects at DELETE_SEGMENT_FINISHED is one that arrived after the deletion (H12).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kip405.contracts import Presence
from kip405.ids import Uuid
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEntry:
    """The newest record of one segment, with its writer and its time (the broker's append time)."""

    metadata: RemoteLogSegmentMetadata
    writer: Uuid
    timestamp_ms: int
    disputed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeper:
    """The sweeping service: node, this process's writer id, segments in use here, grace for
    others.
    """

    node_id: int
    writer: Uuid
    live: Collection[Uuid]
    grace_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the store currently has of one segment.

    `manifest` is the metadata that the manifest would publish, None where there is no manifest;
    `unreadable` says why an existing manifest cannot be used, `superseded` whether other copies
    that were seen have all of its records.
    """

    presence: Presence
    manifest: RemoteLogSegmentMetadata | None
    unreadable: str = ""
    superseded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt:
    """Publish this COPY_SEGMENT_FINISHED: objects are complete, only the record is missing."""

    finished: RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """DELETE_SEGMENT_STARTED (read back) -> objects -> DELETE_SEGMENT_FINISHED -> tombstone. What
    is recorded as deleted stays so, and is deleted once more: objects may have come after it.

    `despite_manifest`: it is not deleted because it lacks its manifest, so it may have one.
    """

    reason: str
    despite_manifest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """An operator must decide; nothing is changed."""

    reason: str


Decision = Adopt | Delete | Alarm

ENDED = "it ends below the remote log start"
SUPERSEDED = "its objects are gone, and nothing of it is missed"
_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
_DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


def leftovers(
    entries: Iterable[SweepEntry], sweeper: Sweeper, now_ms: int | None
) -> tuple[SweepEntry, ...]:
    """Entries for which the store should be asked, oldest record first.

    An earlier process of this node has certainly ended (the lock of the state dir proves it), so
    its entries qualify at once. So do those of this process that are no longer live. Other services
    may still be working until the grace has passed: it never has where `now_ms` is None, as nobody
    knows the time (H16).
    """
    found = (
        entry
        for entry in entries
        if entry.metadata.state in (_STARTED, _DELETING, _DELETED)
        and not entry.disputed
        and entry.metadata.segment_id.id not in sweeper.live
        and _is_abandoned(entry, sweeper, now_ms)
    )
    return tuple(sorted(found, key=lambda entry: entry.timestamp_ms))


def _is_abandoned(entry: SweepEntry, sweeper: Sweeper, now_ms: int | None) -> bool:
    if entry.writer == sweeper.writer or entry.metadata.broker_id == sweeper.node_id:
        return True
    return now_ms is not None and now_ms - entry.timestamp_ms >= sweeper.grace_ms


def decide(entry: SweepEntry, evidence: Evidence, *, has_ended: bool) -> Decision:
    """What the evidence requires; a manifest forbids deleting unless its records have ended."""
    metadata = entry.metadata
    if evidence.unreadable:
        return Alarm(reason=f"the manifest cannot be used: {evidence.unreadable}")
    if evidence.manifest is None:
        return Delete(reason="the attempt has no manifest")
    if not _is_same_attempt(metadata, evidence.manifest):
        return Alarm(reason="the manifest describes another segment")
    is_broken = evidence.presence is not Presence.COMPLETE
    is_deleting = metadata.state is _DELETING
    if has_ended and (is_deleting or is_broken):
        return Delete(reason=ENDED, despite_manifest=True)
    if is_broken and evidence.superseded and metadata.state is not _STARTED:
        return Delete(reason=SUPERSEDED, despite_manifest=True)
    return _adopt(evidence.manifest, evidence)


def _adopt(manifest: RemoteLogSegmentMetadata, evidence: Evidence) -> Decision:
    if manifest.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
        return Alarm(reason=f"the manifest would publish {manifest.state.name}")
    if evidence.presence is not Presence.COMPLETE:
        return Alarm(reason=f"a manifest is there, but the objects are {evidence.presence.value}")
    return Adopt(finished=manifest)


def _is_same_attempt(one: RemoteLogSegmentMetadata, other: RemoteLogSegmentMetadata) -> bool:
    return (
        one.segment_id.id == other.segment_id.id
        and one.topic_id_partition.key == other.topic_id_partition.key
        and (one.start_offset, one.end_offset) == (other.start_offset, other.end_offset)
    )
