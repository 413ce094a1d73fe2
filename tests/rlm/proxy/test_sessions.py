"""Fetches that the proxy holds and repeats end with the session of their connection (KIP-368)."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafka_protocol.apis import FETCH, SASL_AUTHENTICATE
from kafka_protocol.frames import parse_request_header
from tests.rlm.proxy.border import ONE_PROCESS
from tests.rlm.proxy.fakes import TOPIC, FakeBroker, Value, World, asked, fetch_request, world
from tests.rlm.proxy.raw_client import RawClient
from tests.rlm.proxy.test_client_login import Tokens, site
from tests.rlm.proxy.test_sasl import SaslBroker, log_in
from tests.waiting import succeeds_once

SESSION_MS = 5_000
MAX_WAIT_MS = 30_000


@dataclass
class EndingBroker(FakeBroker):
    """Ends a connection at the first request after its session."""

    ends: dict[object, float] = field(default_factory=dict)
    cut: int = 0

    async def answer(self, frame: bytes) -> bytes | None:
        connection, now = asyncio.current_task(), asyncio.get_running_loop().time()
        if parse_request_header(frame).api_key == SASL_AUTHENTICATE.key:
            self.ends[connection] = now + SESSION_MS / 1_000
        elif parse_request_header(frame).api_key == FETCH.key and now > self.ends[connection]:
            self.cut += 1
            raise ConnectionError
        return await super().answer(frame)


def held() -> Value:
    """One partition whose records do not come, and one that has no new ones."""
    partitions = asked(40, 0), asked(200, 1)
    return fetch_request(12, *partitions, max_wait_ms=MAX_WAIT_MS)


async def answered_in_time(w: World, client: RawClient, least_s: float = 0.3) -> None:
    loop = asyncio.get_running_loop()
    w.tier.gate.clear()
    began = loop.time()
    answer = await client.call(FETCH, 12, held())
    assert least_s < loop.time() - began < SESSION_MS / 1_000
    assert [row["error_code"] for row in answer["responses"][0]["partitions"]] == [0, 0]
    asked_of_broker = len(w.broker.requests(FETCH))
    assert asked_of_broker > 1  # it was held, in slices
    w.tier.gate.set()


@pytest.mark.usefixtures("short_first_moment")
async def test_a_fetch_that_is_held_is_answered_before_the_clients_session_ends() -> None:
    async def attempt() -> None:
        sasl = SaslBroker(session_ms=SESSION_MS)
        broker = EndingBroker(script=sasl.as_broker().script)
        async with world(broker=broker) as w:
            client = await w.connect()
            for _ in range(2):  # the client logs in again on the open connection
                assert [one["error_code"] for one in await log_in(client, "alice")] == [0]
                await answered_in_time(w, client)
            assert broker.cut == 0

    await succeeds_once(attempt)


@pytest.mark.parametrize("border", [ONE_PROCESS], indirect=True)
async def test_a_fetch_that_is_held_is_answered_before_the_proxy_logs_in_again(
    tmp_path: Path,
) -> None:
    async def attempt() -> None:
        async with site(tmp_path, Tokens(), "one") as s:
            s.broker.session_ms = SESSION_MS
            ending = EndingBroker(script=s.w.broker.script)
            s.w.broker.answer = ending.answer  # type: ignore[method-assign]  # of one test
            s.w.broker.seen = ending.seen
            client = await s.w.connect()
            await answered_in_time(s.w, client)
            while len(s.broker.logins) < 2:  # what comes just before it is due is not held long
                await answered_in_time(s.w, client, least_s=0)
            assert ending.cut == 0
            assert s.broker.logins == ["one", "one"]

    await succeeds_once(attempt)


async def test_a_session_without_an_end_bounds_nothing() -> None:
    sasl = SaslBroker(session_ms=0)
    async with world(broker=sasl.as_broker()) as w:
        client = await w.connect()
        await log_in(client, "alice")
        loop = asyncio.get_running_loop()
        began = loop.time()
        w.broker.logs.clear()
        await client.call(FETCH, 12, fetch_request(12, asked(200, 1), max_wait_ms=300))
        assert loop.time() - began >= 0.3
        assert (TOPIC, 1) in w.broker.logs
