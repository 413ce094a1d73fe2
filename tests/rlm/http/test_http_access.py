"""HTTP with TLS and a token: who sees metrics and problems, and renewed certificates."""

import contextlib
import shutil
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from rlm.plans.problems import Problem, ProblemKind
from rlm.proxy.tls_files import ListenerTls
from rlm.service.listeners import HealthState, HttpServer
from rsm_plugins.renewed import Renewed
from tests.builders.certificates import Authority

HOST = "127.0.0.1"
PROBLEM = Problem(kind=ProblemKind.OTHER, subject="topic secret", text="x", since_ms=1)


@contextlib.asynccontextmanager
async def serving(
    tls: ListenerTls | None = None, tokens: tuple[str, ...] = ()
) -> AsyncIterator[int]:
    server = HttpServer(
        host=HOST,
        port=0,
        health=lambda: HealthState(alive=True, ready=False, problems=(PROBLEM,)),
        metrics=lambda: b"rlm_up 1\n",
        tls=None if tls is None else Renewed(tls.files, tls.context),
        tokens=lambda: tokens,
    )
    port = await server.start()
    try:
        yield port
    finally:
        await server.stop()


async def get(
    url: str, token: str | None = None, trusted: Authority | None = None
) -> tuple[int, str]:
    context = ssl.create_default_context(cafile=str(trusted.ca_file)) if trusted else None
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(url, headers=headers, ssl=context or True) as answer,
    ):
        return answer.status, await answer.text()


async def test_metrics_and_problems_are_for_those_who_show_the_token() -> None:
    async with serving(tokens=("new", "old")) as port:
        url = f"http://{HOST}:{port}"
        for token in (None, "wrong", ""):
            status, text = await get(f"{url}/metrics", token)
            assert status == 401 and "http.token.file" in text and "rlm_up" not in text
            for path, expected in (("healthz", 200), ("readyz", 503)):
                status, text = await get(f"{url}/{path}", token)
                assert status == expected and "secret" not in text
        for token in ("new", "old"):
            assert await get(f"{url}/metrics", token) == (200, "rlm_up 1\n")
            assert "topic secret" in (await get(f"{url}/healthz", token))[1]


async def test_without_a_token_file_nothing_is_asked_for() -> None:
    async with serving() as port:
        assert (await get(f"http://{HOST}:{port}/metrics"))[0] == 200
        assert "topic secret" in (await get(f"http://{HOST}:{port}/readyz"))[1]


async def test_tls_and_a_certificate_that_is_renewed_without_a_restart(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    shown = authority.issue("service", HOST)
    tls = ListenerTls(cert_file=str(shown.cert_file), key_file=str(shown.key_file))
    async with serving(tls, ("t",)) as port:
        url = f"https://{HOST}:{port}/metrics"
        assert (await get(url, "t", authority))[0] == 200
        with pytest.raises(aiohttp.ClientError):
            await get(url, "t", other)
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await get(url.replace("https", "http"), "t")
        shown.cert_file.write_text("half a renewal")
        assert (await get(url, "t", authority))[0] == 200
        new = other.issue("again", HOST)
        shutil.copyfile(new.cert_file, shown.cert_file)
        shutil.copyfile(new.key_file, shown.key_file)
        assert (await get(url, "t", other))[0] == 200
        with pytest.raises(aiohttp.ClientError):
            await get(url, "t", authority)
