"""Bodies of uploads that go through threads, as they are read."""

import asyncio
import gc
import os
import select
import socket
import ssl
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kip405.crc import crc32c
from kip405.errors import Corrupt, Unavailable
from rsm_plugins.conformance.subject import StoredSegment
from rsm_plugins.s3.bodies import PIECE_BYTES, Answer, Body, BodyConnections, Pieces, _Connection
from rsm_plugins.s3.calls import THREAD_BYTES_MIN
from rsm_plugins.threads import Job, Threads
from tests.builders.certificates import Authority
from tests.rsm_plugins.s3.recording import Answer as Recorded
from tests.rsm_plugins.s3.recording import Asked, RecordingServer, failed, recording_server
from tests.rsm_plugins.s3.stores import open_store, subject_of
from tests.rsm_plugins.s3.test_ranges import KEYS, Script, scripted
from tests.rsm_plugins.s3.test_uploads import is_part, keys, ordinary

MIB = 1 << 20
T = TypeVar("T")
BODY = Pieces([os.urandom(PIECE_BYTES) for _ in range(8)])
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
DECLINED = [
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 403 No\r\nContent-Length: 70000\r\n\r\n",
    b"HTTP/1.1 307 Elsewhere\r\nLocation: /other\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
    b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
    b"nonsense\r\n\r\n",
    b"",
]


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads("s3-upload", 2)
    yield made
    made.close()


@asynccontextmanager
async def connections(threads: Threads) -> AsyncIterator[BodyConnections]:
    made = BodyConnections(threads, connect_seconds=60.0, patience_seconds=60.0)
    try:
        yield made
    finally:
        made.close()


async def send(made: BodyConnections, url: str, body: Body = BODY) -> Answer | None:
    return await made.send(url, {"Content-Length": str(len(body))}, body, None)


class Server:
    """Takes bodies and answers each with the next of these; it ends a connection after b""."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.bodies: list[bytes] = []
        self.connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while self.answers:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            self.bodies.append(await reader.readexactly(length))
            answer = self.answers.pop(0)
            writer.write(answer)
            await writer.drain()
            if not answer.startswith(OK[:12]) or len(answer) != len(OK):
                return


async def test_one_connection_sends_one_body_after_the_other(threads: Threads) -> None:
    server = Server(OK, OK, OK)
    async with scripted(server) as url, connections(threads) as made:
        for _ in range(3):
            answer = await send(made, url)
            assert answer is not None
            assert (answer.status, answer.text) == (200, b"")
    assert server.bodies == [BODY.read()] * 3
    assert server.connections == 1


async def test_a_connection_that_the_server_has_ended_is_not_used_again(threads: Threads) -> None:
    closing = OK.replace(b"\r\n\r\n", b"\r\nX: y\r\n\r\n")
    server = Server(closing, OK)
    async with scripted(server) as url, connections(threads) as made:
        assert await send(made, url) is not None
        (idle,) = made._idle.values()
        await asyncio.to_thread(select.select, [idle[0]._raw], [], [], 30)
        assert await send(made, url) is not None
    assert server.connections == 2


async def test_a_server_that_says_close_gets_another_connection(threads: Threads) -> None:
    server = Server(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), OK)
    async with scripted(server) as url, connections(threads) as made:
        assert await send(made, url) is not None
        assert [list(idle) for idle in made._idle.values()] in ([], [[]])
        assert await send(made, url) is not None
    assert server.connections == 2


@pytest.mark.parametrize("answer", DECLINED, ids=range(len(DECLINED)))
async def test_what_is_not_plain_is_left_to_aiohttp(answer: bytes, threads: Threads) -> None:
    async with scripted(Server(answer)) as url, connections(threads) as made:
        assert await send(made, url) is None


async def test_no_server_is_left_to_aiohttp(threads: Threads) -> None:
    async with connections(threads) as made:
        assert await send(made, "http://127.0.0.1:9/b/k") is None
        made.close()
        assert await send(made, "http://127.0.0.1:9/b/k") is None


async def test_answers_in_between_are_passed_over(threads: Threads) -> None:
    server = Server(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Wait\r\n\r\n" + OK)
    async with scripted(server) as url, connections(threads) as made:
        answer = await send(made, url)
    assert answer is not None
    assert answer.status == 200


@pytest.mark.parametrize("status", [b"503", b"429"])
async def test_an_overloaded_server_is_not_sent_the_body_again(
    status: bytes, threads: Threads
) -> None:
    head = b"HTTP/1.1 %s No\r\nTransfer-Encoding: chunked\r\n\r\n" % status
    async with scripted(Server(head)) as url, connections(threads) as made:
        answer = await send(made, url)
    assert answer is not None
    assert (answer.status, answer.text) == (int(status), b"")


async def test_a_refusal_before_the_whole_body_is_heard() -> None:
    """The connection is not used again: the server may take the rest for a request."""
    ours, theirs = socket.socketpair()
    theirs.sendall(b"HTTP/1.1 403 No\r\nContent-Length: 4\r\n\r\ntext")
    theirs.shutdown(socket.SHUT_RD)
    connection = _Connection(ours, "host", None)
    answer = await asyncio.to_thread(connection.exchange, b"PUT", BODY)
    assert answer is not None
    assert (answer.status, answer.text) == (403, b"text")
    assert not connection.may_stay
    connection.abort()
    theirs.close()


def taking_no_body(begun: asyncio.Event, ended: asyncio.Event) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        begun.set()
        await asyncio.sleep(0.05)
        try:
            while await reader.read(MIB):
                pass
        finally:
            ended.set()

    return script


async def test_a_send_that_is_given_up_ends_its_connection(threads: Threads) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()
    endless = Endless()
    async with scripted(taking_no_body(begun, ended)) as url, connections(threads) as made:
        sending = asyncio.ensure_future(send(made, url, endless))
        await begun.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        async with asyncio.timeout(60):
            await ended.wait()
            await asyncio.to_thread(endless.over.wait)


class Cancelling(Threads):
    """Cancels the caller at the moment at which its work is done."""

    caller: asyncio.Future[Any] | None = None

    def begin(self, work: Callable[[], T], *, hang_ms: int | None = None) -> Job[T]:
        job = super().begin(work, hang_ms=hang_ms)
        job.future.add_done_callback(lambda _: self.caller and self.caller.cancel())
        return job


async def test_a_send_that_is_given_up_with_its_answer_ends_its_connection() -> None:
    ended = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(len(BODY))
        writer.write(OK)
        assert await reader.read() == b""
        ended.set()

    threads = Cancelling("s3-upload", 1)
    async with scripted(script) as url, connections(threads) as made:
        threads.caller = asyncio.ensure_future(send(made, url))
        with pytest.raises(asyncio.CancelledError):
            await threads.caller
        async with asyncio.timeout(60):
            await ended.wait()
    threads.close()


async def test_the_end_of_all_connections_ends_a_send(threads: Threads) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()
    async with scripted(taking_no_body(begun, ended)) as url, connections(threads) as made:
        sending = asyncio.ensure_future(send(made, url, Endless()))
        await begun.wait()
        made.close()
        assert await sending is None


class Endless(Pieces):
    """A body without an end; `over` is set when nobody takes more of it."""

    def __init__(self) -> None:
        super().__init__([bytes(MIB)])
        self.over = threading.Event()

    def __len__(self) -> int:
        return 1 << 40

    def pieces(self) -> Iterator[bytes]:
        try:
            while True:
                yield bytes(MIB)
        finally:
            self.over.set()


async def test_sockets_are_closed(threads: Threads) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        async with scripted(Server(OK, OK, b"")) as url, connections(threads) as made:
            for _ in range(3):
                await send(made, url)
        del made
        gc.collect()
    assert [one for one in caught if "socket" in str(one.message)] == []


# A whole store.


def is_ours(asked: Asked) -> bool:
    """aiohttp says which kinds of answers it takes."""
    return "accept" not in asked.headers


async def copied(server: RecordingServer, folder: Path, size_bytes: int) -> StoredSegment:
    async with open_store(server.settings(**keys())) as store:
        subject = subject_of(store, folder)
        segment = subject.segment(log_size_bytes=size_bytes)
        await subject.copy(segment)
        return segment


@pytest.mark.parametrize("size_bytes", [THREAD_BYTES_MIN, 3 * MIB + 1, 12 * MIB])
async def test_logs_go_through_threads_and_small_objects_do_not(
    size_bytes: int, tmp_path: Path
) -> None:
    async with recording_server(ordinary) as server:
        segment = await copied(server, tmp_path, size_bytes)
        puts = [one for one in server.asked if one.method == "PUT"]
    logs = [one for one in puts if one.path.endswith(".log")]
    parts = sorted(logs, key=lambda one: int(one.query.get("partNumber", 0)))
    assert b"".join(one.body for one in parts) == segment.log
    assert all(is_part(one) for one in logs) == (size_bytes > 5 * MIB)
    for one in logs:
        assert is_ours(one) == (len(one.body) >= THREAD_BYTES_MIN)
        assert "expect" not in one.headers
        assert one.headers["host"] == f"127.0.0.1:{server.port}"
    (indexes,) = [one for one in puts if one.path.endswith(".indexes")]
    assert not is_ours(indexes)


async def test_an_unusual_answer_is_asked_for_again_through_aiohttp(tmp_path: Path) -> None:
    """A log is then sent twice, and only then."""

    async def answer(asked: Asked) -> Recorded:
        if is_ours(asked):
            return Recorded(headers={"transfer-encoding": "chunked"}, body=b"0\r\n\r\n")
        return await ordinary(asked)

    async with recording_server(answer) as server:
        segment = await copied(server, tmp_path, 3 * MIB)
        logs = [one for one in server.asked if one.path.endswith(".log")]
    assert [is_ours(one) for one in logs] == [True, False]
    assert [one.body for one in logs] == [segment.log] * 2


async def test_a_refusal_of_a_log_is_one_error(tmp_path: Path) -> None:
    async def answer(asked: Asked) -> Recorded:
        return failed(403, "AccessDenied")

    async with recording_server(answer) as server:
        with pytest.raises(Unavailable, match="AccessDenied"):
            await copied(server, tmp_path, 3 * MIB)
        assert sum(one.path.endswith(".log") for one in server.asked) <= 1


@pytest.mark.parametrize("through_aiohttp", [False, True])
async def test_g09_a_log_that_is_not_the_planned_one_never_goes_up_whole(
    through_aiohttp: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is not tried again: the server has nothing to do with it."""
    async with recording_server(ordinary) as server:
        settings = server.settings(**KEYS)
        if through_aiohttp:
            monkeypatch.setenv("HTTP_PROXY", server.url)
            monkeypatch.delenv("NO_PROXY", raising=False)
            monkeypatch.delenv("no_proxy", raising=False)
            settings["rsm.config.s3.endpoint.url"] = "http://s3.invalid"
        async with open_store(settings) as store:
            subject = subject_of(store, tmp_path)
            segment = subject.segment(log_size_bytes=3 * MIB)
            data = replace(segment.data, log_crc32c=crc32c(segment.log) ^ 1)
            with pytest.raises(Corrupt, match="have CRC-32C"):
                await store.copy_log_segment_data(segment.locator, data)
        assert [one for one in server.asked if one.path.endswith(".log")] == []


async def test_an_http_proxy_is_used_for_logs_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with recording_server(ordinary) as server, recording_server(ordinary) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        segment = await copied(server, tmp_path, 3 * MIB)
        assert server.asked == []
        assert segment.log in [one.body for one in proxy.asked]


async def test_a_log_goes_up_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.ca_file))
    async with (
        recording_server(ordinary, served_by(authority)) as server,
        open_store(server.settings(**KEYS)) as store,
    ):
        subject = subject_of(store, tmp_path)
        for _ in range(2):
            segment = subject.segment(log_size_bytes=3 * MIB)
            await subject.copy(segment)
            (log,) = [one for one in server.asked if one.path.endswith(".log")]
            assert log.body == segment.log
            assert is_ours(log)
            server.asked.clear()


async def test_only_a_server_whose_certificate_is_trusted_gets_a_body(
    tmp_path: Path, threads: Threads
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    async with (
        recording_server(ordinary, served_by(authority)) as server,
        connections(threads) as made,
    ):
        url, headers = f"{server.url}/b/k", {"Content-Length": str(len(BODY))}
        other_name = f"https://localhost:{server.port}/b/k"
        for asked, trusted, is_answered in (
            (url, other, False),
            (other_name, authority, False),
            (url, authority, True),
        ):
            context = ssl.create_default_context(cafile=trusted.ca_file)
            answer = await made.send(asked, headers, BODY, context)
            assert (answer is not None) == is_answered
    assert len(server.asked) == 1


def served_by(authority: Authority) -> ssl.SSLContext:
    issued = authority.issue("s3", "127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issued.cert_file, issued.key_file)
    return context
