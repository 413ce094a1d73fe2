"""Deletes segments from their stores and the ledger, in the order of G4, whoever has the reason.

    check -> DELETE_SEGMENT_STARTED, read back as our own -> reason and check again -> objects
    -> audit log -> DELETE_SEGMENT_FINISHED -> tombstone

A batch is deleted in groups: within a group many records are published at the same time, and the
segments of each store are deleted in one call, or in several where the store is slow. The next
group begins with a check of its own. A freeze is noticed before each call to a store and during it:
then the call is cancelled, and what it has deleted is not known. A segment that may still be
written is looked at again after its call. After an interruption at any point a ledger entry remains
in DELETE_SEGMENT_STARTED or DELETE_SEGMENT_FINISHED, from which the next run continues. This module
must not know why something is deleted: a remote log start that has to be raised first is already
raised (rlm/remote_log/log_starts.py).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from kip405.contracts import Presence
from kip405.errors import Fenced, RemoteStorageError, Unavailable
from kip405.ids import Uuid
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.clock import Clock
from rlm.plans.call_sizes import MOST_SEGMENTS, CallSizes
from rlm.remote_log.ports import Ledger
from rlm.tasks.evidence import StoreEvidence, store_of

_DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
_DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
_GROUP = MOST_SEGMENTS
"""Segments that are checked together, and ledger records in flight."""
_MANIFESTS_AT_ONCE = 32
"""Segments whose manifests are read again at the same time."""
_NOTICE_SECONDS = 0.5
"""Time within which a freeze is noticed while a store is asked to delete."""
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


@dataclass(slots=True)
class _Progress:
    """Of one batch. `away`: stores that are not asked any more. `gone`: segments of the present
    group whose objects are gone.
    """

    result: Deletions = field(default_factory=Deletions)
    away: set[Uuid] = field(default_factory=set)
    gone: list[RemoteLogSegmentMetadata] = field(default_factory=list)

    def store_failed(
        self, store_id: Uuid, error: RemoteStorageError, *, is_answering: bool = False
    ) -> None:
        """Keep the error; of a store that is away, the first one says it all. One that answers for
        other segments is not away: it may deny one for good, as an object under a legal hold.
        """
        if store_id in self.away and isinstance(error, Unavailable):
            return
        if isinstance(error, Unavailable) and not is_answering:
            self.away.add(store_id)
        self.result.store_errors.append(error)


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
        self._sizes = CallSizes()

    async def delete(
        self, segments: Sequence[RemoteLogSegmentMetadata], permit: DeletionPermit
    ) -> Deletions:
        """Delete segments whose newest ledger state is that of the metadata given.

        A store that is away ends the deletions of its own segments, and of no others; one that
        refuses a segment does not even that. What stops a batch: Fenced where it is frozen, without
        right or reason any more, or overtaken by another writer; Invalid where a store is not the
        expected one (H11); Unavailable, OutcomeUnknown where a record was not read back.
        """
        progress = _Progress()
        try:
            for first in range(0, len(segments), _GROUP):
                await self._delete_group(segments[first : first + _GROUP], permit, progress)
        except RemoteStorageError as error:
            progress.result.stopped = error
        return progress.result

    async def _delete_group(
        self,
        group: Sequence[RemoteLogSegmentMetadata],
        permit: DeletionPermit,
        progress: _Progress,
    ) -> None:
        group = await self._check(group, permit, progress)
        await each_at_once(group, _GROUP, lambda one: self._begin(one, permit))
        await each_at_once(group, _GROUP, permit.check_reason)
        group = await self._check(group, permit, progress)
        progress.gone = []
        stopped: Fenced | None = None
        try:
            async with _until_refused(permit):
                await self._delete_stored(group, permit, progress)
        except Fenced as error:
            stopped = error  # what is gone by now is still recorded
        gone = progress.gone
        if gone:
            await permit.record(gone)
        await each_at_once(gone, _GROUP, lambda one: self._end(one, permit))
        progress.result.deleted += gone
        if stopped is not None:
            raise stopped

    async def _delete_stored(
        self,
        group: Sequence[RemoteLogSegmentMetadata],
        permit: DeletionPermit,
        progress: _Progress,
    ) -> None:
        """Delete the objects; Fenced where the group must not go on."""
        by_store: dict[Uuid, list[RemoteLogSegmentMetadata]] = {}
        for one in group:
            by_store.setdefault(store_of(one), []).append(one)
        for store_id, left in by_store.items():
            while left and store_id not in progress.away:
                _refuse(permit)
                size = self._sizes.of(store_id)
                part, left = left[:size], left[size:]
                await self._delete_part(store_id, part, permit, progress)

    async def _delete_part(
        self,
        store_id: Uuid,
        segments: Sequence[RemoteLogSegmentMetadata],
        permit: DeletionPermit,
        progress: _Progress,
    ) -> None:
        """Delete so many segments of a store by one call. What came back of those that may still be
        written is deleted once more (H12).
        """
        deleted, fenced = await self._call(store_id, segments, progress)
        progress.gone += [one for one in deleted if not permit.may_be_written(one)]
        if fenced is not None:
            raise fenced
        returned: list[RemoteLogSegmentMetadata] = []

        async def read_again(metadata: RemoteLogSegmentMetadata) -> None:
            if store_id in progress.away:
                return
            try:
                has_returned = await self._has_returned(metadata)
            except Fenced:
                raise
            except RemoteStorageError as error:
                progress.store_failed(store_id, error)
            else:
                (returned if has_returned else progress.gone).append(metadata)

        unsettled = [one for one in deleted if permit.may_be_written(one)]
        await each_at_once(unsettled, _MANIFESTS_AT_ONCE, read_again)
        if returned and store_id not in progress.away:
            _refuse(permit)
            deleted, fenced = await self._call(store_id, returned, progress)
            progress.gone += deleted
            if fenced is not None:
                raise fenced

    async def _call(
        self, store_id: Uuid, segments: Sequence[RemoteLogSegmentMetadata], progress: _Progress
    ) -> tuple[list[RemoteLogSegmentMetadata], Fenced | None]:
        """The segments that one call has deleted, and what fenced one of the others."""
        began_ms = self._clock.monotonic_ms()
        try:
            errors = await self._evidence.delete(segments)
        except Fenced as error:
            return [], error
        except RemoteStorageError as error:
            self._sizes.failed(store_id, len(segments))
            progress.store_failed(store_id, error)
            return [], None
        self._sizes.answered(store_id, len(segments), self._clock.monotonic_ms() - began_ms)
        answers = zip(segments, errors, strict=True)
        deleted = [one for one, answer in answers if answer is None]
        for answer in errors:
            if answer is not None and not isinstance(answer, Fenced):
                progress.store_failed(store_id, answer, is_answering=bool(deleted))
        fenced = next((answer for answer in errors if isinstance(answer, Fenced)), None)
        return deleted, fenced

    async def _check(
        self,
        group: Sequence[RemoteLogSegmentMetadata],
        permit: DeletionPermit,
        progress: _Progress,
    ) -> list[RemoteLogSegmentMetadata]:
        """Right before a step: they are the right stores, no freeze was set, we may still act.
        Answers the segments whose stores answer.
        """
        asked = [one for one in group if store_of(one) not in progress.away]
        for one in {store_of(one): one for one in asked}.values():
            try:
                await self._evidence.check_identity([one])
            except Unavailable as error:
                progress.store_failed(store_of(one), error)
        _refuse(permit)
        await permit.check_right()
        return [one for one in asked if store_of(one) not in progress.away]

    async def _begin(self, metadata: RemoteLogSegmentMetadata, permit: DeletionPermit) -> None:
        begun = self._in_state(metadata, _begun(metadata))
        await self._ledger.publish(begun, permit.leader_epoch, int(metadata.state))

    async def _end(self, metadata: RemoteLogSegmentMetadata, permit: DeletionPermit) -> None:
        deleted = self._in_state(metadata, _DELETED)
        await self._ledger.publish(deleted, permit.leader_epoch, int(_begun(metadata)))
        await self._ledger.tombstone(metadata.segment_id, permit.leader_epoch)

    async def _has_returned(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """The manifest of a write that was given up may be stored after its objects were deleted
        (H12).

        Fenced where its objects exist: then it is a copy, and the next run decides about it.
        """
        found = await self._evidence.manifest(metadata)
        if found.metadata is None:
            return bool(found.unreadable)
        if await self._evidence.presence(found.metadata) is Presence.COMPLETE:
            raise Fenced(f"{metadata.segment_id} is whole again, though it was deleted")
        return True

    def _in_state(
        self, metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState
    ) -> RemoteLogSegmentMetadata:
        return metadata.in_state(
            state, event_timestamp_ms=self._clock.now_ms(), broker_id=self._node_id
        )


def _begun(metadata: RemoteLogSegmentMetadata) -> RemoteLogSegmentState:
    """The state in which a deletion begins. What is recorded as deleted stays so (Kafka's table),
    and is recorded again by whoever deletes it again.
    """
    return _DELETED if metadata.state is _DELETED else _DELETING


def _refuse(permit: DeletionPermit) -> None:
    stopped = permit.refusal()
    if stopped is not None:
        raise Fenced(stopped)


@asynccontextmanager
async def _until_refused(permit: DeletionPermit) -> AsyncIterator[None]:
    """Cancels its body soon after a refusal, and raises Fenced then."""
    loop = asyncio.get_running_loop()
    refusal: str | None = None
    timer: asyncio.TimerHandle

    def watch() -> None:
        nonlocal timer, refusal
        refusal = permit.refusal()
        if refusal is None:
            timer = loop.call_later(_NOTICE_SECONDS, watch)
        else:
            limit.reschedule(loop.time())

    timer = loop.call_later(_NOTICE_SECONDS, watch)
    try:
        async with asyncio.timeout(None) as limit:
            yield
    except TimeoutError as error:
        if refusal is None:
            raise
        raise Fenced(f"{refusal}; a call that deletes was cancelled") from error
    finally:
        timer.cancel()


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
