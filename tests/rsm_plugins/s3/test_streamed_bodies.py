"""Blocks that go up through aiohttp, as behind an HTTP proxy: read while they are sent."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from botocore.awsrequest import AWSPreparedRequest

from kip405.errors import Corrupt, Fenced, RemoteStorageError, Unavailable
from kip405.ids import Uuid
from kip405.segments import CustomMetadata, Layout
from rsm_plugins.blocks.source import data_pieces, plan_of
from rsm_plugins.s3.bodies import PIECE_BYTES, Pieces, StreamedBody
from rsm_plugins.s3.manager import S3RemoteStorageManager
from rsm_plugins.threads import Threads
from tests.rsm_plugins.blocks.logs import LOCATOR, log_of, source_of
from tests.rsm_plugins.s3.recording import Answer, Asked, RecordingServer, failed, recording_server
from tests.rsm_plugins.s3.stores import open_store
from tests.rsm_plugins.s3.test_ranges import KEYS, Script, scripted
from tests.rsm_plugins.s3.test_uploads import is_begin, is_part, ordinary

MIB = 1 << 20
BLOCK_BYTES = 5 * MIB
WHERE = replace(
    LOCATOR,
    custom_metadata=CustomMetadata(store_id=Uuid(bytes(16)), layout=Layout.BLOCKS).encode(),
)
LOG = log_of([300_000] * 40)


class Counted(Pieces):
    """How many pieces were read, whether somebody still reads them, and where they break."""

    def __init__(self, count: int, breaks_at: int = -1) -> None:
        super().__init__([bytes(PIECE_BYTES)] * count)
        self.read_pieces, self.is_over = 0, False
        self._breaks_at = breaks_at

    def pieces(self) -> Iterator[bytes]:
        try:
            for piece in super().pieces():
                if self.read_pieces == self._breaks_at:
                    raise Corrupt("the file changed")
                self.read_pieces += 1
                yield piece
        finally:
            self.is_over = True


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads("rsm-file", 2)
    yield made
    made.close()


async def test_g10_a_few_pieces_are_in_memory(threads: Threads) -> None:
    body = Counted(64)
    sent = 0
    async for piece in StreamedBody(body, threads):
        sent += len(piece)
        assert body.read_pieces * PIECE_BYTES - sent <= 2 * MIB
    assert (sent, body.is_over) == (64 * PIECE_BYTES, True)


async def test_an_error_of_the_body_is_kept_before_its_end_goes_out(threads: Threads) -> None:
    streamed = StreamedBody(Counted(16, breaks_at=15), threads)
    sent = 0
    with pytest.raises(Corrupt):
        async for piece in streamed:
            sent += len(piece)
    assert sent <= 15 * PIECE_BYTES
    assert isinstance(streamed.error, Corrupt)


async def test_a_request_with_such_a_body_may_be_sent_once_more(threads: Threads) -> None:
    """As botocore does where a bucket is in another region than the settings say."""
    request = AWSPreparedRequest(
        "PUT", "http://s3.invalid/", {}, StreamedBody(Counted(1), threads), False
    )
    request.reset_stream()


@asynccontextmanager
async def behind_a_proxy(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[S3RemoteStorageManager]:
    """A store whose server nobody finds; whoever is the proxy answers for it."""
    monkeypatch.setenv("HTTP_PROXY", url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    settings = RecordingServer(port=1).settings(**KEYS, blocks_size_bytes=BLOCK_BYTES)
    settings["rsm.config.s3.endpoint.url"] = "http://s3.invalid"
    async with open_store(settings) as store:
        yield store


async def test_blocks_go_through_an_http_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(LOG, tmp_path / "log")
    plan = plan_of(source, BLOCK_BYTES)
    assert len(plan.blocks) == 3
    async with (
        recording_server(ordinary) as proxy,
        behind_a_proxy(proxy.url, monkeypatch) as store,
    ):
        await store.copy_log_segment_data(WHERE, source)
        parts = sorted(filter(is_part, proxy.asked), key=lambda one: int(one.query["partNumber"]))
    assert b"".join(one.body for one in parts) == b"".join(data_pieces(plan, source))


@pytest.mark.parametrize(("change", "error"), [(b"other", Corrupt), (None, Fenced)])
async def test_g09_blocks_of_a_file_that_changes_meanwhile_do_not_go_up(
    change: bytes | None,
    error: type[RemoteStorageError],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor are they tried again: the server has nothing to do with it."""
    path = tmp_path / "log"
    source = source_of(LOG, path)

    async def answer(asked: Asked) -> Answer:
        if is_begin(asked):  # the plan is made
            if change is None:
                path.unlink()
            else:
                path.write_bytes(LOG[:-9] + change + bytes(20))
        return await ordinary(asked)

    async with (
        recording_server(answer) as proxy,
        behind_a_proxy(proxy.url, monkeypatch) as store,
    ):
        with pytest.raises(error):
            await store.copy_log_segment_data(WHERE, source)
        assert sum(map(is_begin, proxy.asked)) == 1
        methods = {one.method for one in proxy.asked if "uploadId" in one.query}
    assert "POST" not in methods  # nothing was completed
    assert "DELETE" in methods


async def test_a_refusal_of_a_block_behind_a_proxy_is_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(asked: Asked) -> Answer:
        return failed(403, "AccessDenied") if is_part(asked) else await ordinary(asked)

    async with (
        recording_server(answer) as proxy,
        behind_a_proxy(proxy.url, monkeypatch) as store,
    ):
        with pytest.raises(Unavailable, match="AccessDenied"):
            await store.copy_log_segment_data(WHERE, source_of(LOG, tmp_path / "log"))


def refusing(seen: list[bytes]) -> Script:
    """A proxy that begins uploads, and refuses parts before it has taken a body."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            first = head.split(b"\r\n")[0]
            seen.append(first)
            if b"?uploads" in first:
                text = b"<R><UploadId>up-1</UploadId></R>"
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
            elif first.startswith(b"PUT"):
                text = b"<Error><Code>AccessDenied</Code></Error>"
                head = b"HTTP/1.1 403 No\r\nContent-Type: application/xml\r\n"
                writer.write(head + b"Content-Length: %d\r\n\r\n" % len(text) + text)
                await writer.drain()
                return
            else:
                text = b"<Error><Code>NoSuchUpload</Code></Error>"
                writer.write(b"HTTP/1.1 404 No\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
            await writer.drain()

    return script


async def test_a_refusal_before_the_whole_block_ends_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the connection on which half of a block went is not used again."""
    seen: list[bytes] = []
    async with scripted(refusing(seen)) as url, behind_a_proxy(url, monkeypatch) as store:
        with pytest.raises(Unavailable):
            await store.copy_log_segment_data(WHERE, source_of(LOG, tmp_path / "log"))
    assert all(line.endswith(b" HTTP/1.1") for line in seen)
    assert [line for line in seen if line.startswith(b"DELETE")]


async def test_a_copy_behind_a_proxy_that_is_given_up_ends_its_upload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def answer(asked: Asked) -> Answer:
        if is_part(asked):
            begun.set()
            await asyncio.Event().wait()
        return await ordinary(asked)

    async with (
        recording_server(answer) as proxy,
        behind_a_proxy(proxy.url, monkeypatch) as store,
    ):
        source = source_of(LOG, tmp_path / "log")
        copying = asyncio.ensure_future(store.copy_log_segment_data(WHERE, source))
        await begun.wait()
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying
        assert any(one.method == "DELETE" for one in proxy.asked)
