"""What workers are shown of the tier is what the tier says (H17)."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_protocol.node_addresses import NodeAddress, NodeAddresses
from kip405.lineage import Lineage
from kip405.segments import EpochEntry
from rlm.clock import SystemClock
from rlm.remote_log.mirrored import LeaderEpochs
from rlm.remote_log.tier import TierPartition, TopicRef
from rlm.workers.mirror import TierMirror
from rlm.workers.v1 import core_pb2 as pb
from rlm.workers.views import ViewFeed
from tests.rlm.proxy.fakes import TOPIC, TOPIC_ID, FakeTier, tier_partition
from tests.rlm.workers.core_site import NAMED, Source

MOST = 6
BY_ID = TopicRef(topic_id=TOPIC_ID)


class Shown:
    """A source, its feed, and workers that come and go."""

    def __init__(self) -> None:
        self.source = Source(FakeTier())
        self.refused: set[int] = set()
        self.feed = ViewFeed(self.source, self.refusal, SystemClock())
        self.mirrors: dict[TierMirror, object] = {}

    def refusal(self, view: TierPartition) -> str | None:
        return "stopped" if view.partition in self.refused else None

    def connect(self) -> TierMirror:
        mirror = TierMirror()

        def take(views: pb.Views) -> None:
            mirror.take(pb.Views.FromString(views.SerializeToString()))

        self.mirrors[mirror] = take
        take(self.feed.listen(take))
        return mirror

    def disconnect(self, mirror: TierMirror) -> None:
        self.feed.forget(self.mirrors.pop(mirror))  # type: ignore[arg-type]

    def assert_equal(self) -> None:
        """Each mirror answers as its source does."""
        tier, is_listed = self.source.tier, bool(self.source.listed)
        for mirror in self.mirrors:
            assert mirror.ready == self.source.ready()
            for number in range(MOST):
                known = tier.partitions.get(number) if is_listed else None
                for topic in (NAMED, BY_ID):
                    found = mirror.partition(topic, number)
                    if known is not None:
                        assert found == known
                    else:
                        assert (found is not None) == is_listed
                        assert found is None or found.remote_next_offset == -1
                if known is not None:
                    assert mirror.refusal(known) == self.refusal(known)
                    epochs = self.source.epochs.get(number)
                    assert mirror.epochs(TOPIC_ID, number) == epochs
                else:
                    assert mirror.epochs(TOPIC_ID, number) is None
                    assert mirror.refusal(tier_partition(partition=number)) is not None
            assert mirror.partition(TopicRef(name="plain"), 0) is None
            assert mirror.partition(TopicRef(name=""), 0) is None


def is_ready(mirror: TierMirror) -> bool:
    """Asked anew each time."""
    return mirror.ready


def change(shown: Shown, chance: random.Random) -> None:
    source, number = shown.source, chance.randrange(MOST)
    act = chance.randrange(7)
    if act <= 1:
        view = tier_partition(partition=number, remote_next_offset=chance.randrange(1_000))
        source.tier.partitions[number] = view
    elif act == 2:
        source.tier.partitions.pop(number, None)
        source.epochs.pop(number, None)
    elif act == 3 and number in source.tier.partitions:
        lineage = Lineage((EpochEntry(epoch=chance.randrange(9), start_offset=0),))
        source.epochs[number] = LeaderEpochs(
            lineage=lineage, log_end_offset=number, remote_log_start_offset=0
        )
    elif act == 4:
        shown.refused ^= {number}
    elif act == 5:
        source.listed = () if source.listed else Source(FakeTier()).listed
    else:
        source.tier.is_ready = not source.tier.is_ready


@pytest.mark.parametrize("seed", range(30))
async def test_h17_after_a_comparison_every_mirror_equals_the_source(seed: int) -> None:
    chance, shown = random.Random(seed), Shown()
    shown.connect()
    for _ in range(60):
        for _ in range(chance.randrange(4)):
            change(shown, chance)
        if chance.random() < 0.3:
            shown.connect()
        if len(shown.mirrors) > 2 and chance.random() < 0.5:
            shown.disconnect(next(iter(shown.mirrors)))
        known = list(shown.source.tier.partitions.values())
        if known and chance.random() < 0.5:
            seen = replace(chance.choice(known), watermarks=None)
            shown.source.tier.partitions[seen.partition] = seen
            shown.feed.seen(seen)
            if shown.source.listed:
                assert all(
                    m.partition(BY_ID, seen.partition) in (seen, None) for m in shown.mirrors
                )
        await shown.feed.compare_all()
        shown.assert_equal()
        late = shown.connect()
        shown.assert_equal()
        shown.disconnect(late)


async def test_h17_nobody_is_ready_before_the_first_whole_comparison() -> None:
    shown = Shown()
    shown.source.tier.partitions = {n: tier_partition(partition=n) for n in range(450)}
    mirror, ready_with = shown.connect(), []
    take = mirror.take

    def taken(views: pb.Views) -> None:
        take(views)
        ready_with.append((mirror.ready, mirror.partition(BY_ID, 449) is not None))

    mirror.take = taken  # type: ignore[method-assign]
    assert not is_ready(mirror)
    await shown.feed.compare_all()
    assert is_ready(mirror)
    assert [ready for ready, _ in ready_with].count(True) == 1
    assert mirror.partition(BY_ID, 449) == tier_partition(partition=449)


async def test_h17_a_tier_that_is_not_ready_makes_nobody_ready() -> None:
    shown = Shown()
    shown.source.tier.is_ready = False
    mirror = shown.connect()
    await shown.feed.compare_all()
    assert not is_ready(mirror)
    shown.source.tier.is_ready = True
    await shown.feed.compare_all()
    assert is_ready(mirror)
    shown.source.tier.is_ready = False
    await shown.feed.compare_all()
    assert not is_ready(mirror)


async def test_a_topic_that_the_broker_does_not_know_is_known_by_its_id_only() -> None:
    shown = Shown()
    shown.source.listed = (replace(shown.source.listed[0], broker_name=None),)
    mirror = shown.connect()
    await shown.feed.compare_all()
    assert mirror.partition(NAMED, 0) is None
    found = mirror.partition(BY_ID, 0)
    assert found is not None and found.topic == TOPIC


async def test_h17_what_could_not_be_sent_is_sent_later() -> None:
    shown = Shown()
    shown.source.tier.partitions = {n: tier_partition(partition=n) for n in range(3)}
    mirror = shown.connect()
    await shown.feed.compare_all()
    changed = {n: tier_partition(partition=n, remote_next_offset=77) for n in range(3)}
    shown.source.tier.partitions = changed | {2: replace(changed[2], remote_next_offset=1 << 64)}
    with pytest.raises(ValueError, match="range"):  # protobuf refuses a number of more than 64 bits
        await shown.feed.compare_all()
    shown.source.tier.partitions = changed
    await shown.feed.compare_all()
    shown.assert_equal()
    assert mirror.partition(BY_ID, 0) == changed[0]


async def test_nothing_is_sent_where_nothing_has_changed(tmp_path: Path) -> None:
    shown = Shown()
    shown.source.tier.partitions[0] = tier_partition()
    await shown.feed.compare_all()
    sent: list[pb.Views] = []
    shown.feed.listen(sent.append)
    await shown.feed.compare_all()
    shown.feed.seen(tier_partition())
    assert sent == []


FIRST = NodeAddresses(replaced={1: NodeAddress(host="p", port=1)}, keeps_others=False)
SECOND = NodeAddresses(replaced={2: NodeAddress(host="q", port=2)}, keeps_others=True)


async def test_h24_workers_follow_the_addresses_that_their_core_knows() -> None:
    now: list[NodeAddresses | None] = [None]
    feed = ViewFeed(Source(FakeTier()), lambda _: None, SystemClock(), lambda: now[0])
    mirrors = [TierMirror(), TierMirror(FIRST)]

    def connect(mirror: TierMirror) -> None:
        def take(views: pb.Views) -> None:
            mirror.take(pb.Views.FromString(views.SerializeToString()))

        take(feed.listen(take))

    for mirror in mirrors:
        connect(mirror)
    await feed.compare_all()
    assert [one.addresses for one in mirrors] == [None, FIRST]  # the core knows nothing yet
    now[0] = SECOND
    await feed.compare_all()
    assert [one.addresses for one in mirrors] == [SECOND, SECOND]
    late = TierMirror(FIRST)
    connect(late)
    assert late.addresses == SECOND
    late.take(pb.Views(is_whole=True))  # of a core of an earlier version
    assert late.addresses == SECOND


async def test_workers_learn_the_ids_of_the_services_topics_and_keep_them() -> None:
    now: list[frozenset[bytes]] = [frozenset()]
    feed = ViewFeed(Source(FakeTier()), lambda _: None, SystemClock(), own_topic_ids=lambda: now[0])
    mirrors = [TierMirror(), TierMirror()]

    def connect(mirror: TierMirror) -> None:
        def take(views: pb.Views) -> None:
            mirror.take(pb.Views.FromString(views.SerializeToString()))

        take(feed.listen(take))

    connect(mirrors[0])
    await feed.compare_all()
    assert mirrors[0].own_topic_ids == frozenset()
    now[0] = frozenset({b"1" * 16, b"2" * 16})
    await feed.compare_all()
    connect(mirrors[1])
    for mirror in mirrors:
        assert mirror.own_topic_ids == now[0]
        mirror.take(pb.Views(ready=True))
        mirror.take(pb.Views(is_whole=True))  # of a core that has just begun
        assert mirror.own_topic_ids == now[0]
    now[0] = frozenset({b"1" * 16, b"3" * 16})  # a topic was recreated
    await feed.compare_all()
    assert [mirror.own_topic_ids for mirror in mirrors] == [now[0], now[0]]
