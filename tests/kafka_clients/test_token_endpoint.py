"""Tokens over HTTP from a real socket, as identity providers send them."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote_plus

import pytest

from kafka_clients import token_endpoint
from kafka_clients.bearer_tokens import TokenRefused
from kafka_clients.security import TlsFiles, TokenEndpoint
from kafka_clients.token_endpoint import fetch_token
from kip405.errors import Invalid
from kip405.settings import Secret
from tests.builders.certificates import Authority
from tests.waiting import pass_time, until

BODY = b'{"access_token": "abc", "expires_in": 60}'
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"10\r\n" + BODY[:16] + b"\r\n%x\r\n" % (len(BODY) - 16) + BODY[16:] + b"\r\n0\r\n\r\n"
)


class Server:
    """Answers every request with the same bytes, and closes."""

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self.requests.append(await reader.readuntil(b"credentials"))
        if self.answer is None:
            await reader.read()
        else:
            writer.write(self.answer)
        writer.close()


@asynccontextmanager
async def serving(answer: bytes | None, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    made = Server(answer)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for writer in made.writers:
            writer.transport.abort()
        await asyncio.sleep(0)


def login(port: int, scheme: str = "http", secret: Secret | Path | None = None) -> TokenEndpoint:
    return TokenEndpoint(
        url=f"{scheme}://127.0.0.1:{port}/token",
        client_id="rlm",
        client_secret=secret or Secret("s3cret"),
    )


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED, PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0")])
async def test_a_token(answer: bytes) -> None:
    async with serving(answer) as server:
        token = await fetch_token(login(server.port), TlsFiles())
        assert (token.text, token.lifetime_s) == ("abc", 60)
        assert server.requests[0].startswith(b"POST /token HTTP/1.1\r\n")


async def test_over_tls_the_brokers_authorities_count_and_the_name_is_checked(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    trusting = TlsFiles(ca_file=str(authority.ca_file), checks_host_name=False)
    for name in ("127.0.0.1", "another.example"):
        pair = authority.issue(name)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pair.cert_file, pair.key_file)
        async with serving(PLAIN, context) as server:
            endpoint = login(server.port, "https")
            if name == "127.0.0.1":
                assert (await fetch_token(endpoint, trusting)).text == "abc"
            else:
                with pytest.raises(ssl.SSLCertVerificationError):
                    await fetch_token(endpoint, trusting)
            with pytest.raises(ssl.SSLCertVerificationError):
                await fetch_token(endpoint, TlsFiles())


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"SSH-2.0-x\r\n", "not HTTP"),
        (b"", "not HTTP"),
        (PLAIN[:-5], "not HTTP: IncompleteRead"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 300_000, "too large"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://evil/\r\n\r\n", "302 without a JSON"),
        (b"HTTP/1.1 401 No\r\n\r\n" + b'{"error": "invalid_client"}', "401 invalid_client"),
    ],
)
async def test_what_is_no_answer(answer: bytes, message: str) -> None:
    async with serving(answer) as server:
        with pytest.raises(TokenRefused, match=message) as refused:
            await fetch_token(login(server.port), TlsFiles())
    assert "s3cret" not in repr(refused.value)


@pytest.mark.parametrize("urlencodes_header", [False, True])
async def test_what_an_endpoint_says_of_the_secret_is_masked(urlencodes_header: bool) -> None:
    """Some repeat the request in their error."""
    secret = "s3 cret/+&\u00e4"
    names = "rlm:" + (quote_plus(secret) if urlencodes_header else secret)
    header = base64.b64encode(names.encode()).decode()
    for shown in (secret, quote_plus(secret), header, "x" * 187 + secret):
        said = json.dumps({"error": "invalid", "error_description": shown}).encode()
        async with serving(b"HTTP/1.1 401 No\r\n\r\n" + said) as server:
            endpoint = replace(
                login(server.port, secret=Secret(secret)), urlencodes_header=urlencodes_header
            )
            with pytest.raises(TokenRefused, match="it answers 401 invalid: ") as refused:
                await fetch_token(endpoint, TlsFiles())
            assert header.encode() in server.requests[0]
        text = str(refused.value)
        assert not any(part in text for part in ("s3", quote_plus(secret), header[:8]))


async def test_an_endpoint_that_is_silent() -> None:
    async with serving(None) as server:
        fetching = asyncio.ensure_future(fetch_token(login(server.port), TlsFiles()))
        await until(lambda: bool(server.requests))
        pass_time(token_endpoint._TIMEOUT_S)
        with pytest.raises(TimeoutError):
            await fetching


async def test_a_secret_file_is_read_for_each_token(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    async with serving(PLAIN) as server:
        for text in ("one", "two"):
            file.write_text(f"{text}\n")
            await fetch_token(login(server.port, secret=file), TlsFiles())
        assert server.requests[0] != server.requests[1]
        file.unlink()
        with pytest.raises(Invalid, match=r"client\.secret\.file: cannot read"):
            await fetch_token(login(server.port, secret=file), TlsFiles())
