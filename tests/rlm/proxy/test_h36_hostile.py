"""H36: many hostile connections of each kind cost little, are cut for a cause that has a name, and
disturb nobody else. The proxy is a process of its own, so that its memory can be measured.
"""

import asyncio
import contextlib
import resource
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from kafka_protocol.apis import FETCH
from rlm.proxy.listening import listen
from tests.rlm.proxy.fakes import PLAIN, FakeBroker, asked, fetch_request
from tests.rlm.proxy.raw_client import RawClient
from tests.rlm.proxy.secured import PROXY_NAME, Secured, trusting
from tests.rlm.proxy.test_pass_through import raw_request
from tests.rlm.workers.test_h24_worker_process import broker_behind, end, pass_bytes, start
from tests.service_log import events_of

MOST_BYTES = 64 << 20
CUT_S = 120
LIMITS = {
    "handshake_timeout_ms": 5_000,
    "first_request_timeout_ms": 5_000,
    "stalled_request_timeout_ms": 5_000,
    "max_idle_ms": 12_000,
}
REQUEST = raw_request(999, 1, bytes(10_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a hostile client sends at first and then now and then, and why it is cut."""

    first: bytes
    cause: str
    then: bytes = b""
    proxy_has_tls: bool = False
    client_has_tls: bool = False


KINDS = {
    "silent": Kind(first=b"", cause="no_request"),
    "length alone": Kind(first=b"\0\0\x10\0", cause="no_request"),
    "request byte by byte": Kind(first=REQUEST[:20], cause="slow_request", then=b"\0"),
    "half a request": Kind(first=REQUEST[:5_000], cause="stalled_request"),
    "gone without a word": Kind(first=raw_request(998, 1, b""), cause="idle"),
    "TLS on a plain port": Kind(first=b"\x16\x03\x01\x02\0\x01\0\x01\xfc", cause="tls_on_plain"),
    "plain on a TLS port": Kind(first=REQUEST, cause="plain_on_tls", proxy_has_tls=True),
    "silent on a TLS port": Kind(first=b"", cause="tls_timeout", proxy_has_tls=True),
    "half a handshake": Kind(
        first=b"\x16\x03\x01\x02\0\x01", cause="tls_timeout", then=b"\0", proxy_has_tls=True
    ),
    "silent under TLS": Kind(
        first=b"", cause="no_request", proxy_has_tls=True, client_has_tls=True
    ),
    "request byte by byte under TLS": Kind(
        first=REQUEST[:20],
        cause="slow_request",
        then=b"\0",
        proxy_has_tls=True,
        client_has_tls=True,
    ),
}


@dataclass
class Attack:
    """So many clients of one kind, in threads."""

    kind: Kind
    address: tuple[str, int]
    context: ssl.SSLContext | None
    sockets: list[socket.socket] = field(default_factory=list)

    def come(self, count: int) -> None:
        for _ in range(count):
            one = socket.create_connection(self.address, 20)
            with contextlib.suppress(OSError):
                if self.context is not None:
                    one = self.context.wrap_socket(one, server_hostname=PROXY_NAME)
                if self.kind.first:
                    one.sendall(self.kind.first)
            self.sockets.append(one)

    def go_on(self) -> None:
        """Also while others come, who may take their time."""
        for one in tuple(self.sockets):
            if self.kind.then:
                with contextlib.suppress(OSError):
                    one.sendall(self.kind.then)

    def close(self) -> None:
        for one in self.sockets:
            one.close()


class Causes:
    """Why the proxy ended clients, by its log."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def __call__(self) -> Counter[str]:
        return Counter(row["cause"] for row in events_of(self._log) if "cause" in row)


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8_192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.asynccontextmanager
async def proxy(
    folder: Path, broker: FakeBroker, secured: Secured, kind: Kind
) -> AsyncIterator[tuple[socket.socket, int, Causes]]:
    """A worker, its process id, and why it ended clients."""
    tls = replace(secured.tls, upstream=None)
    if not kind.proxy_has_tls:
        tls = replace(tls, listener=None)
    log = folder / "log"
    with listen("127.0.0.1", 0) as (listening,), log.open("wb") as file:
        process = await start(
            0, listening, broker, folder, tls=tls, stderr=file, log_level="info", **LIMITS
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(120):
                assert await process.stdout.readline() == b"ready\n"
            yield listening, process.pid, Causes(log)
        finally:
            await end(process)


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("count", [60, pytest.param(1_000, marks=pytest.mark.long)])
async def test_h36_hostile_connections_are_cut_and_cost_little(
    tmp_path: Path, name: str, count: int
) -> None:
    kind, secured = KINDS[name], Secured.of(tmp_path)
    async with broker_behind() as broker:
        broker.raw_answers[998] = b""
        async with proxy(tmp_path, broker, secured, kind) as (listening, pid, causes):
            context = trusting(secured.authority)
            tls: dict[str, Any] = {}
            if kind.proxy_has_tls:
                tls = {"ssl": context, "server_hostname": PROXY_NAME}
            good = RawClient(*await asyncio.open_connection(*listening.getsockname(), **tls))
            for _ in range(20):
                await pass_bytes(good)
            process = psutil.Process(pid)
            before = process.memory_info().rss
            address = listening.getsockname()
            attack = Attack(kind, address, context if kind.client_has_tls else None)
            try:
                coming = asyncio.ensure_future(asyncio.to_thread(attack.come, count))
                most, slowest = await watched(
                    good, process, lambda: causes()[kind.cause] >= count, attack, coming
                )
            finally:
                attack.close()
                good.writer.close()
            found = causes()
            grown = most - before
            print(
                f"{count} x {name}: {grown / 2**20:.1f} MiB more, "
                f"{grown / count / 1024:.1f} KiB each, slowest good request {slowest:.2f} s"
            )
            assert found == Counter({kind.cause: count})
            assert grown <= MOST_BYTES
            assert slowest < 5


async def watched(
    good: RawClient,
    process: psutil.Process,
    is_over: Callable[[], bool],
    attack: Attack,
    coming: "asyncio.Future[None]",
) -> tuple[int, float]:
    """The most memory, and how long the slowest request of a good client took meanwhile."""
    most, slowest = 0, 0.0
    async with asyncio.timeout(CUT_S + 60):
        while not is_over():
            began = time.monotonic()
            request = fetch_request(12, asked(150), topic=PLAIN)
            await good.call(FETCH, 12, request)
            slowest = max(slowest, time.monotonic() - began)
            most = max(most, process.memory_info().rss)
            await asyncio.to_thread(attack.go_on)
            await asyncio.sleep(0.1)
        await coming
    return most, slowest
