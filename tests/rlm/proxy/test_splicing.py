"""Runs of bytes that are moved within the kernel, from and to real sockets."""

import asyncio
import contextlib
import fcntl
import gc
import os
import random
import socket
from collections.abc import Iterator

import pytest

from rlm.proxy.splicing import PIPE_BYTES, Pipes, Splicing

SIZE = 3_000_001


@contextlib.contextmanager
def pairs() -> Iterator[tuple[socket.socket, socket.socket, socket.socket, socket.socket]]:
    """Sender and source, target and receiver; none of them blocks."""
    sender, source = socket.socketpair()
    target, receiver = socket.socketpair()
    made = (sender, source, target, receiver)
    for one in made:
        one.setblocking(False)
    try:
        yield made
    finally:
        for one in made:
            one.close()


@contextlib.contextmanager
def read_only() -> Iterator[int]:
    """A descriptor that can be read only."""
    fd = os.open("/dev/null", os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


class Run:
    """One run through a pool's pipe, and what was heard of it."""

    def __init__(self, pipes: Pipes, source: int, target: int, size_bytes: int) -> None:
        pipe = pipes.take()
        assert pipe is not None
        self.moved_bytes = 0
        self.rests: list[bytes | None] = []
        self.over = asyncio.Event()
        self.splicing = Splicing(
            pipes, pipe, (os.dup(source), os.dup(target)), size_bytes, self._moved, self._ended
        )
        self.splicing.start()

    def _moved(self, size_bytes: int) -> None:
        self.moved_bytes += size_bytes

    def _ended(self, rest: bytes | None) -> None:
        self.rests.append(rest)
        self.over.set()


async def until_target_is_full(run: Run) -> None:
    async with asyncio.timeout(60):
        while run.splicing.waits_for_source:  # noqa: ASYNC110 - of the kernel's buffers
            await asyncio.sleep(0.01)


async def send(sender: socket.socket, data: bytes, rng: random.Random) -> None:
    loop = asyncio.get_running_loop()
    position = 0
    while position < len(data):
        size = rng.choice((1, 100, 5_000, 300_000))
        await loop.sock_sendall(sender, data[position : position + size])
        position += size
        await asyncio.sleep(rng.choice((0, 0, 0.002)))


async def receive(receiver: socket.socket, size_bytes: int, rng: random.Random) -> bytes:
    loop = asyncio.get_running_loop()
    got = bytearray()
    while len(got) < size_bytes:
        part = await loop.sock_recv(receiver, rng.choice((1_000, 200_000)))
        assert part
        got += part
        await asyncio.sleep(rng.choice((0, 0, 0.002)))
    return bytes(got)


@pytest.mark.parametrize("seed", range(5))
async def test_a_run_arrives_in_order_and_what_follows_it_stays(seed: int) -> None:
    rng = random.Random(seed)
    data = rng.randbytes(SIZE)
    pipes = Pipes()
    with pairs() as (sender, source, target, receiver):
        run = Run(pipes, source.fileno(), target.fileno(), SIZE)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(send(sender, data + b"behind", rng))
            receiving = group.create_task(receive(receiver, SIZE, rng))
        await run.over.wait()
        assert receiving.result() == data
        assert (run.rests, run.moved_bytes, pipes.taken) == ([None], SIZE, 0)
        assert source.recv(100) == b"behind"
        with pytest.raises(BlockingIOError):
            receiver.recv(1)
    pipes.close()


async def test_it_waits_for_the_slower_one() -> None:
    pipes = Pipes()
    with pairs() as (sender, source, target, receiver):
        run = Run(pipes, source.fileno(), target.fileno(), SIZE)
        assert run.splicing.waits_for_source
        sending = asyncio.create_task(send(sender, bytes(SIZE), random.Random(1)))
        await until_target_is_full(run)
        assert await receive(receiver, SIZE, random.Random(2)) == bytes(SIZE)
        await sending
        await run.over.wait()
    pipes.close()


async def test_a_source_that_ends_gives_no_rest_that_the_target_could_take() -> None:
    pipes = Pipes()
    with pairs() as (sender, source, target, receiver):
        sender.send(b"x" * 1_000)
        sender.close()
        run = Run(pipes, source.fileno(), target.fileno(), SIZE)
        assert run.rests == [b""]
        assert receiver.recv(2_000) == b"x" * 1_000
        assert (run.moved_bytes, pipes.taken) == (1_000, 0)
    pipes.close()


async def test_what_the_target_cannot_be_given_is_the_rest() -> None:
    """Else these bytes would be missing from a stream that goes on another way."""
    pipes = Pipes()
    with pairs() as (sender, source, _, _), read_only() as unwritable:
        sender.send(b"x" * 1_000)
        run = Run(pipes, source.fileno(), unwritable, SIZE)
        assert run.rests == [b"x" * 1_000]
        assert (run.moved_bytes, pipes.taken) == (0, 0)
    pipes.close()


async def test_one_that_is_stopped_is_silent_and_leaves_no_bytes_to_others() -> None:
    pipes = Pipes()
    gc.collect()  # what earlier tests have left open
    before = len(os.listdir("/proc/self/fd"))
    with pairs() as (sender, source, target, receiver):
        run = Run(pipes, source.fileno(), target.fileno(), 10 * SIZE)
        sending = asyncio.create_task(send(sender, bytes(SIZE), random.Random(1)))
        await until_target_is_full(run)
        sending.cancel()
        run.splicing.stop()
        run.splicing.stop()
        receiver.close()
        await asyncio.sleep(0.05)
        assert (run.rests, pipes.taken) == ([], 0)
        other = pipes.take()
        assert other is not None
        with pytest.raises(BlockingIOError):
            os.read(other.read_fd, 1)
        pipes.give_back(other)
    pipes.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_pipes_are_bounded_and_those_with_bytes_are_not_used_again() -> None:
    pipes = Pipes(most=1)
    first = pipes.take()
    assert first is not None
    assert pipes.take() is None
    pipes.give_back(first)
    second = pipes.take()
    assert second is first
    os.write(second.write_fd, b"x")
    second.held_bytes = 1
    pipes.give_back(second)
    third = pipes.take()
    assert third is not None
    assert third is not first
    with pytest.raises(BlockingIOError):
        os.read(third.read_fd, PIPE_BYTES)
    pipes.give_back(third)
    pipes.close()


@pytest.mark.parametrize("count", range(1, 40))
async def test_a_run_ends_with_its_last_byte_whatever_comes_then(count: int) -> None:
    """However many moves it took: its writer is free again at once."""
    pipes = Pipes()
    pipe = pipes.take()
    assert pipe is not None
    fcntl.fcntl(pipe.write_fd, fcntl.F_SETPIPE_SZ, 4_096)  # a move is one buffer of the socket
    pipes.give_back(pipe)
    with pairs() as (sender, source, target, receiver):
        for _ in range(count):
            sender.send(b"x")
        run = Run(pipes, source.fileno(), target.fileno(), count)
        async with asyncio.timeout(60):
            assert len(await receive(receiver, count, random.Random(1))) == count
            await run.over.wait()
        assert run.rests == [None]
    pipes.close()


async def test_urgent_data_in_a_run_ends_it() -> None:
    """A socket with urgent data stays readable, but `splice` moves nothing; `recv` goes on."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        sender = stack.enter_context(socket.create_connection(listener.getsockname()))
        source = stack.enter_context(listener.accept()[0])
        target, receiver = map(stack.enter_context, socket.socketpair())
        for one in (source, target, receiver):
            one.setblocking(False)
        pipes = Pipes()
        run = Run(pipes, source.fileno(), target.fileno(), 1_000_000)
        sender.sendall(b"a" * 100)
        sender.send(b"!", socket.MSG_OOB)
        sender.sendall(b"b" * 100)
        async with asyncio.timeout(60):
            await run.over.wait()
        got = await asyncio.get_running_loop().sock_recv(receiver, 1000)
        rest = await asyncio.get_running_loop().sock_recv(source, 1000)
        assert (got + (run.rests[0] or b"") + rest).replace(b"!", b"") == b"a" * 100 + b"b" * 100
        pipes.close()
