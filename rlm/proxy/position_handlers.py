"""Answers ListOffsets and OffsetForLeaderEpoch: the broker first, then the view.

No answer about an offset is sent before settings and ledger have passed a barrier that was taken
after the broker's answer (H17). rlm/remote_log/list_offsets.py decides what is right. This module
must not know sockets.
"""

import asyncio
from functools import partial

from kafka_protocol.apis import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from kafka_protocol.error_codes import KAFKA_STORAGE_ERROR, NONE
from kafka_protocol.fetch import CONSUMER_REPLICA_ID
from kafka_protocol.frames import frame_length, parse_request_header
from kafka_protocol.primitives import Buffer
from kafka_protocol.schema import Api, encode
from kip405.errors import Fenced, RemoteStorageError, Unavailable
from rlm.clock import Clock
from rlm.proxy.partition_work import PartitionWork, ask_broker, decode_request, pass_on
from rlm.proxy.position_answers import (
    NOT_NOW,
    Question,
    Value,
    apply_epoch_end,
    apply_error,
    apply_position,
    epoch_end_of,
    paired,
    questions,
)
from rlm.proxy.reads import Upstream, frozen, guarded
from rlm.proxy.session import Taken
from rlm.proxy.settings import ProxyMetrics, ProxySettings
from rlm.remote_log.list_offsets import BothTiers, Position, needs_view
from rlm.remote_log.tier import Tier, TierPartition
from rlm.remote_log.visible import ClientView

_FIRST_EPOCH_WITH_REPLICA_ID = 3


class PositionHandler:
    """Answers the requests about offsets of one connection, one at a time; `view`: the tier as its
    client sees it.
    """

    def __init__(
        self, settings: ProxySettings, view: ClientView, clock: Clock, metrics: ProxyMetrics
    ) -> None:
        self._wait_ms = settings.barrier_wait_ms
        self._view = view
        self._clock = clock
        self._metrics = metrics
        self._use(view.last_tier)

    def _use(self, tier: Tier) -> None:
        self._tier = tier
        self._work = PartitionWork(tier, self._clock, self._metrics, wait_ms=self._wait_ms)
        self._both = BothTiers(tier, deadline_ms=self._wait_ms)

    def _use_tier_of(self, taken: Taken) -> None:
        """From here on with the tier that the client of this request is shown."""
        tier = self._view.tier(parse_request_header(taken.frame).client_id)
        if tier is not self._tier:
            self._use(tier)

    async def list_offsets(self, taken: Taken, upstream: Upstream) -> list[Buffer] | None:
        """The broker's answer, corrected for both tiers; None when it was passed on unchanged."""
        replica_id, asked = _asked(LIST_OFFSETS, taken, "timestamp", "name", "partition_index")
        is_ours = any(needs_view(one.asked) for one in asked)
        if replica_id != CONSUMER_REPLICA_ID or not is_ours:
            await pass_on(taken, upstream)
            return None
        self._use_tier_of(taken)
        response, header_bytes = await ask_broker(LIST_OFFSETS, taken, taken.frame, upstream)
        await self._work.each(
            partial(self._list_offset, one, answered, taken.api_version)
            for one, answered in paired(asked, response, name="name", index="partition_index")
            if needs_view(one.asked) and answered["error_code"] == NONE
        )
        return _respond(LIST_OFFSETS, taken, header_bytes, response)

    async def offset_for_leader_epoch(
        self, taken: Taken, upstream: Upstream
    ) -> list[Buffer] | None:
        """The broker's answer, or the merged lineage's where the broker's epochs were trimmed."""
        replica_id, asked = _asked(
            OFFSET_FOR_LEADER_EPOCH, taken, "leader_epoch", "topic", "partition"
        )
        is_consumer = (
            taken.api_version < _FIRST_EPOCH_WITH_REPLICA_ID or replica_id == CONSUMER_REPLICA_ID
        )
        if not is_consumer or not asked:
            await pass_on(taken, upstream)
            return None
        self._use_tier_of(taken)
        response, header_bytes = await ask_broker(
            OFFSET_FOR_LEADER_EPOCH, taken, taken.frame, upstream
        )
        await self._work.each(
            partial(self._epoch_end, one, answered)
            for one, answered in paired(asked, response, name="topic", index="partition")
            if answered["error_code"] == NONE
        )
        return _respond(OFFSET_FOR_LEADER_EPOCH, taken, header_bytes, response)

    async def _list_offset(self, one: Question, answered: Value, version: int) -> None:
        view = await self._work.view(one.topic, one.partition)
        if view is None:
            return
        if isinstance(view, RemoteStorageError):
            self._refuse("list_offsets", answered, NOT_NOW)
            return
        found = await self._position(view, one, answered["offset"])
        if isinstance(found, RemoteStorageError):
            lost = not found.retriable and not frozen(found)
            self._refuse("list_offsets", answered, KAFKA_STORAGE_ERROR if lost else NOT_NOW)
            return
        if found is not None:
            apply_position(answered, found, version)
        self._metrics.answered("list_offsets", "broker" if found is None else "remote")

    async def _position(
        self, view: TierPartition, one: Question, broker_offset: int
    ) -> Position | RemoteStorageError | None:
        try:
            async with asyncio.timeout(self._work.left_ms() / 1000):
                return await guarded(self._both.position(view, one.asked, broker_offset))
        except TimeoutError:
            return Unavailable(f"{one.topic}-{one.partition}: timestamp lookup took too long")

    async def _epoch_end(self, one: Question, answered: Value) -> None:
        view = await self._work.view(one.topic, one.partition)
        if view is None:
            return
        if isinstance(view, RemoteStorageError):
            self._refuse("offset_for_leader_epoch", answered, NOT_NOW)
            return
        try:
            known = self._both.epoch_end(view, one.asked, epoch_end_of(answered))
        except Fenced:
            self._refuse("offset_for_leader_epoch", answered, NOT_NOW)
            return
        if known is not None:
            apply_epoch_end(answered, known)
        self._metrics.answered("offset_for_leader_epoch", "broker" if known is None else "remote")

    def _refuse(self, api: str, answered: Value, error_code: int) -> None:
        apply_error(answered, error_code)
        self._metrics.answered(api, f"error_{error_code}")


def _asked(api: Api, taken: Taken, field: str, name: str, index: str) -> tuple[int, list[Question]]:
    """The replica id and the questions of a request. What else was decoded of it, which may be
    many times its bytes, is not kept while the broker is asked (H36).
    """
    request = decode_request(api, taken)
    return request["replica_id"], questions(request, field, name=name, index=index)


def _respond(api: Api, taken: Taken, header: bytes, response: Value) -> list[Buffer]:
    body = encode(api.response, taken.api_version, response)
    return [frame_length(len(header) + len(body)), header, body]
