"""The client of one store, created when first needed: address, style, credentials, limits.

botocore tries once (rsm_plugins/s3/calls.py retries) and signs no payloads: the CRC-32C of every
object and part is in a signed header, and hashing SHA-256 besides would cost 0.6 CPU s/GB. It
checks no checksums of answers, because each reader knows the CRC-32C of what it requested.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from io import BytesIO
from typing import Any

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession

from rsm_plugins.s3.credentials import give_credentials, profile_of
from rsm_plugins.s3.settings import S3Settings

CONNECT_TIMEOUT_SECONDS_MAX = 10.0
READ_BUFFER_BYTES = 1024 * 1024
PIECE_BYTES = 256 * 1024
OPEN_SECONDS = 60.0
"""Longest time until the credentials are there; who waits for them may have no deadline."""
_REGION_DEFAULT = "us-east-1"
_CHATTY = ("aiobotocore", "botocore")


class Pieces:
    """A body that is passed to the socket piece by piece, without the copies that aiohttp makes of
    large bytes and of files in memory.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[memoryview]:
        view = memoryview(self._body)
        for position in range(0, len(view), PIECE_BYTES):
            yield view[position : position + PIECE_BYTES]


class BulkSession(AIOHTTPSession):  # type: ignore[misc] # published without types
    """The HTTP session of aiobotocore, for bodies of megabytes.

    aiohttp stops and resumes the socket whenever twice its read buffer of 64 KiB is full; with 1
    MiB, reading a GB costs a quarter less CPU.
    """

    async def send(self, request: Any) -> Any:
        """One try of a signed request; a body goes at once, without asking for leave first, which
        would cost a round trip for each part (the header is not among the signed ones).
        """
        if isinstance(request.body, BytesIO):
            del request.headers["Expect"]
            request.body = Pieces(request.body.getvalue())
        return await super().send(request)

    async def _get_session(self, proxy_url: str | None) -> aiohttp.ClientSession:
        session: aiohttp.ClientSession = await super()._get_session(proxy_url)
        session._read_bufsize = READ_BUFFER_BYTES
        return session


class Connection:
    """Owns the client; whoever created it calls `close`."""

    def __init__(self, settings: S3Settings, *, open_seconds: float = OPEN_SECONDS) -> None:
        self._settings = settings
        self._open_seconds = open_seconds
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._client: Any = None
        self._closed = False

    async def client(self) -> Any:
        """botocore's client of S3; its errors, where credentials cannot be had, TimeoutError where
        they do not come (a process or a service that is asked for them hangs).
        """
        if self._client is None:
            async with self._lock, asyncio.timeout(self._open_seconds):
                if self._client is None:
                    self._client = await self._open()
        return self._client

    async def _open(self) -> Any:
        if self._closed:
            raise OSError("the store was closed")
        settings = self._settings
        session = AioSession(profile=profile_of(settings.credentials))
        region = settings.region or session.get_config_variable("region") or _REGION_DEFAULT
        give_credentials(session, settings.credentials, region)
        context = session.create_client(
            "s3",
            region_name=region,
            endpoint_url=settings.endpoint,
            config=client_config(settings),
        )
        return await self._stack.enter_async_context(context)

    async def close(self) -> None:
        """Close the connections; calls that are under way fail."""
        self._closed = True
        await self._stack.aclose()
        self._client = None


def client_config(settings: S3Settings) -> AioConfig:
    """How botocore is to behave."""
    attempt_seconds = settings.attempt_timeout_ms / 1000
    return AioConfig(
        connect_timeout=min(attempt_seconds, CONNECT_TIMEOUT_SECONDS_MAX),
        read_timeout=None,  # an attempt has a deadline; a timer renewed at every read costs CPU
        max_pool_connections=settings.max_connections,
        retries={"total_max_attempts": 1},
        signature_version="s3v4",
        s3={
            "addressing_style": "path" if settings.path_style else "virtual",
            "payload_signing_enabled": False,
        },
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        http_session_cls=BulkSession,
    )


def quiet_library() -> None:
    """botocore's debug log has tokens and signatures in it: it is switched off for good."""
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.INFO)
