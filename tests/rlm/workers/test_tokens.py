"""Tokens of a worker's clients over the socket of the core (H24)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kip405.settings import Secret
from rlm.clock import SystemClock
from rlm.proxy.client_tokens import ClientToken, client_token
from rlm.proxy.session import SessionError
from rlm.workers.remote_tokens import RemoteTokens
from tests.rlm.workers.core_site import Site, site
from tests.waiting import until

SUBJECT = "CN=alice,O=x"
LIFETIME_MS = 3_600_000


@dataclass
class CoreLease:
    tokens: "CoreTokens"
    subject: str

    async def current(self, refused: str | None = None) -> ClientToken:
        self.tokens.asked.append((self.subject, refused))
        if self.tokens.refusal is not None:
            raise self.tokens.refusal
        return client_token(
            mechanism="SCRAM-SHA-512",
            principal="alice",
            token_id=f"id-{len(self.tokens.asked)}",
            hmac=Secret("aG1hYw=="),
            lifetime_ms=LIFETIME_MS,
            made_at_ms=SystemClock().monotonic_ms() - 600_000,
        )

    def close(self) -> None:
        self.tokens.open.remove(self.subject)


@dataclass
class CoreTokens:
    refusal: SessionError | None = None
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def lease(self, subject: str) -> CoreLease:
        self.open.append(subject)
        return CoreLease(self, subject)


@asynccontextmanager
async def tokens_of(folder: Path) -> AsyncIterator[tuple[Site, CoreTokens, RemoteTokens]]:
    made = CoreTokens()
    async with site(folder / "core.sock", tokens=made) as s:
        core = s.worker
        remote = RemoteTokens(core.token, core.token_left, SystemClock(), mechanism="SCRAM-SHA-256")
        yield s, made, remote


async def test_a_worker_asks_once_for_all_connections_and_says_when_the_last_has_left(
    tmp_path: Path,
) -> None:
    async with tokens_of(tmp_path) as (_, core, remote):
        leases = [remote.lease(SUBJECT) for _ in range(3)]
        found = [await lease.current() for lease in leases]
        assert {(one.principal, one.token_id) for one in found} == {("alice", "id-1")}
        assert found[0].hmac.reveal() == "aG1hYw=="
        assert found[0].session.settings.login == found[1].session.settings.login
        assert found[0].lifetime_ms <= LIFETIME_MS - 600_000
        assert core.asked == [(SUBJECT, None)]
        assert (await leases[0].current("id-1")).token_id == "id-2"
        assert core.asked[1:] == [(SUBJECT, "id-1")]
        for lease in leases[:2]:
            lease.close()
        assert core.open == [SUBJECT]
        leases[2].close()
        await until(lambda: core.open == [])


async def test_a_refusal_comes_with_its_cause_and_leaves_nothing(tmp_path: Path) -> None:
    async with tokens_of(tmp_path) as (_, core, remote):
        core.refusal = SessionError("token_right_missing", "missing ACL: x")
        lease = remote.lease(SUBJECT)
        with pytest.raises(SessionError, match="missing ACL: x") as refused:
            await lease.current()
        assert refused.value.cause == "token_right_missing"
        assert core.open == []
        lease.close()


async def test_while_the_core_is_away_a_worker_has_the_tokens_that_it_has(tmp_path: Path) -> None:
    async with tokens_of(tmp_path) as (s, core, remote):
        lease = remote.lease(SUBJECT)
        token = await lease.current()
        await s.core.server.close()
        await until(lambda: not s.worker.is_connected)
        await until(lambda: core.open == [])  # who has gone has left
        assert await lease.current() == token
        other = remote.lease("CN=bob")
        with pytest.raises(SessionError, match="does not answer") as refused:
            await other.current()
        assert refused.value.cause == "tokens_unavailable"
        lease.close()
        other.close()


async def test_a_core_without_the_setting_says_so(tmp_path: Path) -> None:
    async with site(tmp_path / "core.sock") as s:
        remote = RemoteTokens(
            s.worker.token, s.worker.token_left, SystemClock(), mechanism="SCRAM-SHA-512"
        )
        with pytest.raises(SessionError, match=r"proxy\.tls\.client\.identity"):
            await remote.lease(SUBJECT).current()
