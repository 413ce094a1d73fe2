"""What the S3 store does when the server or the way to it fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from kip405.errors import Invalid, NotFound, Unavailable
from kip405.segments import ByteRange, FileSlice
from rsm_plugins.contract.client import Deadlines, GrpcRemoteStorageManager
from rsm_plugins.contract.server import PluginServer
from rsm_plugins.contract.services import Dependencies, PluginInfo
from rsm_plugins.files.segment_files import Spool
from rsm_plugins.s3.manager import S3RemoteStorageManager
from rsm_plugins.s3.settings import CredentialSettings, S3Settings
from rsm_plugins.threads import FileThreads
from tests.rsm_plugins.s3.recording import (
    Answer,
    Asked,
    Handler,
    RecordingServer,
    failed,
    recording_server,
)
from tests.rsm_plugins.s3.stores import open_store, subject_of

BODY = bytes(range(256)) * 40
TEN = ByteRange(start=5, end=15)
SECRET = "a-secret-that-nobody-sees"


class Waits:
    """A pause that takes no time and is kept."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def pause(self, seconds: float) -> None:
        self.seconds.append(seconds)


@asynccontextmanager
async def store_at(
    server: RecordingServer, waits: "Waits | HeldPause", **more: int
) -> AsyncIterator[S3RemoteStorageManager]:
    settings = S3Settings(
        bucket="bucket",
        region="r",
        endpoint=server.url,
        path_style=True,
        credentials=CredentialSettings(access_key="k", secret_key=SECRET),
        **more,  # type: ignore[arg-type] # numbers only
    )
    threads = FileThreads(1)
    store = S3RemoteStorageManager(settings, threads, waits.pause)
    try:
        yield store
    finally:
        await store.close()
        threads.close()


def ranged(asked: Asked, sent_bytes: int | None = None) -> Answer:
    """An honest answer to a ranged GET of BODY."""
    first, _, last = asked.headers["range"].removeprefix("bytes=").partition("-")
    start, end = int(first), min(int(last) + 1, len(BODY))
    headers = {"content-range": f"bytes {start}-{end - 1}/{len(BODY)}"}
    return Answer(status=206, headers=headers, body=BODY[start:end], sent_bytes=sent_bytes)


def after(failures: list[Answer]) -> Handler:
    """These, one after the other, then the truth."""

    async def answer(asked: Asked) -> Answer:
        return failures.pop(0) if failures else ranged(asked)

    return answer


async def fetch(server: RecordingServer, waits: Waits, folder: Path, **more: int) -> bytes:
    async with store_at(server, waits, **more) as store:
        locator = subject_of(store, folder).segment().locator
        found = await store.fetch_log_segment(locator, TEN)
        assert not isinstance(found, FileSlice)
        return bytes(found)


@pytest.mark.parametrize(
    "failure",
    [
        failed(503, "SlowDown"),
        failed(500, "InternalError"),
        failed(502, ""),
        failed(429, "TooManyRequests"),
        Answer(status=503, body=b"<html>a proxy's page"),
        Answer(status=503, headers={"transfer-encoding": "chunked"}, body=b"3\r\nabc\r\n0\r\n\r\n"),
        Answer(
            status=206, headers={"content-range": "bytes 5-14/100"}, body=b"x" * 10, sent_bytes=4
        ),
        Answer(status=206, headers={"content-range": "bytes 5-14/100"}, body=b"x" * 9),
        Answer(
            status=206, headers={"content-range": "bytes 5-14/100"}, body=b"x" * 10, sent_bytes=0
        ),
    ],
    ids=[
        "slow down",
        "500",
        "502",
        "429",
        "a proxy",
        "in chunks",
        "cut body",
        "short body",
        "no body",
    ],
)
async def test_passing_failures_are_tried_again(failure: Answer, tmp_path: Path) -> None:
    waits = Waits()
    async with recording_server(after([failure] * 3)) as server:
        assert await fetch(server, waits, tmp_path) == BODY[5:15]
        assert len(server.asked) == 4
    assert len(waits.seconds) == 3
    assert all(0.05 <= seconds <= 5.0 for seconds in waits.seconds)


async def test_failures_that_do_not_pass_are_unavailable(tmp_path: Path) -> None:
    waits = Waits()
    async with recording_server(after([failed(503, "SlowDown")] * 100)) as server:
        with pytest.raises(Unavailable, match=r"GetObject s3://bucket/.*: SlowDown \(HTTP 503\)"):
            await fetch(server, waits, tmp_path)
        assert len(server.asked) == 8
    assert waits.seconds[-1] > waits.seconds[0]


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (failed(403, "AccessDenied", SECRET), Unavailable),
        (failed(404, "NoSuchKey"), NotFound),
        (failed(404, "NoSuchBucket"), Unavailable),
        (failed(400, "InvalidRequest", SECRET), Invalid),
        (Answer(status=200, body=BODY), Invalid),
        (Answer(status=206, headers={"content-range": "bytes 0-9/100"}, body=b"x" * 10), Invalid),
    ],
    ids=["denied", "no key", "no bucket", "bad request", "range ignored", "another range"],
)
async def test_refusals_are_not_tried_again(
    failure: Answer, kind: type[Exception], tmp_path: Path
) -> None:
    waits = Waits()
    async with recording_server(after([failure] * 100)) as server:
        with pytest.raises(kind) as refused:
            await fetch(server, waits, tmp_path)
        assert len(server.asked) == 1
    assert SECRET not in str(refused.value)


async def test_a_server_that_falls_silent_is_unavailable_in_time(tmp_path: Path) -> None:
    """Tries end by their own deadline, the call by its own; both far below the test's limit."""

    async def answer(asked: Asked) -> Answer:
        if silent:
            await asyncio.Event().wait()
        return ranged(asked)

    silent = False
    limits = {"attempt_timeout_ms": 200, "call_timeout_ms": 1500}
    async with recording_server(answer) as server, store_at(server, Waits(), **limits) as store:
        locator = subject_of(store, tmp_path).segment().locator
        for _ in range(100):  # until all is loaded that the first call needs
            with suppress(Unavailable):
                await store.fetch_log_segment(locator, TEN)
                break
        answered, silent = len(server.asked), True
        tries = 0
        async with asyncio.timeout(60):
            while tries < 2:  # a busy machine may not get that far in time
                with pytest.raises(Unavailable, match="no answer in time"):
                    await store.fetch_log_segment(locator, TEN)
                tries, answered = len(server.asked) - answered, len(server.asked)


async def test_nobody_listens(tmp_path: Path) -> None:
    async with recording_server(after([])) as server:
        pass
    waits = Waits()
    with pytest.raises(Unavailable, match="EndpointConnectionError"):
        await fetch(server, waits, tmp_path)
    assert len(waits.seconds) == 7


async def test_a_full_house_waits_and_does_not_fail(tmp_path: Path) -> None:
    """More calls than connections: never more on the wire than allowed."""
    at_once, most = 0, 0

    async def answer(asked: Asked) -> Answer:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.005)
        at_once -= 1
        return ranged(asked)

    limits = {"max_connections": 4, "upload_concurrency": 2}
    async with recording_server(answer) as server, store_at(server, Waits(), **limits) as store:
        locator = subject_of(store, tmp_path).segment().locator
        calls = (store.fetch_log_segment(locator, TEN) for _ in range(40))
        assert all(found == BODY[5:15] for found in await asyncio.gather(*calls))
    assert most == 4


async def test_a_manifest_that_cannot_be_deleted_keeps_its_data(tmp_path: Path) -> None:
    async def answer(asked: Asked) -> Answer:
        requests.append((asked.method, asked.path))
        return failed(403, "AccessDenied")

    requests: list[tuple[str, str]] = []
    settings = {"aws_access_key_id": "k", "aws_secret_access_key": "s"}
    async with recording_server(answer) as server, open_store(server.settings(**settings)) as store:
        locator = subject_of(store, tmp_path).segment().locator
        with pytest.raises(Unavailable, match="rsm-manifest"):
            await store.delete_log_segment_data(locator)
    assert {method for method, _ in requests} == {"DELETE"}
    assert all(path.endswith(".rsm-manifest") for _, path in requests)


class HeldPause:
    """A pause that takes no time until `hold` is set; then it lasts until its caller is
    cancelled.
    """

    def __init__(self) -> None:
        self.hold = False
        self.begun = 0
        self.cancelled = asyncio.Event()

    async def pause(self, _seconds: float) -> None:
        if not self.hold:
            return
        self.begun += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


@asynccontextmanager
async def plugin_over(
    store: S3RemoteStorageManager, folder: Path, call_ms: int
) -> AsyncIterator[GrpcRemoteStorageManager]:
    """A client with this deadline, of a plugin that serves the store."""
    threads = FileThreads(1)
    info = PluginInfo(name="s3", version="1", store_uri="s3://bucket", instance="one")
    server = PluginServer(
        Dependencies(manager=store, info=info, threads=threads, spool=Spool(folder, threads, 1)),
        "127.0.0.1:0",
    )
    deadlines = Deadlines(call_ms=call_ms, copy_ms=call_ms)
    client = GrpcRemoteStorageManager.connect(
        str(await server.start()), principal="t", deadlines=deadlines
    )
    try:
        yield client
    finally:
        await client.close()
        await server.stop()
        threads.close()


async def test_retries_end_with_the_deadline_of_the_call(tmp_path: Path) -> None:
    """The plugin may wait longer than its caller does; the caller's task owns the back-off."""
    held = HeldPause()
    async with (
        recording_server(after([failed(503, "SlowDown")] * 1000)) as server,
        store_at(server, held) as store,
        plugin_over(store, tmp_path, call_ms=400) as client,
    ):
        locator = subject_of(store, tmp_path).segment().locator
        with pytest.raises(Unavailable, match="SlowDown"):  # all is loaded that a call needs
            await store.read_manifest(locator)
        held.hold = True
        while not held.begun:  # a busy machine may not get that far in time
            with pytest.raises(Unavailable, match="plugin 127"):
                await client.read_manifest(locator)
        asked = len(server.asked)
        async with asyncio.timeout(60):
            await held.cancelled.wait()
        held.hold = False
        assert (len(server.asked), held.begun) == (asked, 1), "it is not asked again"
