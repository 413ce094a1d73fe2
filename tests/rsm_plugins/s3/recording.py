"""A tiny HTTP server that keeps its requests and answers as scripted: for requests and faults that
no real server here shows.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request; header names are lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        """The body's fields, for requests that come as a form."""
        return {name: values[0] for name, values in parse_qs(self.body.decode()).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`sent_bytes`: the connection is closed after so many bytes of the body."""

    status: int = OK
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    sent_bytes: int | None = None


Handler = Callable[[Asked], Awaitable[Answer]]


@dataclass(slots=True, kw_only=True)
class RecordingServer:
    """Where it listens, and all it was asked."""

    port: int
    scheme: str = "http"
    asked: list[Asked] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def settings(self, **more: object) -> dict[str, object]:
        """`rsm.config.*` rows that lead here; `more` are below `rsm.config.`, with underscores for
        dots.
        """
        rows: dict[str, object] = {
            "rsm.config.s3.bucket.name": "bucket",
            "rsm.config.s3.region": "eu-test-1",
            "rsm.config.s3.endpoint.url": self.url,
            "rsm.config.s3.path.style.access.enabled": True,
        }
        return rows | {f"rsm.config.{key.replace('_', '.')}": more[key] for key in more}


def failed(status: int, code: str, message: str = "") -> Answer:
    """An error as S3 writes it."""
    text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Answer(status=status, headers={"content-type": "application/xml"}, body=text.encode())


def xml(text: str) -> Answer:
    """A successful answer with a document."""
    return Answer(headers={"content-type": "application/xml"}, body=text.encode())


@asynccontextmanager
async def recording_server(
    handler: Handler, tls: ssl.SSLContext | None = None
) -> AsyncIterator[RecordingServer]:
    """A server on a free loopback port, gone with its connections afterwards."""
    recorded = RecordingServer(port=0, scheme="http" if tls is None else "https")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await _exchange(reader, writer, recorded, handler):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    tasks: list[asyncio.Task[None]] = []

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.get_running_loop().create_task(serve(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    recorded.port = server.sockets[0].getsockname()[1]
    try:
        yield recorded
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    recorded: RecordingServer,
    handler: Handler,
) -> bool:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, target, _ = head[0].split(" ")
    pairs = (line.partition(":") for line in head[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    parts = urlsplit(target)
    query = parse_qs(parts.query, keep_blank_values=True)
    asked = Asked(
        method=method,
        path=unquote(parts.path),
        query={name: values[0] for name, values in query.items()},
        headers=headers,
        body=body,
    )
    recorded.asked.append(asked)
    answer = await handler(asked)
    lines = [f"HTTP/1.1 {answer.status} Whatever"]
    given = {"content-length": str(len(answer.body)), **answer.headers}
    lines += [f"{name}: {value}" for name, value in given.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    if method != "HEAD":
        writer.write(answer.body[: answer.sent_bytes])
    await writer.drain()
    return answer.sent_bytes is None
