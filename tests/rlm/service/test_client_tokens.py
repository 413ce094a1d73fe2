"""Tokens of clients: by which rules, shared by whom, renewed when, ended when."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from kafka_clients.principal_mapping import PrincipalMapping
from kip405.errors import Invalid, RemoteStorageError, Unavailable
from kip405.settings import Secret
from rlm.broker.delegation_tokens import DelegationToken, NoToken, Why
from rlm.clock import next_turn
from rlm.proxy.client_tokens import TokenPool
from rlm.proxy.session import SessionError
from rlm.service.client_tokens import CertificatePrincipals, IssuedTokens, mapping_of
from tests.builders.clock import ManualClock

LIFETIME_MS = 100_000
RULES = {"ssl.principal.mapping.rules": "RULE:^CN=([a-z]+).*$/$1/"}
ALICE, BOB = "CN=alice,O=x", "CN=bob,O=x"


@dataclass
class FakeTokens:
    """A broker that reads of a token after it was asked `late` times."""

    late: int = 0
    refusal: NoToken | None = None
    error: RemoteStorageError | None = None
    made: list[DelegationToken] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    is_closed: bool = False
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    _asked: int = 0

    def __post_init__(self) -> None:
        self.gate.set()

    async def create(self, owner: str, *, max_lifetime_ms: int) -> DelegationToken:
        await self.gate.wait()
        if self.refusal is not None:
            raise self.refusal
        number = len(self.made)
        token = DelegationToken(
            owner=owner,
            token_id=f"{owner}-{number}",
            hmac=Secret(f"secret-{number}"),
            lifetime_ms=max_lifetime_ms,
        )
        self.made.append(token)
        self._asked = 0
        return token

    async def is_known(self, token: DelegationToken) -> bool:
        if self.error is not None:
            raise self.error
        self._asked += 1
        return self._asked > self.late

    async def expire(self, token: DelegationToken) -> None:
        if self.error is not None:
            raise self.error
        self.ended.append(token.token_id)

    async def close(self) -> None:
        self.is_closed = True


@dataclass
class FakeConfigs:
    config: Mapping[str, str | None] = field(default_factory=lambda: RULES)
    error: RemoteStorageError | None = None
    asked: int = 0

    async def broker_config(self, node_id: int) -> Mapping[str, str | None]:
        assert node_id == 7
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.config


class StepClock(ManualClock):
    """Its sleep lets others have their turn."""

    async def sleep_ms(self, duration_ms: float) -> None:
        await super().sleep_ms(duration_ms)
        await next_turn()


class Rig:
    def __init__(self, rules: str = "") -> None:
        self.clock, self.broker, self.configs = StepClock(), FakeTokens(), FakeConfigs()
        mapping = PrincipalMapping(rules) if rules else None
        principals = CertificatePrincipals(
            self.configs, self.clock, node_id=7, listener="TIERED", mapping=mapping
        )
        self.tokens = IssuedTokens(
            self.broker,
            principals,
            self.clock,
            create_task=asyncio.get_running_loop().create_task,
            mechanism="SCRAM-SHA-512",
            max_lifetime_ms=LIFETIME_MS,
        )

    async def run_until(self, reached: Callable[[], bool]) -> None:
        running = asyncio.ensure_future(self.tokens.run())
        try:
            async with asyncio.timeout(60):
                while not reached():
                    await next_turn()
        finally:
            running.cancel()
            await asyncio.wait([running])


async def test_connections_of_a_principal_share_a_token_that_is_waited_for() -> None:
    rig = Rig()
    rig.broker.late = 3
    leases = [rig.tokens.lease(subject) for subject in (ALICE, ALICE, "CN=alice,O=other", BOB)]
    found = [token.token_id for token in await asyncio.gather(*(one.current() for one in leases))]
    assert found == ["alice-0", "alice-0", "alice-0", "bob-1"]
    assert {one.principal for one in await asyncio.gather(*(i.current() for i in leases))} == {
        "alice",
        "bob",
    }
    assert rig.configs.asked <= len(leases)


async def test_a_new_token_is_made_when_most_of_the_life_of_one_is_over_or_it_is_refused() -> None:
    rig = Rig()
    lease = rig.tokens.lease(ALICE)
    assert (await lease.current()).token_id == "alice-0"
    rig.clock.advance(LIFETIME_MS * 80 // 100 - 1)
    assert (await lease.current()).token_id == "alice-0"
    rig.clock.advance(1)
    assert (await lease.current()).token_id == "alice-1"
    assert (await lease.current("alice-0")).token_id == "alice-1"
    assert (await lease.current("alice-1")).token_id == "alice-2"


async def test_while_the_broker_makes_none_a_token_is_used_to_its_end() -> None:
    rig = Rig()
    lease = rig.tokens.lease(ALICE)
    await lease.current()
    rig.broker.refusal = NoToken(Why.UNAVAILABLE, "no controller")
    rig.clock.advance(LIFETIME_MS - 1)
    assert (await lease.current()).token_id == "alice-0"
    with pytest.raises(SessionError, match="no controller"):
        await lease.current("alice-0")
    rig.clock.advance(1)
    with pytest.raises(SessionError, match="no controller"):
        await lease.current()


async def test_tokens_end_some_time_after_their_last_connection() -> None:
    rig = Rig()
    first, second = rig.tokens.lease(ALICE), rig.tokens.lease(ALICE)
    await first.current()
    await second.current()
    rig.clock.advance(90_000)
    await second.current()  # of the former one some life is left, and sessions by it
    first.close()
    first.close()
    rig.clock.advance(1_000)
    await rig.run_until(lambda: rig.clock.now > 1_100_000)
    assert rig.broker.ended == ["alice-0"]  # at its end: brokers take it for a while yet
    second.close()
    closed_ms = rig.clock.now
    await rig.run_until(lambda: rig.broker.ended == ["alice-0", "alice-1"])
    assert rig.clock.now - closed_ms >= 10_000


async def test_who_comes_back_soon_gets_the_same_token() -> None:
    rig = Rig()
    lease = rig.tokens.lease(ALICE)
    await lease.current()
    lease.close()
    rig.clock.advance(5_000)
    again = rig.tokens.lease(ALICE)
    assert (await again.current()).token_id == "alice-0"
    await rig.run_until(lambda: rig.clock.now > 1_050_000)
    assert rig.broker.ended == []
    again.close()
    third = rig.tokens.lease(ALICE)
    assert (await third.current("alice-0")).token_id == "alice-1"
    await rig.run_until(lambda: rig.broker.ended == ["alice-0"])


async def test_a_client_that_leaves_while_its_token_is_made_leaves_none() -> None:
    rig = Rig()
    rig.broker.gate.clear()
    lease = rig.tokens.lease(ALICE)
    waiting = asyncio.ensure_future(lease.current())
    for _ in range(5):
        await next_turn()
    lease.close()
    rig.broker.gate.set()
    await asyncio.wait([waiting])
    await rig.run_until(lambda: rig.broker.ended == ["alice-0"])
    rig.broker.gate.clear()
    gone = rig.tokens.lease(ALICE)
    cut = asyncio.ensure_future(gone.current())
    for _ in range(5):
        await next_turn()
    cut.cancel()
    await asyncio.wait([cut])
    gone.close()
    rig.broker.gate.set()
    await rig.run_until(lambda: rig.broker.ended == ["alice-0", "alice-1"])
    with pytest.raises(SessionError, match="the client has gone"):
        await lease.current()


async def test_a_token_that_the_broker_does_not_read_of_is_refused_and_ended() -> None:
    rig = Rig()
    rig.broker.late = 1_000_000
    lease = rig.tokens.lease(ALICE)
    with pytest.raises(SessionError, match="has not read of the new token within 5000 ms") as one:
        await lease.current()
    assert one.value.cause == "tokens_unavailable"
    await rig.run_until(lambda: rig.broker.ended == ["alice-0"])
    lease.close()


async def test_after_a_refusal_the_broker_is_left_alone_for_a_second() -> None:
    rig = Rig()
    rig.broker.refusal = NoToken(Why.NO_RIGHT, "missing ACL: x")
    lease = rig.tokens.lease(ALICE)
    with pytest.raises(SessionError, match="User:alice: missing ACL: x") as first:
        await lease.current()
    assert first.value.cause == "token_right_missing"
    lease.close()
    rig.broker.refusal = None
    rig.clock.advance(999)
    with pytest.raises(SessionError, match="User:alice: missing ACL: x"):
        await rig.tokens.lease(ALICE).current()
    rig.clock.advance(1)
    assert (await rig.tokens.lease(ALICE).current()).token_id == "alice-0"


async def test_the_end_of_a_service_ends_its_tokens_and_that_of_a_core_only_unused_ones() -> None:
    for ends_used in (True, False):
        rig = Rig()
        used, left = rig.tokens.lease(ALICE), rig.tokens.lease(BOB)
        await used.current()
        await left.current()
        left.close()
        await rig.tokens.close(ends_used=ends_used)
        assert sorted(rig.broker.ended) == (["alice-0", "bob-1"] if ends_used else ["bob-1"])
        assert rig.broker.is_closed


async def test_a_broker_that_does_not_answer_delays_no_end() -> None:
    rig = Rig()
    leases = [rig.tokens.lease(f"CN={name}") for name in ("a", "b", "c")]
    with capture_logs() as logs:
        for lease in leases:
            await lease.current()
        rig.broker.error = Unavailable("gone")
        await rig.tokens.close(ends_used=True)
    [line] = [one for one in logs if one["event"] == "client_tokens_not_ended"]
    assert (line["tokens"], line["error"]) == (3, "gone")
    assert "secret" not in str(logs)


async def test_rules_are_asked_again_after_a_minute_and_kept_while_the_broker_is_away() -> None:
    rig = Rig()
    assert (await rig.tokens.lease(ALICE).current()).principal == "alice"
    rig.configs.config = {"ssl.principal.mapping.rules": "DEFAULT"}
    rig.clock.advance(59_999)
    assert (await rig.tokens.lease(BOB).current()).principal == "bob"
    rig.configs.error = Unavailable("gone")
    rig.clock.advance(1)
    assert (await rig.tokens.lease(BOB).current()).principal == "bob"
    rig.configs.error = None
    assert (await rig.tokens.lease(BOB).current()).principal == BOB


async def test_without_rules_there_is_nobody() -> None:
    rig = Rig()
    rig.configs.error = Unavailable("gone")
    with pytest.raises(SessionError, match="gone") as away:
        await rig.tokens.lease(ALICE).current()
    assert away.value.cause == "tokens_unavailable"
    rig.configs.error = Invalid("missing ACL")
    with pytest.raises(SessionError, match="missing ACL") as refused:
        await rig.tokens.lease(ALICE).current()
    assert refused.value.cause == "mapping_rules_unusable"


@pytest.mark.parametrize("rules", ["RULE:^O=.*$/x/", "RULE:^CN=.*$//"])
async def test_a_certificate_that_no_rule_names_is_refused(rules: str) -> None:
    rig = Rig(rules)
    with pytest.raises(SessionError, match=r"makes a principal of 'CN=alice,O=x'") as refused:
        await rig.tokens.lease(ALICE).current()
    assert refused.value.cause == "certificate_not_mapped"
    assert (rig.configs.asked, rig.broker.made) == (0, [])


def test_rules_are_those_of_the_listener_and_of_no_builder_that_is_not_kafkas() -> None:
    own = {"listener.name.tiered.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/t-$1/", **RULES}
    assert mapping_of(own, "TIERED").principal("CN=a") == "t-a"
    assert mapping_of(RULES, "TIERED").principal("CN=a") == "a"
    assert mapping_of({}, "TIERED").principal("CN=a") == "CN=a"
    kafkas = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
    assert mapping_of({"principal.builder.class": kafkas}, "TIERED").principal("CN=a") == "CN=a"
    for key in ("principal.builder.class", "listener.name.tiered.principal.builder.class"):
        with pytest.raises(Invalid, match=r"org\.example\.Builder"):
            mapping_of({key: "org.example.Builder"}, "TIERED")


async def test_a_pool_forgets_who_has_left() -> None:
    clock = ManualClock()

    async def make(key: str, refused: str | None) -> None:
        raise SessionError("x", "y")

    pool = TokenPool(make, lambda key, tokens: None, clock)  # type: ignore[arg-type]
    pool.enter("a")
    with pytest.raises(SessionError):
        await pool.current("a", None)
    pool.leave("a")
    assert len(pool) == 0
