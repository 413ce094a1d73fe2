"""The console by HTTP: its page, which everybody gets, and its data, for those who may read it.

The page is plain HTML, CSS and ES modules of this package, without a build step and without
anything from elsewhere, and the Content-Security-Policy allows nothing else. It holds a token in
memory alone. This module must not know what the data says.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final

import grpc
import structlog
from aiohttp import web

from kip405.errors import RemoteStorageError
from rlm.api.local_calls import CallRefused, LocalCaller
from rlm.console.access import ConsoleAccess
from rlm.console.answers import ConsoleAnswers
from rsm_plugins.contract.status import status_of_error

log = structlog.get_logger(__name__)

PREFIX: Final = "/console"
CALLER: Final = "console"
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

    def __init__(self, answers: ConsoleAnswers, access: ConsoleAccess) -> None:
        self._answers = answers
        self._access = access
        self._assets = read_assets()

    def routes(self) -> list[web.RouteDef]:
        return [
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
        """An error is an object with `error` and, where a token is missing, `asks_token`."""
        name, sent = request.match_info["name"], request.headers
        shown = sent.get("Authorization")
        try:
            self._access.check(shown, sent.get("Host", ""), sent.get("Sec-Fetch-Site"))
            if name not in self._answers.names:
                return _json({"error": "there is no such data"}, status=404)
            caller = LocalCaller(
                principal=CALLER,
                shown=shown if self._access.api_asks else None,
                address=request.remote or "",
            )
            return _json(await self._answers.answer(name, request.query, caller))
        except CallRefused as refusal:
            code, text = refusal.code, refusal.text
        except RemoteStorageError as error:
            code, text, _ = status_of_error(error)
        status = _STATUSES.get(code, 500)
        log.info("console_request_refused", name=name, status=status, why=text)
        asks = {"asks_token": True} if status == 401 else {}
        return _json({"error": text, **asks}, status=status)


async def _to_the_page(request: web.Request) -> web.StreamResponse:
    return web.Response(status=302, headers={**_HEADERS, "Location": f"{PREFIX}/"})


def _json(value: Mapping[str, object], *, status: int = 200) -> web.Response:
    headers = {**_HEADERS, "Cache-Control": "no-store", "Content-Type": "application/json"}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = json.dumps(value, separators=(",", ":")).encode()
    return web.Response(body=body, status=status, headers=headers)
