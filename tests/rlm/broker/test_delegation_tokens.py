"""Delegation tokens on a broker of Kafka's own bytes: what is asked, and what each refusal says."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kafka_clients.channel_security import plaintext
from kafka_protocol.apis import (
    API_VERSIONS,
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
)
from kip405.errors import Unavailable
from kip405.settings import Secret
from rlm.broker.delegation_tokens import DelegationToken, DelegationTokens, NoToken, Why
from tests.builders.fake_broker import FakeBroker

HMAC = b"\1\2\3 secret"
TOKEN = DelegationToken(
    owner="alice",
    token_id="id-1",
    hmac=Secret(base64.b64encode(HMAC).decode()),
    lifetime_ms=60_000,
)


def created(code: int = 0, requester: str = "rlm") -> dict[str, Any]:
    return {
        "error_code": code,
        "principal_type": "User",
        "principal_name": "alice",
        "token_requester_principal_type": "User",
        "token_requester_principal_name": requester,
        "issue_timestamp_ms": 1_000 if code == 0 else -1,
        "expiry_timestamp_ms": 61_000 if code == 0 else -1,
        "max_timestamp_ms": 61_000 if code == 0 else -1,
        "token_id": "id-1" if code == 0 else "",
        "hmac": HMAC if code == 0 else b"",
    }


def on_create(broker: FakeBroker, answer: dict[str, Any], requester: str = "rlm") -> None:
    """Who asks for a renewer that is no user is refused, and learns who it is."""

    def answered(body: Any) -> dict[str, Any]:
        kinds = {one["principal_type"] for one in body["renewers"]}
        return answer if kinds == {"User"} or answer["error_code"] == 64 else created(67, requester)

    broker.on(CREATE_DELEGATION_TOKEN, answered)


def has_versions(broker: FakeBroker, newest: int) -> None:
    row = {"api_key": CREATE_DELEGATION_TOKEN.key, "min_version": 1, "max_version": newest}
    broker.on(API_VERSIONS, {"error_code": 0, "api_keys": [row]})


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker().running() as made:
        has_versions(made, 3)
        yield made


@pytest.fixture
async def tokens(broker: FakeBroker) -> AsyncIterator[DelegationTokens]:
    made = DelegationTokens(broker.address, client_id="rlm-1", security=plaintext())
    yield made
    await made.close()


async def test_a_token_is_made_for_its_owner(broker: FakeBroker, tokens: DelegationTokens) -> None:
    on_create(broker, created())
    assert await tokens.create("alice", max_lifetime_ms=60_000) == TOKEN
    assert await tokens.create("alice", max_lifetime_ms=60_000) == TOKEN
    who, *others = broker.asked(CREATE_DELEGATION_TOKEN)
    assert (who["owner_principal_name"], len(who["renewers"]), len(others)) == (None, 1, 2)
    for asked in others:
        assert (asked["owner_principal_type"], asked["owner_principal_name"]) == ("User", "alice")
        assert asked["renewers"] == [{"principal_type": "User", "principal_name": "rlm"}]
        assert asked["max_lifetime_ms"] == 60_000
    assert TOKEN.hmac.reveal() not in repr(TOKEN)


async def test_a_service_with_another_certificate_is_the_renewer_by_its_new_name(
    broker: FakeBroker, tokens: DelegationTokens
) -> None:
    on_create(broker, created())
    await tokens.create("alice", max_lifetime_ms=60_000)
    on_create(broker, created(requester="rlm-2"), "rlm-2")
    await broker.cut()
    asked_before = len(broker.asked(CREATE_DELEGATION_TOKEN))
    for _ in range(2):
        assert await tokens.create("alice", max_lifetime_ms=60_000) == TOKEN
    asked = broker.asked(CREATE_DELEGATION_TOKEN)[asked_before:]
    names = [one["renewers"][0]["principal_name"] for one in asked]
    assert names == ["rlm", "", "rlm-2", "rlm-2"]


@pytest.mark.parametrize(
    ("code", "why", "text"),
    [
        (61, Why.DISABLED, "delegation.token.secret.key"),
        (64, Why.NOT_ALLOWED, "kafka.security.protocol"),
        (
            65,
            Why.NO_RIGHT,
            "missing ACL: principal User:rlm, operation CreateTokens, resource User:User:alice: "
            "kafka-acls.sh --add --allow-principal User:rlm --operation CreateTokens "
            "--user-principal User:alice",
        ),
        (7, Why.UNAVAILABLE, "User:alice: Kafka error 7"),
    ],
)
async def test_each_refusal_says_what_to_do(
    broker: FakeBroker, tokens: DelegationTokens, code: int, why: Why, text: str
) -> None:
    on_create(broker, created(code))
    with pytest.raises(NoToken, match=r"\w") as refused:
        await tokens.create("alice", max_lifetime_ms=1)
    assert refused.value.why is why
    assert text in str(refused.value)


async def test_an_older_broker_is_not_asked_for_what_it_has_not(
    broker: FakeBroker, tokens: DelegationTokens
) -> None:
    has_versions(broker, 2)
    with pytest.raises(NoToken, match=r"Kafka 3\.3 with ZooKeeper") as refused:
        await tokens.create("alice", max_lifetime_ms=1)
    assert refused.value.why is Why.DISABLED
    assert broker.asked(CREATE_DELEGATION_TOKEN) == []


async def test_a_broker_that_is_gone_is_unavailable(
    broker: FakeBroker, tokens: DelegationTokens
) -> None:
    with pytest.raises(NoToken) as refused:  # it closes the connection: no handler
        await tokens.create("alice", max_lifetime_ms=1)
    assert refused.value.why is Why.UNAVAILABLE


async def test_whether_a_broker_has_read_of_it(
    broker: FakeBroker, tokens: DelegationTokens
) -> None:
    row = {
        **{key: value for key, value in created().items() if key not in ("error_code",)},
        "issue_timestamp": 1,
        "expiry_timestamp": 2,
        "max_timestamp": 2,
        "renewers": [],
    }
    for name in ("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"):
        del row[name]
    broker.on(DESCRIBE_DELEGATION_TOKEN, {"error_code": 0, "tokens": [{**row, "token_id": "x"}]})
    assert not await tokens.is_known(TOKEN)
    broker.on(DESCRIBE_DELEGATION_TOKEN, {"error_code": 0, "tokens": [row]})
    assert await tokens.is_known(TOKEN)
    [owner] = broker.asked(DESCRIBE_DELEGATION_TOKEN)[-1]["owners"]
    assert owner == {"principal_type": "User", "principal_name": "alice"}
    broker.on(DESCRIBE_DELEGATION_TOKEN, {"error_code": 61, "tokens": []})
    with pytest.raises(Unavailable, match="error 61"):
        await tokens.is_known(TOKEN)


@pytest.mark.parametrize("code", [0, 62, 66, 65])
async def test_a_token_is_ended_at_once(
    broker: FakeBroker, tokens: DelegationTokens, code: int
) -> None:
    broker.on(EXPIRE_DELEGATION_TOKEN, {"error_code": code, "expiry_timestamp_ms": 1})
    if code == 65:
        with pytest.raises(Unavailable, match="error 65"):
            await tokens.expire(TOKEN)
    else:
        await tokens.expire(TOKEN)
    [asked] = broker.asked(EXPIRE_DELEGATION_TOKEN)
    assert (bytes(asked["hmac"]), asked["expiry_time_period_ms"]) == (HMAC, -1)
