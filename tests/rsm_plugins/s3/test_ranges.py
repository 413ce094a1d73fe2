"""Answers to ranged GETs that are received into memory that is used again."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kip405.errors import Unavailable
from kip405.segments import ByteRange
from rsm_plugins.s3.calls import range_bytes
from rsm_plugins.s3.plain_http import parsed_head, request_head
from rsm_plugins.s3.ranges import (
    SLOT_BYTES,
    SLOTS_KEPT,
    BodyMemory,
    RangeBody,
    RangeConnections,
)
from tests.builders.certificates import Authority
from tests.rsm_plugins.s3.recording import Answer, Asked, RecordingServer, recording_server
from tests.rsm_plugins.s3.stores import open_store, subject_of
from tests.waiting import succeeds_once

KEYS = {"aws_access_key_id": "k", "aws_secret_access_key": "s"}
BODY = bytes(range(256)) * 4096
HEAD = b"HTTP/1.1 206 Partial Content\r\nContent-Length: %d\r\n\r\n"

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[str]:
    """A server that does this on every connection; its URL."""
    tasks: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.get_running_loop().create_task(serve(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/b/k"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def connections() -> AsyncIterator[RangeConnections]:
    made = RangeConnections(connect_seconds=60.0)
    try:
        yield made
    finally:
        made.close()


async def ask(made: RangeConnections, url: str, max_bytes: int = SLOT_BYTES) -> RangeBody | None:
    return await made.receive(url, {"Range": "bytes=0-9"}, max_bytes, None)


async def read(made: RangeConnections, url: str, max_bytes: int = SLOT_BYTES) -> bytes:
    body = await ask(made, url, max_bytes)
    assert body is not None
    return bytes(await body.read())


def answering(*pieces: bytes, again: bool = True) -> Script:
    """These pieces to every request, each after the one before was taken."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.001)
            if not again:
                return

    return script


@pytest.mark.parametrize(
    ("url", "first", "host"),
    [
        ("http://h/b/k%20x?versionId=1", b"GET /b/k%20x?versionId=1 HTTP/1.1", b"h"),
        ("http://h:80", b"GET / HTTP/1.1", b"h"),
        ("https://h:443/b", b"GET /b HTTP/1.1", b"h"),
        ("https://h:80/b", b"GET /b HTTP/1.1", b"h:80"),
        ("http://[::1]:9000/b", b"GET /b HTTP/1.1", b"[::1]:9000"),
    ],
)
def test_a_request_names_its_host_as_it_was_signed(url: str, first: bytes, host: bytes) -> None:
    lines = request_head(urlsplit(url), {"Range": "bytes=0-1"}).split(b"\r\n")
    assert lines[:2] == [first, b"Host: " + host]
    assert lines[-3:] == [b"Range: bytes=0-1", b"", b""]


def test_a_header_stays_one_line() -> None:
    for value in ("a\r\nX: y", "a\nX: y"):
        with pytest.raises(ConnectionError):
            request_head(urlsplit("http://h/b"), {"X-Amz-Security-Token": value})


@pytest.mark.parametrize(
    ("header", "size_bytes"),
    [
        ("bytes=0-9", 10),
        (b"bytes=7-7", 1),
        ("bytes=7-", None),
        ("bytes=-7", None),
        ("bytes=1-2,4-5", None),
        ("lines=1-2", None),
        (None, None),
    ],
)
def test_only_one_bounded_range_is_received_here(header: object, size_bytes: int | None) -> None:
    assert range_bytes(header) == size_bytes


async def test_a_body_arrives_however_it_is_cut() -> None:
    whole = HEAD % len(BODY) + BODY
    for cuts in ((1, 2, 3), (len(HEAD) - 4, len(HEAD)), (200_000,), (len(whole) - 1,)):
        ends = [0, *cuts, len(whole)]
        pieces = [whole[a:b] for a, b in pairwise(ends)]
        async with scripted(answering(*pieces)) as url, connections() as made:
            for _ in range(3):
                assert await read(made, url) == BODY


async def test_one_connection_serves_one_request_after_the_other() -> None:
    opened = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        await answering(HEAD % 3 + b"abc")(reader, writer)

    async with scripted(script) as url, connections() as made:
        for _ in range(5):
            assert await read(made, url) == b"abc"
        assert opened == 1
        assert await asyncio.gather(*(read(made, url) for _ in range(4))) == [b"abc"] * 4
        assert opened == 4


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 206 P\r\nContent-Length: 3\r\nContent-Encoding: gzip\r\n\r\nabc",
        b"HTTP/1.1 206 P\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 206 P\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 206 P\r\nContent-Length: -3\r\n\r\nabc",
        b"HTTP/1.1 206 P\r\nContent-Length: 11\r\n\r\nabcdefghijk",
        b"HTTP/1.1 206 P\r\n\r\nabc",
        b"HTTP/1.0 206 P\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 2066 P\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 206 P\r\nContent-Length : 3\r\n\r\nabc",
        b"HTTP/1.1 301 M\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 403 F\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"x" * 70_000,
    ],
)
async def test_what_is_not_plain_is_left_to_aiohttp(head: bytes) -> None:
    async with scripted(answering(head)) as url, connections() as made:
        assert await ask(made, url, max_bytes=10) is None


async def test_no_server_and_no_answer_are_left_to_aiohttp() -> None:
    ending = answering(b"HTTP/1.1 206 P\r\n", again=False)
    async with scripted(ending) as url, connections() as made:
        assert await ask(made, url) is None
    async with connections() as made:
        assert await ask(made, url) is None


async def test_an_address_that_does_not_answer_delays_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of the servers behind a name is down: its queue of connections is full and stays so."""
    async with scripted(answering(HEAD % 3 + b"abc")) as url, connections() as made:
        port = urlsplit(url).port
        with ExitStack() as stack:
            silent = stack.enter_context(socket.create_server(("127.0.0.2", port or 0), backlog=0))
            for _ in range(4):
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(silent.getsockname())

            async def both(*_: object, **__: object) -> list[object]:
                kind = socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, ""
                return [(*kind, (host, port)) for host in ("127.0.0.2", "127.0.0.1")]

            loop = asyncio.get_running_loop()
            monkeypatch.setattr(loop, "getaddrinfo", both)
            began = loop.time()
            assert await read(made, f"http://s3.test:{port}/b/k") == b"abc"
            assert loop.time() - began < 50.0, "the time to connect is 60 s"


async def test_an_overloaded_server_is_not_asked_twice() -> None:
    """Neither is one whose page is not plain: that it is overloaded is all there is to know."""
    for status, more in ((503, b"Transfer-Encoding: chunked"), (429, b"Content-Encoding: br")):
        answer = b"HTTP/1.1 %d X\r\n%s\r\n\r\n3\r\nabc\r\n0\r\n\r\n" % (status, more)
        async with scripted(answering(answer)) as url, connections() as made:
            body = await ask(made, url)
            assert body is not None
            assert (body.status, bytes(await body.read())) == (status, b"")
            assert await ask(made, url) is not None, "over another connection"


async def test_h36_memory_follows_the_range_that_was_asked_for() -> None:
    answer = HEAD % (1 << 40)
    async with scripted(answering(answer)) as url, connections() as made:
        assert await ask(made, url) is None
        assert await ask(made, url, max_bytes=SLOT_BYTES + 1) is None
    assert parsed_head(b"HTTP/1.1 500 X\r\nContent-Length: 99999999") is not None


async def test_a_body_that_is_cut_off_is_an_error_and_never_short() -> None:
    ending = answering(HEAD % 100 + b"x" * 99, again=False)
    async with scripted(ending) as url, connections() as made:
        with pytest.raises(ConnectionError, match="ended before"):
            await read(made, url)


async def test_bytes_beyond_the_length_are_of_no_answer() -> None:
    """A connection with such bytes is not used again: they would be the next answer's head."""
    forged = b"HTTP/1.1 206 P\r\nContent-Length: 3\r\n\r\nBAD"
    async with scripted(answering(HEAD % 3 + b"abc" + forged)) as url, connections() as made:
        for _ in range(3):
            assert await read(made, url) == b"abc"
            assert not any(made._idle.values())
    late = answering(HEAD % 3 + b"abc", forged)
    async with scripted(late) as url, connections() as made:
        assert await read(made, url) == b"abc"
        for _ in range(10_000):
            if not any(made._idle.values()):
                break
            await asyncio.sleep(0.001)  # until the forged bytes are there
        assert await read(made, url) == b"abc"


async def test_a_server_that_says_close_gets_another_connection() -> None:
    answer = b"HTTP/1.1 206 P\r\nConnection: Close\r\nContent-Length: 3\r\n\r\nabc"
    async with scripted(answering(answer)) as url, connections() as made:
        for _ in range(3):
            assert await read(made, url) == b"abc"
        assert not any(made._idle.values())


@pytest.mark.parametrize("sent", [0, 9, len(HEAD % 6), len(HEAD % 6) + 3])
async def test_a_cancelled_read_ends_its_connection(sent: int) -> None:
    """Before the head, within it, and before and within the body."""
    has_sent, is_gone = asyncio.Event(), asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write((HEAD % 6 + b"abcdef")[:sent])
        await writer.drain()
        has_sent.set()
        with suppress(ConnectionError):
            assert await reader.read(1) == b""
        is_gone.set()

    async with scripted(script) as url, connections() as made:

        async def store_reads() -> None:
            body = await ask(made, url)
            assert body is not None
            try:
                await body.read()
            finally:
                body.close()

        reading = asyncio.get_running_loop().create_task(store_reads())
        await has_sent.wait()
        await asyncio.sleep(0.01)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        async with asyncio.timeout(60):
            await is_gone.wait()
        assert not any(made._idle.values())


async def test_a_call_that_is_cancelled_with_its_answer_leaves_the_connection() -> None:
    """All had arrived, so the connection may be another caller's by now."""
    async with scripted(answering(HEAD % 3 + b"abc")) as url, connections() as made:
        asking = asyncio.get_running_loop().create_task(ask(made, url))
        for _ in range(10_000):
            if any(made._idle.values()):
                break
            await asyncio.sleep(0)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        assert len([one for idle in made._idle.values() for one in idle]) == 1
        assert await read(made, url) == b"abc"


async def test_a_body_that_nobody_reads_is_given_up() -> None:
    async with scripted(answering(HEAD % 100 + b"x")) as url, connections() as made:
        body = await ask(made, url)
        assert body is not None
        body.close()
        with pytest.raises(ConnectionError):
            await body.read()
        assert not any(made._idle.values())


async def test_h36_an_error_whose_text_never_comes_keeps_no_connection(tmp_path: Path) -> None:
    """botocore reads an error's body itself, and closes nothing when its try has no time left."""
    began, over = 0, 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal began, over
        await reader.readuntil(b"\r\n\r\n")
        began += 1
        writer.write(b"HTTP/1.1 500 X\r\nContent-Length: 9\r\n\r\nabc")
        with suppress(ConnectionError):
            assert await reader.read(1) == b""
        over += 1

    async with scripted(script) as url:
        limits = {"s3_api_call_timeout": 1000}
        settings = RecordingServer(port=urlsplit(url).port or 0).settings(**KEYS, **limits)
        settings["rsm.config.s3.api.call.attempt.timeout"] = 100
        async with open_store(settings) as store:
            locator = subject_of(store, tmp_path).segment().locator
            async with asyncio.timeout(60):
                while began < 2:  # a busy machine may not get that far in time
                    with pytest.raises(Unavailable, match="no answer in time"):
                        await store.fetch_log_segment(locator, ByteRange(start=0, end=9))
                while over < began:  # noqa: ASYNC110 - of what the server has seen
                    await asyncio.sleep(0.001)
            assert over == began


def test_g9_memory_is_not_used_again_while_a_view_of_it_is_held() -> None:
    memory = BodyMemory()
    held = memory.take(10)
    held[:] = b"x" * 10
    part = held[3:5]
    del held
    other = memory.take(10)
    other[:] = b"y" * 10
    assert bytes(part) == b"xx"
    del part, other
    again = [memory.take(1) for _ in range(2)]
    assert {bytes(view) for view in again} == {b"x", b"y"}, "the buffers that were there"


def test_g10_buffers_that_are_kept_are_few() -> None:
    memory = BodyMemory()
    views = [memory.take(1) for _ in range(SLOTS_KEPT + 3)]
    assert len(memory._free) == 0
    views.clear()
    assert len(memory._free) == SLOTS_KEPT


async def ranged(asked: Asked) -> Answer:
    """An honest answer."""
    if "range" not in asked.headers:
        return Answer(body=b"whole")
    first, _, last = asked.headers["range"].removeprefix("bytes=").partition("-")
    start, end = int(first), int(last) + 1
    headers = {"content-range": f"bytes {start}-{end - 1}/{len(BODY)}"}
    return Answer(status=206, headers=headers, body=BODY[start:end])


async def test_a_store_receives_ranges_so_and_everything_else_through_aiohttp(
    tmp_path: Path,
) -> None:
    async with recording_server(ranged) as server, open_store(server.settings(**KEYS)) as store:
        locator = subject_of(store, tmp_path).segment().locator
        found = await store.fetch_log_segment(locator, ByteRange(start=5, end=900_000))
        assert isinstance(found, memoryview)
        assert found == BODY[5:900_000]
        assert await store.fetch_indexes(locator) == b"whole"
    [first, _] = server.asked
    assert first.headers["authorization"].startswith("AWS4-HMAC-SHA256 ")
    assert first.headers["host"] == f"127.0.0.1:{server.port}"


async def test_only_a_server_whose_certificate_is_trusted_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    issued = authority.issue("s3", "127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issued.cert_file, issued.key_file)
    wanted = ByteRange(start=5, end=900_000)
    async with recording_server(ranged, context) as server:
        patient, hasty = (
            server.settings(**KEYS, s3_api_call_timeout=limit_ms)
            | {"rsm.config.s3.api.call.attempt.timeout": limit_ms}
            for limit_ms in (60_000, 2_000)
        )
        monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.ca_file))
        async with open_store(patient) as store:
            locator = subject_of(store, tmp_path).segment().locator
            found = await store.fetch_log_segment(locator, wanted)
            assert isinstance(found, memoryview)
            assert found == BODY[5:900_000]
        monkeypatch.setenv("AWS_CA_BUNDLE", str(other.ca_file))
        async with open_store(hasty) as store:

            async def is_refused() -> None:
                with pytest.raises(Unavailable, match="mend the certificate"):
                    await store.fetch_log_segment(locator, wanted)

            await succeeds_once(is_refused)
        assert len(server.asked) == 1


async def test_an_http_proxy_is_used_for_ranges_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(asked: Asked) -> Answer:
        return Answer(status=403)

    async with recording_server(answer) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        settings = proxy.settings(**KEYS) | {"rsm.config.s3.endpoint.url": "http://s3.invalid"}
        async with open_store(settings) as store:
            locator = subject_of(store, tmp_path).segment().locator
            with pytest.raises(Unavailable, match="HTTP 403"):
                await store.fetch_log_segment(locator, ByteRange(start=0, end=9))
        assert [asked.method for asked in proxy.asked] == ["GET"]


async def test_a_connection_whose_body_ends_after_the_close_is_closed() -> None:
    go, is_gone = asyncio.Event(), asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD % 6 + b"abc")
        await go.wait()
        writer.write(b"def")
        with suppress(ConnectionError):
            assert await reader.read(1) == b""
        is_gone.set()

    async with scripted(script) as url, connections() as made:
        body = await ask(made, url)
        assert body is not None
        made.close()
        go.set()
        assert bytes(await body.read()) == b"abcdef"
        await asyncio.wait_for(is_gone.wait(), 60)
