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
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pytest

from kafka_protocol.apis import FETCH
from rlm.proxy.listening import listen
from tests.kept_results import keep_result
from tests.rlm.proxy.fakes import PLAIN, FakeBroker, asked, fetch_request
from tests.rlm.proxy.raw_client import RawClient
from tests.rlm.proxy.secured import PROXY_NAME, Secured, trusting
from tests.rlm.proxy.test_pass_through import raw_request
from tests.rlm.workers.test_h24_worker_process import broker_behind, end, pass_bytes, start
from tests.service_log import events_of

MOST_BYTES = 64 << 20
SLOWEST_MS = 5_000
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an attack has cost the proxy, and a good client that went on asking meanwhile."""

    kind: str
    count: int
    causes: dict[str, int]
    before_bytes: int
    most_bytes: int
    good_requests: int
    calm_ms: float
    median_ms: float
    slowest_ms: float
    """Of requests of the good client: without the attack, and during it."""

    @property
    def grown_bytes(self) -> int:
        return self.most_bytes - self.before_bytes

    def __str__(self) -> str:
        return (
            f"{self.count} x {self.kind}: {self.grown_bytes / 2**20:.1f} MiB more, "
            f"{self.grown_bytes / self.count / 1024:.1f} KiB each; {self.good_requests} good "
            f"requests, median {self.median_ms:.0f} ms, at most {self.slowest_ms:.0f} ms, without "
            f"the attack {self.calm_ms:.0f} ms"
        )

    def check(self) -> None:
        """All were cut for the cause of their kind, cost little and disturbed nobody."""
        assert self.causes == {KINDS[self.kind].cause: self.count}
        assert self.grown_bytes <= MOST_BYTES
        assert self.slowest_ms < SLOWEST_MS


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
async def test_h36_hostile_connections_are_cut_and_cost_little(tmp_path: Path, name: str) -> None:
    outcome = await attacked(tmp_path, name, 60)
    print(outcome)
    outcome.check()


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.usefixtures("many_files")
async def test_h36_a_thousand_hostile_connections_of_each_kind(tmp_path: Path) -> None:
    """The raw numbers are kept under bench/results/."""
    outcomes: list[Outcome] = []
    for number, name in enumerate(KINDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        outcomes.append(await attacked(folder, name, 1_000))
        print(outcomes[-1])
    keep_result("hostile", {"limits": LIMITS, "runs": [asdict(one) for one in outcomes]})
    for outcome in outcomes:
        outcome.check()


async def attacked(folder: Path, name: str, count: int) -> Outcome:
    """So many of one kind, until all were cut."""
    kind, secured = KINDS[name], Secured.of(folder)
    async with broker_behind() as broker:
        broker.raw_answers[998] = b""
        async with proxy(folder, broker, secured, kind) as (listening, pid, causes):
            context = trusting(secured.authority)
            tls: dict[str, Any] = {}
            if kind.proxy_has_tls:
                tls = {"ssl": context, "server_hostname": PROXY_NAME}
            good = RawClient(*await asyncio.open_connection(*listening.getsockname(), **tls))
            await pass_bytes(good)
            calm_ms = [await request_ms(good) for _ in range(20)]
            process = psutil.Process(pid)
            before = process.memory_info().rss
            address = listening.getsockname()
            attack = Attack(kind, address, context if kind.client_has_tls else None)
            try:
                coming = asyncio.ensure_future(asyncio.to_thread(attack.come, count))
                most, took_ms = await watched(
                    good, process, lambda: causes()[kind.cause] >= count, attack, coming
                )
            finally:
                attack.close()
                good.writer.close()
            return Outcome(
                kind=name,
                count=count,
                causes=dict(causes()),
                before_bytes=before,
                most_bytes=most,
                good_requests=len(took_ms),
                calm_ms=round(median(calm_ms), 1),
                median_ms=round(median(took_ms), 1),
                slowest_ms=round(max(took_ms), 1),
            )


async def request_ms(good: RawClient) -> float:
    """How long a request takes."""
    began_s = time.monotonic()
    await good.call(FETCH, 12, fetch_request(12, asked(150), topic=PLAIN))
    return (time.monotonic() - began_s) * 1_000


async def watched(
    good: RawClient,
    process: psutil.Process,
    is_over: Callable[[], bool],
    attack: Attack,
    coming: "asyncio.Future[None]",
) -> tuple[int, list[float]]:
    """The most memory, and how many ms each request of a good client took meanwhile."""
    most, took_ms = 0, list[float]()
    async with asyncio.timeout(CUT_S + 60):
        while not is_over():
            took_ms.append(await request_ms(good))
            most = max(most, process.memory_info().rss)
            await asyncio.to_thread(attack.go_on)
            await asyncio.sleep(0.1)
        await coming
    return most, took_ms
