"""H36: a client that makes no progress is ended, unless the proxy itself holds it up."""

import asyncio
from dataclasses import dataclass, field

import pytest

from rlm.clock import SystemClock
from rlm.proxy.limits import ClientDeadlines, DeadlineSettings
from tests.builders.clock import ManualClock
from tests.rlm.proxy.fakes import world
from tests.rlm.proxy.test_h36_memory import fetch_head, gone, opaque_request
from tests.waiting import succeeds_once, until


@dataclass
class Requests:
    has_request: bool = False
    is_within_frame: bool = False


@dataclass(eq=False)
class Client:
    """A connection as the deadlines see it; `ended` is its cause."""

    requests: Requests = field(default_factory=Requests)
    peer: str = "a client"
    received_bytes: int = 0
    taken_bytes: int = 0
    is_idle: bool = True
    is_read: bool = True
    ended: str | None = None

    def abort(self, cause: str) -> None:
        self.ended = cause


class Watched:
    """Deadlines of 30, 60 and 600 s over one client."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.client = Client()
        self.cause: str | None = None
        self.asked_ms: list[int] = []
        self.deadlines = ClientDeadlines(
            clients=lambda: [] if self.client.ended else [self.client],
            stayed=self.stayed,
            clock=self.clock,
            settings=DeadlineSettings(
                first_request_timeout_ms=30_000,
                stalled_request_timeout_ms=60_000,
                max_idle_ms=600_000,
                stalled_request_min_bytes=1_000,
            ),
        )

    def stayed(self, client: Client) -> str | None:
        self.asked_ms.append(self.clock.monotonic_ms())
        return self.cause

    def after(self, duration_ms: int) -> str | None:
        """The cause of its end, so much later."""
        self.clock.advance(duration_ms)
        self.deadlines.check()
        return self.client.ended


@pytest.fixture
def watched() -> Watched:
    made = Watched()
    made.deadlines.check()
    return made


def test_h36_a_client_without_a_request_is_ended_even_if_it_sends_a_byte_now_and_then(
    watched: Watched,
) -> None:
    for _ in range(29):
        watched.client.received_bytes += 1
        watched.client.requests.is_within_frame = True
        assert watched.after(1_000) is None
    assert watched.after(1_000) == "no_request"


def test_h36_who_stays_longer_than_a_first_request_may_take_is_looked_at(watched: Watched) -> None:
    watched.client.requests.has_request = True
    began_ms = watched.clock.monotonic_ms()
    for _ in range(31):
        assert watched.after(1_000) is None
    assert watched.asked_ms == [began_ms + 30_000, began_ms + 31_000]
    watched.cause = "too many"
    assert watched.after(1_000) == "too many"


def test_h36_a_request_that_stops_in_the_middle_is_ended(watched: Watched) -> None:
    watched.client.requests = Requests(has_request=True, is_within_frame=True)
    for _ in range(5):
        watched.client.received_bytes += 1_000
        assert watched.after(59_999) is None
    assert watched.after(59_999) is None
    assert watched.after(1) == "stalled_request"


def test_h36_a_request_that_comes_byte_by_byte_is_ended(watched: Watched) -> None:
    watched.client.requests = Requests(has_request=True, is_within_frame=True)
    for _ in range(59):
        watched.client.received_bytes += 1
        assert watched.after(1_000) is None
    watched.client.received_bytes += 1
    assert watched.after(1_000) == "slow_request"


def test_h36_small_requests_that_come_slowly_are_not_one_slow_request(watched: Watched) -> None:
    for second in range(600):
        is_within = second % 7 > 0
        watched.client.requests = Requests(has_request=True, is_within_frame=is_within)
        watched.client.received_bytes += 10
        assert watched.after(1_000) is None


def test_h36_who_is_not_read_is_not_to_blame(watched: Watched) -> None:
    watched.client.requests = Requests(has_request=True, is_within_frame=True)
    watched.client.is_read = False
    assert watched.after(3_600_000) is None
    watched.client.is_read = True
    assert watched.after(59_999) is None
    assert watched.after(1) == "stalled_request"


def test_h36_an_idle_client_is_ended_and_one_that_waits_for_an_answer_is_not(
    watched: Watched,
) -> None:
    watched.client.requests = Requests(has_request=True)
    watched.client.is_idle = False
    assert watched.after(3_600_000) is None
    watched.client.taken_bytes += 100
    watched.client.is_idle = True
    assert watched.after(1) is None
    assert watched.after(599_999) is None
    assert watched.after(1) == "idle"


class HeldClock(SystemClock):
    """Nothing happens after a wait before the test lets it."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()

    async def sleep_ms(self, duration_ms: float) -> None:
        await self.may_go_on.wait()
        await super().sleep_ms(duration_ms)


async def test_h36_the_proxy_ends_them() -> None:
    async with world(first_request_timeout_ms=300, stalled_request_timeout_ms=300) as w:
        silent, begun = await w.connect(), await w.connect()
        begun.writer.write(fetch_head(1_000))
        assert await gone(silent)
        assert await gone(begun)
    clock, request = HeldClock(), opaque_request()
    async with world(
        clock=clock, first_request_timeout_ms=60_000, stalled_request_timeout_ms=300
    ) as w:
        stopped = await w.connect()
        stopped.writer.write(request[:-1])
        # A client that is seen before its bytes has sent them since.
        await until(lambda: len(request) - 1 in [one.received_bytes for one in w.proxy.connections])
        clock.may_go_on.set()
        assert await gone(stopped)
    assert w.metrics.causes == ["stalled_request"]


async def test_h36_the_proxy_ends_who_sends_byte_by_byte() -> None:
    async def attempt() -> None:
        async with world(stalled_request_timeout_ms=2_000) as w:
            slow = await w.connect()
            request = opaque_request()
            for at in range(len(request) - 1):
                slow.writer.write(request[at : at + 1])
                await asyncio.sleep(0.05)
                if w.metrics.causes:
                    break
            assert await gone(slow)
        assert w.metrics.causes == ["slow_request"]

    await succeeds_once(attempt)
