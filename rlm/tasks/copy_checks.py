"""What an attempt asks right before its steps, shared by attempts that ask at the same time.

Each attempt gets answers to requests that were sent after it asked, as if it had asked alone
(rlmm.coalesced). Copies of small segments would otherwise spend most of their time on these
questions, which are the same for all segments of a partition. Attempts at different stores do not
wait for each other's. This module must not know the steps of an attempt.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from kip405.errors import Fenced, RemoteStorageError
from kip405.ids import Uuid
from rlm.broker.leadership import LedPartition
from rlm.plans.copy import refuse_topic
from rlm.remote_log.ports import Ledger, Stores
from rlm.remote_log.snapshots import Snapshots
from rlm.stores.connection import identity_problem
from rlmm.coalesced import Coalesced

_At = tuple[Uuid, LedPartition]
"""A store, and a partition that is copied to it."""
Q = TypeVar("Q", bound=Hashable)


class CopyChecks:
    """`cluster_id`: whose stores they must be; `barrier_deadline_ms` limits each barrier."""

    def __init__(
        self,
        *,
        snapshots: Snapshots,
        ledger: Ledger,
        stores: Stores,
        cluster_id: str,
        barrier_deadline_ms: int,
    ) -> None:
        self._snapshots = snapshots
        self._ledger = ledger
        self._stores = stores
        self._cluster_id = cluster_id
        self._barrier_deadline_ms = barrier_deadline_ms
        self._before = Coalesced[_At, bool](_each(self._ask_before), group_of=_store)
        self._after = Coalesced[_At, bool](_each(self._ask_after), group_of=_store)
        self._identities = Coalesced[Uuid, str](_each(self._ask_identity), group_of=lambda one: one)

    async def store_problem(self, store_id: Uuid) -> str | None:
        """Why the store is not the expected one, asked now (H11); None = it is."""
        return await self._identities.answer(store_id) or None

    async def before_upload(self, led: LedPartition, store_id: Uuid) -> None:
        """Fenced unless we lead the partition, and its topic may be copied (H5, H35)."""
        await self._before.answer((store_id, led))

    async def after_upload(self, led: LedPartition, store_id: Uuid) -> None:
        """Return once the view of the ledger has passed a barrier. Fenced unless the store is still
        the same, and we still lead the partition (H11, H13).
        """
        await self._after.answer((store_id, led))

    async def _ask_before(self, at: _At) -> bool:
        _, led = at
        refused = refuse_topic((await self._snapshots.topic(led)).state)
        if refused is not None:
            raise Fenced(f"{led}: {refused[0].value} {refused[1]}".rstrip())
        return True

    async def _ask_after(self, at: _At) -> bool:
        store_id, led = at
        problem = await self.store_problem(store_id)
        if problem is not None:
            raise Fenced(f"{led}: {problem}")
        await self._snapshots.check_leadership(led)
        await self._ledger.barrier(led.key, self._barrier_deadline_ms)
        return True

    async def _ask_identity(self, store_id: Uuid) -> str:
        store = self._stores.manager(store_id)
        return await identity_problem(store, store_id, self._cluster_id) or ""


def _store(at: _At) -> Uuid:
    return at[0]


A = TypeVar("A")


def _each(
    ask: Callable[[Q], Awaitable[A]],
) -> Callable[[Sequence[Q]], Awaitable[Mapping[Q, A | RemoteStorageError]]]:
    """Asks all questions side by side; an error of kip405's is the answer to its question."""

    async def answer(question: Q) -> A | RemoteStorageError:
        try:
            return await ask(question)
        except RemoteStorageError as error:
            return error

    async def answers(questions: Sequence[Q]) -> Mapping[Q, A | RemoteStorageError]:
        found = await asyncio.gather(*map(answer, questions))
        return dict(zip(questions, found, strict=True))

    return answers
