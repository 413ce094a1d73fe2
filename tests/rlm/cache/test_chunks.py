"""What is referred to is not dropped, what was read ahead waits for its reader."""

from hypothesis import given
from hypothesis import strategies as st

from kip405.ids import Uuid
from rlm.reading.chunk_cache import ChunkCache, ChunkKey

SEGMENT = Uuid(b"\x05" * 16)
SIZE = 100


def key(number: int) -> ChunkKey:
    return (SEGMENT, number)


def data(number: int) -> bytes:
    return bytes([number % 256]) * SIZE


def filled(count: int, *, is_ahead: bool = False) -> ChunkCache:
    cache = ChunkCache(count * SIZE)
    for number in range(count):
        cache.put(key(number), data(number), 1, is_ahead=is_ahead)
    return cache


def test_what_an_answer_refers_to_is_not_dropped_until_it_was_sent() -> None:
    cache = filled(3)
    found = cache.get(key(0), 1)
    assert found is not None
    answer = memoryview(found)[10:20][2:4]  # as a writer cuts it
    del found
    assert cache.pinned_bytes() == SIZE
    assert cache.evict(3 * SIZE, spares_ahead=False) == 2 * SIZE
    assert key(0) in cache and cache.kept_bytes == SIZE
    del answer
    assert cache.pinned_bytes() == 0
    assert cache.evict(SIZE, spares_ahead=False) == SIZE
    assert (len(cache), cache.kept_bytes) == (0, 0)


def test_what_was_read_ahead_waits_for_its_reader() -> None:
    cache = filled(3, is_ahead=True)
    cache.put(key(9), data(9), 2, is_ahead=False)
    assert cache.ahead_bytes == 3 * SIZE
    assert cache.evict(2 * SIZE, spares_ahead=True) == SIZE
    assert key(9) not in cache
    assert cache.get(key(0), 1) == data(0)
    assert cache.ahead_bytes == 2 * SIZE
    assert cache.evict(SIZE, spares_ahead=True) == SIZE
    assert key(0) not in cache


def test_when_its_reader_is_gone_it_may_leave_and_is_wasted() -> None:
    cache = filled(3, is_ahead=True)
    cache.get(key(1), 1)
    assert cache.release(1) == 2 * SIZE
    assert (cache.ahead_bytes, cache.wasted_bytes) == (0, 2 * SIZE)
    assert cache.evict(9 * SIZE, spares_ahead=True) == 3 * SIZE


def test_a_reader_who_waits_takes_room_from_what_is_only_read_ahead() -> None:
    cache = filled(2, is_ahead=True)
    assert cache.evict(SIZE, spares_ahead=False) == SIZE
    assert cache.ahead_bytes == cache.wasted_bytes == cache.kept_bytes == SIZE


def test_what_a_reader_will_soon_need_waits_for_it() -> None:
    cache = filled(4)
    for number in (0, 1):
        cache.expect(key(number), 2, 9 * SIZE)
    assert (cache.expected_bytes, cache.ahead_bytes) == (2 * SIZE, 0)
    assert cache.evict(4 * SIZE, spares_ahead=True) == 2 * SIZE
    assert key(0) in cache and key(1) in cache
    assert cache.get(key(0), 2) == data(0)  # its reader has come
    assert cache.evict(2 * SIZE, spares_ahead=True) == SIZE
    assert key(0) not in cache and cache.expected_bytes == SIZE
    assert cache.evict(SIZE, spares_ahead=False) == SIZE  # a reader waits for this room
    assert (cache.expected_bytes, cache.wasted_bytes) == (0, 0)


def test_what_was_expected_may_leave_when_its_reader_is_gone() -> None:
    cache = filled(2)
    cache.expect(key(0), 2, 9 * SIZE)
    cache.release(1)
    assert cache.evict(2 * SIZE, spares_ahead=True) == SIZE
    cache.release(2)
    assert cache.evict(SIZE, spares_ahead=True) == SIZE
    assert (cache.expected_bytes, cache.wasted_bytes) == (0, 0)


def test_g10_no_more_is_expected_than_may_wait() -> None:
    cache = filled(4)
    cache.put(key(9), data(9), 1, is_ahead=True)
    for number in (*range(4), 9, 100):
        cache.expect(key(number), 2, 3 * SIZE)
    assert cache.ahead_bytes + cache.expected_bytes == 3 * SIZE


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["put", "ahead", "get", "hold", "let go", "release", "evict", "spare", "expect"]
            ),
            st.integers(0, 7),
            st.integers(1, 3),
        ),
        max_size=60,
    )
)
def test_its_books_are_right_and_nothing_held_is_lost(actions: list[tuple[str, int, int]]) -> None:
    cache = ChunkCache(4 * SIZE)
    held: dict[int, memoryview] = {}
    for action, number, reader in actions:
        if action in ("put", "ahead"):
            cache.put(key(number), data(number), reader, is_ahead=action == "ahead")
        elif action == "get":
            assert cache.get(key(number), reader) in (None, data(number))
        elif action == "hold":
            found = cache.get(key(number), reader)
            if found is not None:
                held[number] = memoryview(found)
            del found
        elif action == "let go":
            held.pop(number, None)
        elif action == "expect":
            cache.expect(key(number), reader, 4 * SIZE)
        elif action == "release":
            cache.release(reader)
        else:
            cache.evict(reader * SIZE, spares_ahead=action == "spare")
        kept = [one for one in range(8) if key(one) in cache]
        assert cache.kept_bytes == len(kept) * SIZE
        assert set(held) <= set(kept)
        assert 0 <= cache.ahead_bytes <= cache.kept_bytes
        assert 0 <= cache.expected_bytes <= cache.kept_bytes - cache.ahead_bytes
        assert cache.pinned_bytes() <= len(held) * SIZE
    held.clear()
    cache.evict(100 * SIZE, spares_ahead=False)
    assert (len(cache), cache.kept_bytes) == (0, 0)
    assert cache.ahead_bytes == cache.expected_bytes == 0
