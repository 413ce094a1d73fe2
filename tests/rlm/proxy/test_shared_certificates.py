"""Whose connections are counted: those of the user of SASL, or of the certificate without SASL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kafka_protocol.apis import API_VERSIONS
from tests.rlm.proxy.border import ONE_PROCESS
from tests.rlm.proxy.fakes import World, world
from tests.rlm.proxy.secured import Secured, secure, trusting
from tests.rlm.proxy.test_pass_through import ended
from tests.rlm.proxy.test_sasl import SaslBroker, asks, log_in, principals
from tests.waiting import succeeds_once, until

pytestmark = pytest.mark.parametrize("border", [ONE_PROCESS], indirect=True)


@asynccontextmanager
async def one_certificate(
    folder: Path, sasl: SaslBroker, most: int, **settings: Any
) -> AsyncIterator[World]:
    """Shown by all clients, to a proxy whose clients are not known by it to the broker."""
    secured = Secured.of(folder)
    secured.listener(client_auth="required", client_ca_file=str(secured.authority.ca_file))
    secured.client = trusting(secured.authority, secured.authority.issue("fleet"))
    with secure(secured):
        broker = sasl.as_broker()
        broker.script[API_VERSIONS.key] = lambda *_: {"api_keys": []}
        async with world(broker=broker, max_connections_per_principal=most, **settings) as w:
            yield w


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER", "GSSAPI"])
async def test_users_that_share_a_certificate_have_connections_of_their_own(
    tmp_path: Path, mechanism: str
) -> None:
    async with one_certificate(tmp_path, SaslBroker(), 1) as w:
        clients = [await w.connect() for _ in range(2)]
        for client, user in zip(clients, ("alice", "bob"), strict=True):
            assert [one["error_code"] for one in await log_in(client, user, mechanism)] == [0]
            assert await asks(client)
        assert all([await asks(client) for client in clients])
        assert not w.metrics.causes
        names = ["CN=fleet"] * 2 if mechanism == "GSSAPI" else ["alice", "bob"]
        assert principals(w) == names


async def test_at_a_listener_without_sasl_the_subject_has_so_many_connections(
    tmp_path: Path,
) -> None:
    async with one_certificate(tmp_path, SaslBroker(has_sasl=False), 1) as w:
        first, second = [await w.connect() for _ in range(2)]
        assert await asks(first)
        assert await asks(second)  # by this answer it is known that there is no SASL
        assert await ended(second)
        assert await asks(first)
        await until(lambda: w.metrics.causes == ["principal_connections"])


async def test_who_only_asks_what_anybody_may_ask_counts_by_its_certificate_after_a_while(
    tmp_path: Path,
) -> None:
    """Users of SASL have logged in meanwhile, each with a name of its own."""

    async def attempt() -> None:
        async with one_certificate(tmp_path, SaslBroker(), 1, first_request_timeout_ms=1_000) as w:
            users = [await w.connect() for _ in range(2)]
            for client, user in zip(users, ("alice", "bob"), strict=True):
                await log_in(client, user)
            others = [await w.connect() for _ in range(3)]
            for client in others:
                await client.call(API_VERSIONS, 3, {})
            assert principals(w) == ["CN=fleet"] * 3 + ["alice", "bob"]
            await until(lambda: w.metrics.causes == ["principal_connections"] * 2)
            assert principals(w) == ["CN=fleet", "alice", "bob"]
            assert all([await asks(client) for client in users])

    await succeeds_once(attempt)
