"""What workers are shown of the tier: everything when they connect, then what has changed.

A view that is some hundred milliseconds old costs a worker a barrier at most, since a decision that
could hide records is made behind one (H17). What a barrier or a new snapshot shows of a partition
is sent at once; other changes are looked for, in slices, by comparing.
"""

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from operator import is_
from typing import Protocol

from kafka_protocol.node_addresses import AddressLookup, NodeAddresses, keep_addresses
from kip405.ids import PartitionKey
from rlm.clock import Clock
from rlm.proxy.own_topics import OwnTopicIds, unknown_ids
from rlm.remote_log.mirrored import LeaderEpochs, MirroredPartition, MirroredTopic
from rlm.remote_log.tier import TierPartition, TopicRef
from rlm.workers.messages import addresses_message, view_message
from rlm.workers.v1 import core_pb2 as pb

_INTERVAL_MS = 250
_MOST_INTERVAL_MS = 5_000
"""Also where neither topics nor leaders have changed."""
_SLICE = 200
"""Partitions that are compared before others get their turn."""
Listener = Callable[[pb.Views], None]


class ViewSource(Protocol):
    """The tier of the core (rlm.remote_log.leader_view.LocalTier)."""

    def ready(self) -> bool: ...

    def inputs(self) -> tuple[object, ...]: ...

    def partition(self, topic: TopicRef, partition: int) -> TierPartition | None: ...

    def topics(self) -> tuple[MirroredTopic, ...]: ...

    def partitions(self) -> tuple[PartitionKey, ...]: ...

    def leader_epochs(self, key: PartitionKey) -> LeaderEpochs | None: ...


class ViewFeed:
    """Keeps what every worker was shown. `refusal`: see rlm.remote_log.tier.Deletions.
    `node_addresses`: see rlm.plans.node_addresses. `own_topic_ids`: see rlm.proxy.own_topics.
    """

    def __init__(
        self,
        source: ViewSource,
        refusal: Callable[[TierPartition], str | None],
        clock: Clock,
        node_addresses: AddressLookup = keep_addresses,
        own_topic_ids: OwnTopicIds = unknown_ids,
    ) -> None:
        self._source = source
        self._refusal = refusal
        self._clock = clock
        self._node_addresses = node_addresses
        self._addresses: NodeAddresses | None = node_addresses()
        self._own_topic_ids = own_topic_ids
        self._ids = own_topic_ids()
        self._shown: dict[PartitionKey, MirroredPartition] = {}
        self._topics: tuple[MirroredTopic, ...] = ()
        self._is_ready = False
        self._listeners: set[Listener] = set()
        self._changed: set[PartitionKey] = set()
        self._inputs: tuple[object, ...] = ()
        self._compared_ms = 0

    def listen(self, listener: Listener) -> pb.Views:
        """Call `listener` with each change from now on; returns what holds now."""
        self._listeners.add(listener)
        return pb.Views(
            is_whole=True,
            ready=self._is_ready,
            has_topics=True,
            topics=_topic_rows(self._topics),
            partitions=(view_message(one) for one in self._shown.values()),
            node_addresses=_addresses(self._addresses),
            own_topic_ids=self._ids,
        )

    def forget(self, listener: Listener) -> None:
        """The worker is gone."""
        self._listeners.discard(listener)

    def seen(self, view: TierPartition) -> MirroredPartition:
        """A barrier gave this view; every worker gets it where it is new."""
        mirrored = self._mirrored(PartitionKey(view.topic_id, view.partition), view)
        self._show([mirrored], ())
        return mirrored

    def changed(self, key: PartitionKey) -> None:
        """Something about the partition is new: workers get it in this turn of the event loop."""
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._compare_changed)
        self._changed.add(key)

    def _compare_changed(self) -> None:
        changed, self._changed = self._changed, set()
        self._compare(changed)

    async def run(self) -> None:
        """Search for changes until cancelled."""
        while True:
            self._compare_addresses()
            self._compare_ids()
            inputs = self._source.inputs()
            is_same = len(inputs) == len(self._inputs) and all(map(is_, inputs, self._inputs))
            if not is_same or self._clock.monotonic_ms() - self._compared_ms >= _MOST_INTERVAL_MS:
                self._inputs, self._compared_ms = inputs, self._clock.monotonic_ms()
                await self.compare_all()
            await self._clock.sleep_ms(_INTERVAL_MS)

    async def compare_all(self) -> None:
        """Compare everything once; workers are ready after the first comparison of a tier that is
        ready.
        """
        is_ready = self._source.ready()
        self._compare_addresses()
        self._compare_ids()
        topics = self._source.topics()
        keys = self._source.partitions()
        if topics != self._topics:
            self._topics = topics
            self._send(pb.Views(ready=self._is_ready, has_topics=True, topics=_topic_rows(topics)))
        left = iter(keys)
        while part := tuple(islice(left, _SLICE)):
            self._compare(part)
            await self._clock.sleep_ms(0)
        self._drop(self._shown.keys() - set(self._source.partitions()))
        if is_ready != self._is_ready:
            self._is_ready = is_ready
            self._send(pb.Views(ready=is_ready))

    def _compare_addresses(self) -> None:
        addresses = self._node_addresses()
        if addresses != self._addresses:
            self._addresses = addresses
            self._send(pb.Views(ready=self._is_ready, node_addresses=_addresses(addresses)))

    def _compare_ids(self) -> None:
        ids = self._own_topic_ids()
        if ids != self._ids:
            self._ids = ids
            self._send(pb.Views(ready=self._is_ready, own_topic_ids=ids))

    def _compare(self, keys: Iterable[PartitionKey]) -> None:
        found = ((key, self._source.partition(_ref(key), key.partition)) for key in keys)
        views = [self._mirrored(key, view) for key, view in found if view is not None]
        self._show(views, ())

    def _drop(self, keys: Iterable[PartitionKey]) -> None:
        gone = tuple(keys)
        for key in gone:
            del self._shown[key]
        self._show((), gone)

    def _mirrored(self, key: PartitionKey, view: TierPartition) -> MirroredPartition:
        return MirroredPartition(
            view=view, epochs=self._source.leader_epochs(key), refusal=self._refusal(view)
        )

    def _show(self, views: Iterable[MirroredPartition], gone: Iterable[PartitionKey]) -> None:
        keyed = ((PartitionKey(one.view.topic_id, one.view.partition), one) for one in views)
        new = {key: one for key, one in keyed if self._shown.get(key) != one}
        changed = [view_message(one) for one in new.values()]
        self._shown.update(new)  # what cannot be sent is not shown
        ids = [pb.PartitionId(topic_id=key.topic_id.raw, partition=key.partition) for key in gone]
        if changed or ids:
            self._send(pb.Views(ready=self._is_ready, partitions=changed, gone=ids))

    def _send(self, views: pb.Views) -> None:
        for listener in tuple(self._listeners):
            listener(views)


def _addresses(nodes: NodeAddresses | None) -> pb.NodeAddresses | None:
    return None if nodes is None else addresses_message(nodes)


def _ref(key: PartitionKey) -> TopicRef:
    return TopicRef(topic_id=key.topic_id)


def _topic_rows(topics: Iterable[MirroredTopic]) -> Iterable[pb.TopicRow]:
    return (
        pb.TopicRow(
            topic_id=one.topic_id.raw,
            record_name=one.record_name,
            broker_name=one.broker_name or "",
        )
        for one in topics
    )
