"""The console by HTTP: its page, which everybody gets, its data, for those who may read it, and its
actions, where they are switched on.

The page is plain HTML, CSS and ES modules of this package, without a build step and without
anything from elsewhere, and the Content-Security-Policy allows nothing else. It holds a token in
memory alone. This module must not know what the data says.
"""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from importlib import resources
from typing import Final

import grpc
import structlog
from aiohttp import web

from kip405.errors import Invalid, RemoteStorageError
from rlm.api.local_calls import CallRefused, LocalCaller
from rlm.console.access import ConsoleAccess
from rlm.console.actions import ConsoleActions, Fields
from rlm.console.answers import ConsoleAnswers
from rlm.console.paging import Row
from rsm_plugins.contract.status import status_of_error

log = structlog.get_logger(__name__)

PREFIX: Final = "/console"
CALLER: Final = "console"
BODY_SECONDS: Final = 10.0
"""Within which the body of an action comes."""
LINE_SECONDS: Final = 60.0
"""Within which a client takes a line. One that sleeps, or reads nothing, ends its action so."""
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_STATUSES: Final = {
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 503,
    grpc.StatusCode.UNAVAILABLE: 503,
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One file of the page."""

    body: bytes
    content_type: str
    etag: str


def read_assets() -> Mapping[str, Asset]:
    """All files of the page by name."""
    found = {}
    for file in resources.files("rlm.console").joinpath("assets").iterdir():
        kind = file.name.rpartition(".")[2]
        if kind in _TYPES:
            body = file.read_bytes()
            found[file.name] = Asset(
                body=body, content_type=_TYPES[kind], etag=f'"{hashlib.sha256(body).hexdigest()}"'
            )
    return found


class ConsoleRoutes:
    """`routes` are for the HTTP server of a service."""

    def __init__(
        self, answers: ConsoleAnswers, access: ConsoleAccess, actions: ConsoleActions | None
    ) -> None:
        """`actions`: None = the console only reads."""
        self._answers = answers
        self._access = access
        self._actions = actions
        self._assets = read_assets()

    def routes(self) -> list[web.RouteDef]:
        acting = web.post(f"{PREFIX}/actions/{{name}}", self._action)
        return [
            *([] if self._actions is None else [acting]),
            web.get("/", _to_the_page),
            web.get(PREFIX, _to_the_page),
            web.get(f"{PREFIX}/", self._page),
            web.get(f"{PREFIX}/{{name}}", self._asset),
            web.get(f"{PREFIX}/data/{{name}}", self._data),
        ]

    async def _page(self, request: web.Request) -> web.Response:
        return self._sent(request, "index.html")

    async def _asset(self, request: web.Request) -> web.Response:
        return self._sent(request, request.match_info["name"])

    def _sent(self, request: web.Request, name: str) -> web.Response:
        asset = self._assets.get(name)
        if asset is None:
            return _json({"error": "there is no such file"}, status=404)
        headers = {**_HEADERS, "ETag": asset.etag, "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == asset.etag:
            return web.Response(status=304, headers=headers)
        headers["Content-Type"] = asset.content_type
        return web.Response(body=asset.body, headers=headers)

    async def _data(self, request: web.Request) -> web.Response:
        name, sent = request.match_info["name"], request.headers
        shown = sent.get("Authorization")
        try:
            self._access.check(shown, sent.get("Host", ""), sent.get("Sec-Fetch-Site"))
            if name not in self._answers.names:
                return _json({"error": "there is no such data"}, status=404)
            return _json(await self._answers.answer(name, request.query, self._caller(request)))
        except (CallRefused, RemoteStorageError) as error:
            return _refused(name, error)

    async def _action(self, request: web.Request) -> web.StreamResponse:
        """Lines of JSON while it runs; the last one is `{"end": true}`, or has `error`. What is
        refused at once is answered as by `_data`.
        """
        name, sent = request.match_info["name"], request.headers
        try:
            self._access.check_action(
                sent.get("Authorization"),
                sent.get("Host", ""),
                sent.get("Sec-Fetch-Site"),
                sent.get("Origin"),
            )
            if self._actions is None or name not in self._actions.names:
                return _json({"error": "there is no such action"}, status=404)
            fields = await _fields_of(request)
            lines = self._actions.run(name, fields, self._caller(request))
            async with aclosing(lines):
                return await _streamed(request, lines, await anext(lines, None))
        except (CallRefused, RemoteStorageError) as error:
            return _refused(name, error)

    def _caller(self, request: web.Request) -> LocalCaller:
        shown = request.headers.get("Authorization")
        return LocalCaller(
            principal=CALLER,
            shown=shown if self._access.api_asks else None,
            address=request.remote or "",
        )


async def _fields_of(request: web.Request) -> Fields:
    """Only JSON: that is what no form of another page can send. Invalid: it is none."""
    if request.content_type != "application/json":
        raise Invalid("the body of an action is JSON (Content-Type: application/json)")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await request.read()
    except TimeoutError as error:
        raise Invalid(f"the body of an action did not come in {BODY_SECONDS:g} s") from error
    try:
        return Fields(json.loads(body))
    except (ValueError, RecursionError) as error:
        raise Invalid("the body of an action is no JSON") from error


async def _streamed(
    request: web.Request, lines: AsyncIterator[Row], first: Row | None
) -> web.StreamResponse:
    """Whoever has gone, or takes no line in time, ends the action with the next one."""
    headers = {**_HEADERS, "Cache-Control": "no-store", "Content-Type": "application/x-ndjson"}
    response = web.StreamResponse(headers=headers)
    with contextlib.suppress(ConnectionError):
        await response.prepare(request)
        try:
            if first is not None:
                await _send(request, response.write(_line(first)))
            async for line in lines:
                await _send(request, response.write(_line(line)))
            await _send(request, response.write(_line({"end": True})))
        except (CallRefused, RemoteStorageError) as error:
            await _send(request, response.write(_line({"error": _status_and_text(error)[1]})))
        await _send(request, response.write_eof())
    return response


async def _send(request: web.Request, sending: Awaitable[None]) -> None:
    """ConnectionAbortedError: it was not taken in time, and the connection is at its end."""
    try:
        async with asyncio.timeout(LINE_SECONDS):
            await sending
    except TimeoutError as error:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionAbortedError("the client takes no lines") from error


def _line(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _refused(name: str, error: CallRefused | RemoteStorageError) -> web.Response:
    """An error is an object with `error` and, where a token is missing, `asks_token`."""
    status, text = _status_and_text(error)
    log.info("console_request_refused", name=name, status=status, why=text)
    asks = {"asks_token": True} if status == 401 else {}
    return _json({"error": text, **asks}, status=status)


def _status_and_text(error: CallRefused | RemoteStorageError) -> tuple[int, str]:
    if isinstance(error, CallRefused):
        return _STATUSES.get(error.code, 500), error.text
    code, text, _ = status_of_error(error)
    return _STATUSES.get(code, 500), text


async def _to_the_page(request: web.Request) -> web.StreamResponse:
    return web.Response(status=302, headers={**_HEADERS, "Location": f"{PREFIX}/"})


def _json(value: Mapping[str, object], *, status: int = 200) -> web.Response:
    headers = {**_HEADERS, "Cache-Control": "no-store", "Content-Type": "application/json"}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = json.dumps(value, separators=(",", ":")).encode()
    return web.Response(body=body, status=status, headers=headers)
