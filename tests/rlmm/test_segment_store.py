"""The store of packed segments against a dictionary; frozen versions do not change."""

import random
from itertools import pairwise

from kip405.segments import RemoteLogSegmentState
from rlmm.packed import Names, pack
from rlmm.segment_store import Segments, SegmentStore
from tests.rlmm.builders import FINISHED, record, uuid

NAMES = Names()


def packed(number: int, state: RemoteLogSegmentState = FINISHED, offset: int = 0) -> bytes:
    return pack(record(offset, number, state), NAMES)


def content(segments: Segments) -> list[bytes]:
    return list(segments)


def test_random_changes_leave_what_a_dictionary_has() -> None:
    draw, store, model = random.Random(5), SegmentStore(), dict[bytes, bytes]()
    held: list[tuple[Segments, list[bytes]]] = []
    for step in range(12_000):
        number = draw.randrange(3_000)
        raw = uuid(number).raw
        if draw.random() < (0.3 if step < 8_000 else 0.8):
            store.remove(raw)
            model.pop(raw, None)
        else:
            state = draw.choice(list(RemoteLogSegmentState))
            model[raw] = packed(number, state, step)
            store.put(model[raw])
        assert store.get(raw) == model.get(raw)
        if step % 400 == 0:
            frozen = store.freeze()
            held.append((frozen, sorted(model.values())))
            assert frozen is store.freeze()
            assert frozen.count == len(model)
            assert all(frozen.get(one) == model.get(one) for one in map(_raw, range(0, 3_000, 7)))
    for frozen, values in held:
        assert content(frozen) == values
    for (one, before), (two, after) in pairwise(held):
        assert two.differing(one) == {value[:16] for value in set(before) ^ set(after)}


def _raw(number: int) -> bytes:
    return uuid(number).raw


def test_a_store_that_was_emptied_has_one_chunk_and_takes_segments_again() -> None:
    store = SegmentStore()
    for number in range(2_000):
        store.put(packed(number))
    assert len(store.freeze().chunks) > 8
    for number in range(2_000):
        store.remove(_raw(number))
    assert len(store.freeze().chunks) == 1
    assert store.freeze().summary().counts == (0, 0, 0, 0)
    store.put(packed(7))
    assert content(store.freeze()) == [packed(7)]


def test_a_change_shares_all_chunks_but_one() -> None:
    store = SegmentStore()
    for number in range(5_000):
        store.put(packed(number))
    before = store.freeze()
    store.put(packed(2_345, RemoteLogSegmentState.DELETE_SEGMENT_STARTED))
    after = store.freeze()
    assert len(set(after.chunks) - set(before.chunks)) == 1
    assert before.summary().finished == 5_000
    assert after.summary().finished == 4_999
    assert [one[:16] for one in after.in_states((2,))] == [_raw(2_345)]
