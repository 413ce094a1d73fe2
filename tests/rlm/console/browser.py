"""A headless Chromium by the WebDriver protocol: Debian's chromium and chromium-driver."""

import asyncio
import base64
import contextlib
import os
import re
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest

from rlm_sandbox.ports import PortReservation
from tests.waiting import until

_READY = "was started successfully"
_PORT_IS_TAKEN = re.compile(r"IPv[46] port not available")
_NOT_CREATED = "session not created"
STARTS_MAX = 3
_START_LIMIT_S = 120
_END_LIMIT_S = 60
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_SCRIPT_LIMIT_MS = 200_000
"""Less than the limit of a test, so that the condition is named that did not come."""
_ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
"""/dev/shm of a container may be too small for a few browsers: their pages crash then."""
_SHOWN_MAX = 4_000
Result = TypeVar("Result")


class Browser:
    """One window."""

    def __init__(self, session: aiohttp.ClientSession, path: str, said: Callable[[], str]) -> None:
        """`said`: the output of its driver."""
        self._session = session
        self._path = path
        self._said = said

    async def command(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        sent = None if method == "GET" else body or {}
        try:
            async with self._session.request(method, f"{self._path}{path}", json=sent) as answer:
                found = (await answer.json())["value"]
                assert answer.status == 200, found
                return found
        except (AssertionError, aiohttp.ClientError) as error:
            error.add_note(self._said())
            raise

    async def open(self, url: str) -> None:
        await self.command("POST", "/url", {"url": url})

    async def run(self, script: str, *args: Any) -> Any:
        """The value of a function's body."""
        return await self.command("POST", "/execute/sync", {"script": script, "args": args})

    async def until(self, condition: str) -> Any:
        """The value of an expression once it is true, by the page's own changes."""
        script = f"""
            const done = arguments[arguments.length - 1];
            const check = () => {{
              const found = {condition};
              if (found) done(found);
              return found;
            }};
            if (!check()) {{
              const seen = new MutationObserver(() => check() && seen.disconnect());
              const all = {{subtree: true, childList: true, attributes: true, characterData: true}};
              seen.observe(document, all);
            }}"""
        return await self.command("POST", "/execute/async", {"script": script, "args": []})

    async def keys(self, selector: str, text: str) -> None:
        """The page draws its parts anew, so an element may have gone since it was found."""
        await _of_a_few(lambda: self._keys(selector, text), _Stale, most=100)

    async def _keys(self, selector: str, text: str) -> None:
        found = await self.command("POST", "/element", {"using": "css selector", "value": selector})
        try:
            await self.command("POST", f"/element/{found[_ELEMENT]}/value", {"text": text})
        except AssertionError as error:
            if "stale element reference" in str(error):
                raise _Stale(selector) from error  # nothing was typed
            raise

    async def cdp(self, name: str, **params: Any) -> Any:
        return await self.command("POST", "/goog/cdp/execute", {"cmd": name, "params": params})

    async def appearance(self, *, width: int, height: int, scheme: str) -> None:
        """The size of the window, and light or dark."""
        await self.cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.cdp("Emulation.setEmulatedMedia", features=features)

    async def picture(self, **params: Any) -> bytes:
        """What the window shows, as Page.captureScreenshot makes it."""
        return base64.b64decode((await self.cdp("Page.captureScreenshot", **params))["data"])


class _Stale(AssertionError):
    """An element is not in the page any more."""


class PortTaken(AssertionError):
    """Somebody else has the port of a chromedriver."""


class NotCreated(AssertionError):
    """Chromium crashed at its start, or was late, as it may be on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A chromedriver that listens."""

    pid: int
    url: str
    output: Path

    def said(self) -> str:
        """The end of its output, and of Chromium's."""
        return _text(self.output)[-_SHOWN_MAX:]


def installed(chromium: str = "chromium") -> tuple[str, str]:
    """The paths of chromedriver and Chromium; skips where there is none."""
    program, binary = shutil.which("chromedriver"), shutil.which(chromium)
    if program is None or binary is None:
        pytest.skip("there is no Chromium with its driver")
    return program, binary


@contextlib.asynccontextmanager
async def browser(chromium: str = "chromium") -> AsyncIterator[Browser]:
    """Skips where there is none."""
    program, binary = installed(chromium)
    with (
        PortReservation() as ports,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
    ):
        async with (
            driver(program, Path(folder), lambda: _lent(ports)) as one,
            aiohttp.ClientSession() as session,
            _window(session, one, binary) as window,
        ):
            yield window


def _lent(ports: PortReservation) -> int:
    port = ports.take()
    ports.lend(port)
    return port


@contextlib.asynccontextmanager
async def driver(program: str, folder: Path, next_port: Callable[[], int]) -> AsyncIterator[Driver]:
    """With `--port=0` it takes a free port of IPv6 and then the same one of IPv4, which a server
    may have that knows only IPv4, and ends. So it is given a port that is reserved. Reservations
    are of IPv4, so the other way round is possible yet: then it is started again with another.
    """
    async with contextlib.AsyncExitStack() as stack:
        yield await _of_a_few(
            lambda: stack.enter_async_context(_listening(program, folder, next_port())), PortTaken
        )


async def _of_a_few(
    attempt: Callable[[], Awaitable[Result]], failure: type[Exception], most: int = STARTS_MAX
) -> Result:
    for _ in range(most - 1):
        with contextlib.suppress(failure):
            return await attempt()
    return await attempt()


@contextlib.asynccontextmanager
async def _listening(program: str, folder: Path, port: int) -> AsyncIterator[Driver]:
    """Nothing that it has started is left behind, however it ends."""
    output = folder / f"chromedriver-{port}.log"
    with output.open("wb") as written:
        process = await asyncio.create_subprocess_exec(
            program,
            f"--port={port}",
            "--enable-chrome-logs",  # why Chromium ended is in them only
            stdout=written,
            stderr=written,
            env=os.environ | {"TMPDIR": str(folder)},  # Chromium leaves folders there
            start_new_session=True,  # Chromium is in its process group
        )
    try:
        await until(
            lambda: process.returncode is not None or _READY in _text(output), _START_LIMIT_S
        )
        if process.returncode is not None:
            kind = PortTaken if _PORT_IS_TAKEN.search(_text(output)) else AssertionError
            raise kind(f"chromedriver ended with {process.returncode}: {_text(output)}")
        yield Driver(pid=process.pid, url=f"http://127.0.0.1:{port}", output=output)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _text(output: Path) -> str:
    return output.read_text(encoding="utf-8", errors="replace")


@contextlib.asynccontextmanager
async def _window(
    session: aiohttp.ClientSession, one: Driver, binary: str
) -> AsyncIterator[Browser]:
    path = f"{one.url}/session/{await new_session(session, one, binary)}"
    window = Browser(session, path, one.said)
    try:
        yield window
    finally:
        # A browser that is gone has no session to end; what is left of it is killed.
        with contextlib.suppress(AssertionError, aiohttp.ClientError, TimeoutError):
            async with asyncio.timeout(_END_LIMIT_S):
                await window.command("DELETE", "")


async def new_session(session: aiohttp.ClientSession, one: Driver, binary: str) -> str:
    """The id of the session of a new Chromium, which is started again where that was no fault of
    its options.
    """
    wanted = {
        "goog:chromeOptions": {"binary": binary, "args": list(_ARGUMENTS)},
        "goog:loggingPrefs": {"browser": "ALL"},
        "timeouts": {"script": _SCRIPT_LIMIT_MS},
    }

    async def created() -> str:
        asked = {"capabilities": {"alwaysMatch": wanted}}
        async with session.post(f"{one.url}/session", json=asked) as answer:
            made = (await answer.json())["value"]
            if answer.status == 200:
                return str(made["sessionId"])
        kind = NotCreated if made["error"] == _NOT_CREATED else AssertionError
        raise kind(f"{made['message']}\n{one.said()}")

    return await _of_a_few(created, NotCreated)
