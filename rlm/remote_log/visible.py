"""The tier as a client sees it that is shown only a part of the past: a decorator of Tier.

Everything about positions follows from the remote log start of a view: what is remote, what is out
of range, what `earliest` means, and which log start answers show. So a limit is a view whose remote
log start is higher. A client that is shown the broker's own log alone gets what the broker answers,
as if the topic had no remote tier. Without a limit the tier itself is used.
"""

from collections.abc import Callable
from dataclasses import replace

from kip405.errors import Unavailable
from kip405.history import FULL, LOCAL, History
from kip405.ids import Uuid
from rlm.plans.client_history import HistoryRules
from rlm.reading.values import RemoteRead, RemoteRecords, TimestampedOffset
from rlm.remote_log.mirrored import NOTHING_REMOTE
from rlm.remote_log.tier import EpochEnd, Tier, TierPartition, TopicRef, Watermarks


class LocalOnly:
    """The tier of a client that is shown no remote data: no topic is tiered, for certain."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier

    def ready(self) -> bool:
        return True

    def partition(self, topic: TopicRef, partition: int) -> TierPartition | None:
        return None

    async def barrier(
        self, topic: TopicRef, partition: int, deadline_ms: int
    ) -> TierPartition | None:
        return None

    async def watermarks(self, topic: TopicRef, partition: int, deadline_ms: int) -> Watermarks:
        return await self._tier.watermarks(topic, partition, deadline_ms)

    async def read(self, request: RemoteRead) -> RemoteRecords:
        raise Unavailable("this client is shown no remote data")

    async def offset_for_timestamp(
        self, topic_id: Uuid, partition: int, timestamp_ms: int, start_offset: int = 0
    ) -> TimestampedOffset | None:
        return None

    def epoch_for_offset(self, topic_id: Uuid, partition: int, offset: int) -> int:
        return -1

    def epoch_end(self, topic_id: Uuid, partition: int, leader_epoch: int) -> EpochEnd | None:
        return None


class WithinWindow:
    """The tier of a client that is shown the remote segments within a window, in ms."""

    def __init__(self, tier: Tier, window_ms: int) -> None:
        self._tier = tier
        self._window_ms = window_ms

    def ready(self) -> bool:
        return self._tier.ready()

    def partition(self, topic: TopicRef, partition: int) -> TierPartition | None:
        view = self._tier.partition(topic, partition)
        return None if view is None else self._shown(view)

    async def barrier(
        self, topic: TopicRef, partition: int, deadline_ms: int
    ) -> TierPartition | None:
        """Unavailable, too, while it is not known where the window begins: then neither an offset
        nor an OFFSET_OUT_OF_RANGE may be answered (H17). Behind a barrier a partition without a
        remote log start, such as a new one, has nothing remote for certain, for whoever asks: the
        broker's answers are right, and this client must not wait for more than others do.
        """
        view = await self._tier.barrier(topic, partition, deadline_ms)
        if view is None or view.frozen or not view.led_here:
            return view
        has_start = view.remote_log_start_offset != NOTHING_REMOTE
        if has_start and self._start(view) is None:
            raise Unavailable(
                f"{view.topic}-{view.partition}: where a window of {self._window_ms} ms begins is "
                "not known yet"
            )
        return self._shown(view)

    async def watermarks(self, topic: TopicRef, partition: int, deadline_ms: int) -> Watermarks:
        return await self._tier.watermarks(topic, partition, deadline_ms)

    async def read(self, request: RemoteRead) -> RemoteRecords:
        return await self._tier.read(request)

    async def offset_for_timestamp(
        self, topic_id: Uuid, partition: int, timestamp_ms: int, start_offset: int = 0
    ) -> TimestampedOffset | None:
        view = self._tier.partition(TopicRef(topic_id=topic_id), partition)
        start = None if view is None else self._start(view)
        if start is None:
            raise Unavailable(f"{topic_id}-{partition}: where the window begins is not known yet")
        start = max(start, start_offset)
        found = await self._tier.offset_for_timestamp(topic_id, partition, timestamp_ms, start)
        if found is not None and found.offset < start:  # a core of an earlier version answered
            raise Unavailable(f"{topic_id}-{partition}: no timestamp is looked up in the window")
        return found

    def epoch_for_offset(self, topic_id: Uuid, partition: int, offset: int) -> int:
        return self._tier.epoch_for_offset(topic_id, partition, offset)

    def epoch_end(self, topic_id: Uuid, partition: int, leader_epoch: int) -> EpochEnd | None:
        """An epoch that ended before the window ends where that begins, as at a broker that has
        deleted its records (LeaderEpochFileCache.truncateFromStart, endOffsetFor).
        """
        found = self._tier.epoch_end(topic_id, partition, leader_epoch)
        view = self._tier.partition(TopicRef(topic_id=topic_id), partition)
        start = None if view is None else self._start(view)
        if found is None or start is None or found.end_offset > start:
            return found
        return EpochEnd(leader_epoch=leader_epoch, end_offset=start)

    def _start(self, view: TierPartition) -> int | None:
        """Where the window begins; None = not known."""
        for window_ms, offset in view.window_starts:
            if window_ms == self._window_ms:
                return max(offset, view.remote_log_start_offset)
        return None

    def _shown(self, view: TierPartition) -> TierPartition:
        """With the log start of the window. While that is not known nothing is remote, so that a
        barrier is passed before anything is said of an old offset.
        """
        start = self._start(view)
        return replace(view, remote_log_start_offset=NOTHING_REMOTE if start is None else start)


class ClientView:
    """The tier as the client of one connection sees it, as soon as more is known of the client."""

    def __init__(self, rules: HistoryRules, tiers: Callable[[History], Tier]) -> None:
        self._rules = rules
        self._tiers = tiers
        self._principal: str | None = None
        self._client_id: str | None = None
        self._tier = self._found()

    def known_as(self, principal: str) -> None:
        """The client's principal was proved."""
        self._principal = principal
        self._tier = self._found()

    def named(self, client_id: str | None) -> None:
        """The client has named this id."""
        if client_id != self._client_id:
            self._client_id = client_id
            self._tier = self._found()

    def tier(self, client_id: str | None) -> Tier:
        """For a request with this client id."""
        self.named(client_id)
        return self._tier

    @property
    def last_tier(self) -> Tier:
        """For a request whose client id is not read: as for the last one whose id was."""
        return self._tier

    def _found(self) -> Tier:
        return self._tiers(self._rules.history(self._principal, self._client_id))


class VisibleTiers:
    """One tier for each history; they keep nothing."""

    def __init__(self, tier: Tier, rules: HistoryRules) -> None:
        self._rules = rules
        self._tiers: dict[History, Tier] = {FULL: tier, LOCAL: LocalOnly(tier)}
        for window_ms in rules.windows_ms:
            self._tiers[History(window_ms)] = WithinWindow(tier, window_ms)

    def client(self) -> ClientView:
        """Of a new connection."""
        return ClientView(self._rules, self._tiers.__getitem__)
