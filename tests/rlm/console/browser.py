"""A headless Chromium by the WebDriver protocol: Debian's chromium and chromium-driver."""

import asyncio
import base64
import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

_READY = re.compile(rb"started successfully on port (\d+)")
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_SCRIPT_LIMIT_MS = 60_000


class Browser:
    """One window."""

    def __init__(self, session: aiohttp.ClientSession, path: str) -> None:
        self._session = session
        self._path = path

    async def command(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        async with self._session.request(
            method, f"{self._path}{path}", json=None if method == "GET" else body or {}
        ) as answer:
            found = (await answer.json())["value"]
            assert answer.status == 200, found
            return found

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
        found = await self.command("POST", "/element", {"using": "css selector", "value": selector})
        await self.command("POST", f"/element/{found[_ELEMENT]}/value", {"text": text})

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


@contextlib.asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Skips where there is none."""
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or chromium is None:
        pytest.skip("there is no Chromium with its driver")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            driver,
            "--port=0",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=os.environ | {"TMPDIR": folder},  # Chromium leaves folders there
        )
        try:
            async with asyncio.timeout(240), aiohttp.ClientSession() as session:
                url = f"http://127.0.0.1:{await _port(process)}"
                async with _window(session, url, chromium) as window:
                    yield window
        finally:
            process.terminate()
            await process.wait()


@contextlib.asynccontextmanager
async def _window(
    session: aiohttp.ClientSession, url: str, chromium: str
) -> AsyncIterator[Browser]:
    options = {"binary": chromium, "args": ["--headless=new", "--no-sandbox", "--disable-gpu"]}
    wanted = {
        "goog:chromeOptions": options,
        "goog:loggingPrefs": {"browser": "ALL"},
        "timeouts": {"script": _SCRIPT_LIMIT_MS},
    }
    asked = {"capabilities": {"alwaysMatch": wanted}}
    async with session.post(f"{url}/session", json=asked) as answer:
        made = (await answer.json())["value"]
        assert answer.status == 200, made
    window = Browser(session, f"{url}/session/{made['sessionId']}")
    try:
        yield window
    finally:
        await window.command("DELETE", "")


async def _port(process: asyncio.subprocess.Process) -> int:
    assert process.stdout is not None
    async for line in process.stdout:
        if found := _READY.search(line):
            return int(found[1])
    raise AssertionError("chromedriver ended before it listened")
