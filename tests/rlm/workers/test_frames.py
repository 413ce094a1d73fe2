"""Frames between worker and core: whole whatever the cuts, bounded, none after the end."""

import asyncio
import random
import struct

from hypothesis import given
from hypothesis import strategies as st

from rlm.workers.frames import FrameLink, RawBytes
from rlm.workers.records_memory import RecordsMemory
from tests.rlm.workers.wires import Frame, Received, written

FRAMES = st.lists(
    st.tuples(st.binary(max_size=40), st.binary(max_size=200)), min_size=1, max_size=8
)
MIB = 1 << 20


def test_a_short_message_does_not_fill_the_link() -> None:
    one = Received()
    one.link.pause_writing()
    one.link.send(b"m", (bytes(MIB),))
    assert not one.link.is_full


@given(FRAMES, st.lists(st.integers(1, 60), max_size=60))
def test_frames_come_whole_and_in_order_whatever_the_cuts(
    frames: list[Frame], sizes: list[int]
) -> None:
    one = Received()
    one.feed(written(*frames), sizes)
    assert one.frames == frames


def test_frames_come_whole_byte_by_byte() -> None:
    frames = [(b"", b""), (b"a", b""), (b"", b"r" * 9), (b"message", b"raw"), (b"", b"")]
    data = written(*frames)
    one = Received()
    one.feed(data, [1] * len(data))
    assert one.frames == frames


def test_large_frames_under_random_cuts() -> None:
    chance = random.Random(7)
    frames = [(chance.randbytes(300_000), chance.randbytes(3 * MIB)), (b"x", b""), (b"", b"yz")]
    data = written(*frames, *frames)
    for most in (1_000, 70_000, 10 * MIB):
        memory = RecordsMemory(64 * MIB)
        one = Received(memory.take)
        one.feed(data, [chance.randint(1, most) for _ in range(20_000)])
        assert one.frames == [*frames, *frames]
        one.raws.clear()
        assert memory.held_bytes == 0


def test_a_frame_is_handed_over_once_its_last_byte_is_there() -> None:
    data = written((b"message", b"raw"))
    one = Received()
    for size in range(len(data)):
        one.feed(data[size : size + 1])
        assert len(one.frames) == (1 if size + 1 == len(data) else 0)


def test_raw_bytes_of_several_pieces_are_one() -> None:
    one, other = Received(), Received()
    one.link.send(b"m", (b"abc", memoryview(b"-def-")[1:4], b""))
    other.feed(bytes(one.transport.written))
    assert other.frames == [(b"m", b"abcdef")]


def test_g09_raw_bytes_stay_as_they_are_for_as_long_as_somebody_has_a_view_of_them() -> None:
    memory = RecordsMemory(64 * MIB)
    one = Received(memory.take)
    one.feed(written((b"m", b"r" * MIB), (b"n", b"s" * MIB)))
    assert memory.held_bytes == 2 * MIB
    kept = one.raws[0][0][5:10]
    one.raws.clear()
    assert memory.held_bytes == MIB
    for _ in range(20):
        one.feed(written((b"o", b"t" * MIB)))
    assert bytes(kept) == b"rrrrr"


def test_nobody_writes_to_raw_bytes() -> None:
    one = Received(RecordsMemory(64 * MIB).take)
    one.feed(written((b"m", b"r" * (MIB + 5))))
    assert [len(view) for view in one.raws[0]] == [MIB, 5]
    assert all(view.readonly for view in one.raws[0])


def test_a_frame_that_is_too_large_ends_the_connection_and_says_why() -> None:
    for head in (struct.pack(">II", (256 << 20) + 1, 0), struct.pack(">II", 0, (1 << 30) + 1)):
        one = Received()
        one.feed(written((b"before", b"")) + head)
        assert one.frames == [(b"before", b"")]
        assert one.transport.is_closed
        assert "a frame of" in one.link.problem


def test_the_first_reason_of_an_end_stays() -> None:
    one = Received()
    one.link.close("the first")
    one.link.close("the second")
    assert one.link.problem == "the first"


def test_nothing_is_sent_after_the_end() -> None:
    one = Received()
    one.link.send(b"a")
    sent = bytes(one.transport.written)
    one.link.close()
    one.link.send(b"b")
    assert not one.link.is_open
    one.link.connection_lost(None)
    one.link.send(b"c", (b"raw",))
    assert one.transport.written == sent
    assert one.ends == 1


def test_nothing_is_received_after_this_side_has_ended_it() -> None:
    """Frames that came together with the one for which the connection was ended."""
    frames: list[bytes] = []

    class Refusing(Received):
        def _received(self, message: bytes, raw: RawBytes) -> None:
            frames.append(message)
            self.link.close("refused")

    one = Refusing()
    one.feed(written((b"a", b""), (b"b", b""), (b"c", b"raw")))
    assert frames == [b"a"]


def fill(link: FrameLink) -> None:
    """Pause the link, and send so much that others have to wait."""
    link.pause_writing()
    link.send(b"m", (bytes(5 * MIB),))
    assert link.is_full


async def test_drained_waits_while_the_other_side_takes_nothing() -> None:
    one = Received()
    await one.link.drained()
    fill(one.link)
    waiting = asyncio.ensure_future(one.link.drained())
    await asyncio.sleep(0)
    assert not waiting.done()
    one.link.resume_writing()
    await asyncio.wait_for(waiting, 60)
    fill(one.link)
    waiting = asyncio.ensure_future(one.link.drained())
    await asyncio.sleep(0)
    one.link.connection_lost(None)
    await asyncio.wait_for(waiting, 60)


async def test_drained_waits_on_where_the_other_side_has_taken_a_part_only() -> None:
    one = Received()
    fill(one.link)
    waiting = asyncio.ensure_future(one.link.drained())
    one.link.resume_writing()
    one.link.pause_writing()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    one.link.resume_writing()
    await asyncio.wait_for(waiting, 60)


async def test_what_fills_the_queue_again_holds_all_others_that_wait() -> None:
    """Else all that wait would send at once, however much it is."""
    one = Received()
    fill(one.link)
    sent: list[int] = []

    async def send(number: int) -> None:
        await one.link.drained()
        sent.append(number)
        fill(one.link)

    tasks = [asyncio.ensure_future(send(number)) for number in range(5)]
    for count in range(1, 6):
        await asyncio.sleep(0)
        one.link.resume_writing()
        for _ in range(4):
            await asyncio.sleep(0)
        assert sent == list(range(count))
    await asyncio.gather(*tasks)
