"""Deletes segments from their stores and the ledger, in the order of G4, whoever has the reason.

    check -> DELETE_SEGMENT_STARTED, read back as our own -> reason and check again -> objects
    -> audit log -> DELETE_SEGMENT_FINISHED -> tombstone

A batch is deleted in groups: within a group many records are published and many objects deleted at
the same time. The next group begins with a check of its own, and a freeze is noticed before each
segment's objects. After an interruption at any point a ledger entry remains in
DELETE_SEGMENT_STARTED or DELETE_SEGMENT_FINISHED, from which the next run continues. This module
must not know why something is deleted: a remote log start that has to be raised first is already
raised (rlm/remote_log/log_starts.py).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kip405.contracts import Presence
from kip405.errors import Fenced, RemoteStorageError, Unavailable
from kip405.ids import Uuid
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.clock import Clock
from rlm.remote_log.ports import Ledger
from rlm.tasks.evidence import StoreEvidence, store_of

_DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
_DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
_GROUP = 64
"""Segments that are checked together, and ledger records in flight."""
_OBJECTS_AT_ONCE = 32
"""Segments whose objects are deleted at the same time."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionPermit:
    """What must hold while segments of one partition are deleted; asked again before each step.

    `leader_epoch`: under which the ledger records are published.
    `refusal`: why nothing may be deleted now, as by a freeze; None = it may. Awaits nothing.
    `check_right`: Fenced where this service may no longer act, as without leadership.
    `check_reason`: Fenced where the reason to delete a segment does not hold any more.
    `may_be_written`: whether a write of a segment that was given up may still reach its store.
    `record`: called with segments whose objects are gone, before the ledger forgets them.
    """

    leader_epoch: int
    refusal: Callable[[], str | None]
    check_right: Callable[[], Awaitable[object]]
    check_reason: Callable[[RemoteLogSegmentMetadata], Awaitable[None]]
    may_be_written: Callable[[RemoteLogSegmentMetadata], bool]
    record: Callable[[Sequence[RemoteLogSegmentMetadata]], Awaitable[None]]


@dataclass(slots=True)
class Deletions:
    """Result of a batch. `store_errors`: of stores that did not delete; those segments stay in
    DELETE_SEGMENT_STARTED. `stopped`: what ended the batch before its end, None = nothing did.
    """

    deleted: list[RemoteLogSegmentMetadata] = field(default_factory=list)
    store_errors: list[RemoteStorageError] = field(default_factory=list)
    stopped: RemoteStorageError | None = None


class SegmentDeleter:
    """Deletes segments of the partitions that a service may delete from (see DeletionPermit)."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        evidence: StoreEvidence,
        clock: Clock,
        node_id: int,
    ) -> None:
        self._ledger = ledger
        self._evidence = evidence
        self._clock = clock
        self._node_id = node_id

    async def delete(
        self, segments: Sequence[RemoteLogSegmentMetadata], permit: DeletionPermit
    ) -> Deletions:
        """Delete segments whose newest ledger state is that of the metadata given.

        A store that is away ends the deletions of its own segments, and of no others; one that
        refuses a segment does not even that. What stops a batch: Fenced where it is frozen, without
        right or reason any more, or overtaken by another writer; Invalid where a store is not the
        expected one (H11); Unavailable, OutcomeUnknown where a record was not read back.
        """
        result = Deletions()
        away: set[Uuid] = set()
        try:
            for first in range(0, len(segments), _GROUP):
                group = segments[first : first + _GROUP]
                await self._delete_group(group, permit, result, away)
        except RemoteStorageError as error:
            result.stopped = error
        return result

    async def bury(self, metadata: RemoteLogSegmentMetadata, leader_epoch: int) -> None:
        """Remove an entry in DELETE_SEGMENT_FINISHED: nothing is left of its objects."""
        await self._ledger.tombstone(metadata.segment_id, leader_epoch)

    async def _delete_group(
        self,
        group: Sequence[RemoteLogSegmentMetadata],
        permit: DeletionPermit,
        result: Deletions,
        away: set[Uuid],
    ) -> None:
        group = await self._check(group, permit, result, away)
        await each_at_once(group, _GROUP, lambda one: self._begin(one, permit))
        await each_at_once(group, _GROUP, permit.check_reason)
        group = await self._check(group, permit, result, away)
        gone: list[RemoteLogSegmentMetadata] = []
        stopped: Fenced | None = None

        async def delete_objects(metadata: RemoteLogSegmentMetadata) -> None:
            store_id = store_of(metadata)
            if store_id in away:
                return
            _refuse(permit)
            try:
                await self._delete_objects(metadata, permit)
            except Fenced:
                raise
            except RemoteStorageError as error:
                if isinstance(error, Unavailable):
                    away.add(store_id)
                result.store_errors.append(error)
            else:
                gone.append(metadata)

        try:
            await each_at_once(group, _OBJECTS_AT_ONCE, delete_objects)
        except Fenced as error:
            stopped = error  # what is gone by now is still recorded
        if gone:
            await permit.record(gone)
        await each_at_once(gone, _GROUP, lambda one: self._end(one, permit))
        result.deleted += gone
        if stopped is not None:
            raise stopped

    async def _check(
        self,
        group: Sequence[RemoteLogSegmentMetadata],
        permit: DeletionPermit,
        result: Deletions,
        away: set[Uuid],
    ) -> list[RemoteLogSegmentMetadata]:
        """Right before a step: they are the right stores, no freeze was set, we may still act.
        Answers the segments whose stores answer.
        """
        asked = [one for one in group if store_of(one) not in away]
        for one in {store_of(one): one for one in asked}.values():
            try:
                await self._evidence.check_identity([one])
            except Unavailable as error:
                away.add(store_of(one))
                result.store_errors.append(error)
        _refuse(permit)
        await permit.check_right()
        return [one for one in asked if store_of(one) not in away]

    async def _begin(self, metadata: RemoteLogSegmentMetadata, permit: DeletionPermit) -> None:
        deleting = self._in_state(metadata, _DELETING)
        await self._ledger.publish(deleting, permit.leader_epoch, int(metadata.state))

    async def _end(self, metadata: RemoteLogSegmentMetadata, permit: DeletionPermit) -> None:
        deleted = self._in_state(metadata, _DELETED)
        await self._ledger.publish(deleted, permit.leader_epoch, int(_DELETING))
        await self.bury(metadata, permit.leader_epoch)

    async def _delete_objects(
        self, metadata: RemoteLogSegmentMetadata, permit: DeletionPermit
    ) -> None:
        """The manifest of a write that was given up may be stored after its objects were deleted
        (H12).

        Fenced where its objects exist: then it is a copy, and the next run decides about it.
        """
        await self._evidence.delete(metadata)
        if not permit.may_be_written(metadata):
            return
        found = await self._evidence.manifest(metadata)
        if found.metadata is None and not found.unreadable:
            return
        if found.metadata is not None:
            presence = await self._evidence.presence(found.metadata)
            if presence is Presence.COMPLETE:
                raise Fenced(f"{metadata.segment_id} is whole again, though it was deleted")
        await self._evidence.delete(metadata)

    def _in_state(
        self, metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState
    ) -> RemoteLogSegmentMetadata:
        return metadata.in_state(
            state, event_timestamp_ms=self._clock.now_ms(), broker_id=self._node_id
        )


def _refuse(permit: DeletionPermit) -> None:
    stopped = permit.refusal()
    if stopped is not None:
        raise Fenced(stopped)


async def each_at_once(
    items: Iterable[T], at_once: int, act: Callable[[T], Awaitable[None]]
) -> None:
    """Call `act` for every item; after an error no further call begins, and the first error is
    raised when those that were begun have ended.
    """
    slots = asyncio.Semaphore(at_once)
    has_failed = False

    async def one(item: T) -> None:
        nonlocal has_failed
        async with slots:
            if has_failed:
                return
            try:
                await act(item)
            except BaseException:
                has_failed = True
                raise

    ended = await asyncio.gather(*(one(item) for item in items), return_exceptions=True)
    for error in ended:
        if error is not None:
            raise error
