"""A scan drives out nothing that is read again; weights add up whatever happens."""

import random
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.reading.eviction import ScanResistant

CAPACITY = 100


class Cache:
    """Keeps keys of weight 1 by the policy, as its owners do."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.order: ScanResistant[int] = ScanResistant(capacity)

    def read(self, key: int, reader: int) -> bool:
        if key in self.order:
            self.order.touch(key, reader)
            return True
        while self.order.bytes >= self.capacity:
            assert self.order.pop(lambda _: True) is not None
        self.order.add(key, 1, reader)
        return False


class Lru:
    """What the policy is compared with."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.kept: OrderedDict[int, None] = OrderedDict()

    def read(self, key: int, _: int) -> bool:
        if key in self.kept:
            self.kept.move_to_end(key)
            return True
        if len(self.kept) >= self.capacity:
            self.kept.popitem(last=False)
        self.kept[key] = None
        return False


def test_a_backfill_of_ten_times_the_cache_leaves_what_hot_readers_read_again() -> None:
    cache, hot = Cache(), range(50)
    for reader in (1, 2, 3):
        for key in hot:
            cache.read(key, reader)
    backfill, reader = 1_000, 9
    for at in range(10 * CAPACITY):
        for _ in range(4):  # a chunk is read in several fetches
            cache.read(backfill + at, reader)
    assert [cache.read(key, 10) for key in hot] == [True] * len(hot)


def test_hits_beside_a_backfill_are_more_than_those_of_lru() -> None:
    """Hot readers re-read 60 chunks now and then while a backfill reads each of its chunks once."""
    hits = {}
    for name, cache in (("ours", Cache()), ("lru", Lru())):
        rng, asked, found = random.Random(7), 0, 0
        for number in range(20_000):
            cache.read(10_000 + number, 0)
            if number % 3 == 0:
                asked += 1
                found += cache.read(rng.randrange(60), number + 1)
        hits[name] = found / asked
    assert hits["ours"] > 0.9
    assert hits["ours"] > hits["lru"] + 0.2


def test_a_reader_that_reads_a_chunk_piece_by_piece_counts_once() -> None:
    cache = Cache()
    for _ in range(10):
        cache.read(1, reader=1)
    for key in range(1_000, 1_000 + CAPACITY):
        cache.read(key, reader=2)
    assert 1 not in cache.order


def test_what_comes_back_soon_is_not_taken_for_a_newcomer() -> None:
    cache = Cache()
    for key in range(CAPACITY + 10):
        cache.read(key, reader=1)
    assert not cache.read(0, reader=2)  # it left, and is remembered
    for key in range(1_000, 1_000 + 3 * CAPACITY):
        cache.read(key, reader=3)
    assert cache.read(0, reader=4)


def test_what_may_not_leave_is_passed_over() -> None:
    cache = Cache()
    for key in range(CAPACITY):
        cache.read(key, reader=1)
    cache.read(99, reader=2)
    assert cache.order.pop(lambda key: key == 50) == 50
    assert cache.order.pop(lambda key: key == 99) == 99  # of the main queue, too
    assert cache.order.pop(lambda _: False) is None
    assert len(cache.order) == cache.order.bytes == CAPACITY - 2


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "touch", "discard", "pop", "pop even"]),
        st.integers(0, 12),
        st.integers(1, 9),
        st.integers(0, 3),
    ),
    max_size=80,
)


@given(ACTIONS)
def test_it_holds_what_was_added_and_did_not_leave(
    actions: list[tuple[str, int, int, int]],
) -> None:
    order: ScanResistant[int] = ScanResistant(30)
    model: dict[int, int] = {}
    for action, key, weight, reader in actions:
        if action == "add":
            order.add(key, weight, reader)
            model[key] = weight
        elif action == "touch":
            order.touch(key, reader)
        elif action == "discard":
            order.discard(key)
            model.pop(key, None)
        else:
            may_leave = (lambda one: one % 2 == 0) if action == "pop even" else (lambda _: True)
            left = order.pop(may_leave)
            candidates = [one for one in model if may_leave(one)]
            assert (left in candidates) if candidates else (left is None)
            model.pop(left, None)  # type: ignore[arg-type]
        assert len(order) == len(model)
        assert order.bytes == sum(model.values())
        assert all(one in order for one in model)


@pytest.mark.parametrize("capacity", [0, 1, 5])
def test_small_capacities_work(capacity: int) -> None:
    order: ScanResistant[int] = ScanResistant(capacity)
    order.add(1, 3, 0)
    order.add(2, 3, 0)
    assert order.pop(lambda _: True) == 1
    assert order.pop(lambda _: True) == 2
    assert order.pop(lambda _: True) is None
