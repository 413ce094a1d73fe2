"""The brokers' ACLs as authority: asked at times, and nobody is let in while they are away."""

import asyncio

import pytest

from kip405.acls import AclEntry, cluster_acl, missing_acls
from kip405.errors import RemoteStorageError, Unavailable
from rlm.api.authorizers import (
    ACLS_VALID_MS,
    FAILURE_VALID_MS,
    KafkaAuthorizer,
    host_of_acls,
)
from rlm.api.calls import Caller
from rlm.broker.acls import NoAuthorizer
from rlm.plans.api_rights import ApiRight, Need
from tests.builders.acls import acl_entry as entry
from tests.builders.clock import ManualClock

READ = Need(right=ApiRight.READ, topic="orders")
DESCRIBE = Need(right=ApiRight.DESCRIBE, topic="orders")


class Cluster:
    """Brokers with these ACLs."""

    def __init__(self, *entries: AclEntry) -> None:
        self.entries = entries
        self.failure: RemoteStorageError | None = None
        self.asked: list[str] = []

    async def acls(self, principal: str) -> tuple[AclEntry, ...]:
        self.asked.append(principal)
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        return self.entries


async def may(authorizer: KafkaAuthorizer, need: Need, who: str = "User:etl") -> bool:
    caller = Caller(principal=who, address="10.0.0.1", is_proven=True)
    return not (await authorizer.rights_of(caller)).lacks([need])


async def test_the_brokers_are_asked_once_in_thirty_seconds_and_then_believed_again() -> None:
    cluster, clock = Cluster(entry()), ManualClock()
    authorizer = KafkaAuthorizer(cluster.acls, clock)
    assert await may(authorizer, READ) and await may(authorizer, DESCRIBE)
    cluster.entries = (entry(), entry(is_denied=True))
    await clock.sleep_ms(ACLS_VALID_MS - 1)
    assert await may(authorizer, READ)
    assert cluster.asked == ["User:etl"]
    await clock.sleep_ms(1)
    assert not await may(authorizer, READ) and await may(authorizer, DESCRIBE)
    assert cluster.asked == ["User:etl"] * 2


async def test_callers_of_one_principal_ask_once_together_and_each_principal_by_itself() -> None:
    cluster = Cluster(entry())
    authorizer = KafkaAuthorizer(cluster.acls, ManualClock())
    found = await asyncio.gather(*(may(authorizer, READ) for _ in range(5)))
    assert found == [True] * 5 and cluster.asked == ["User:etl"]
    assert not await may(authorizer, READ, "User:other")
    assert cluster.asked == ["User:etl", "User:other"]


async def test_a_name_without_a_type_is_a_user_and_the_host_counts() -> None:
    cluster = Cluster(entry(host="10.0.0.1"))
    authorizer = KafkaAuthorizer(cluster.acls, ManualClock())
    assert await may(authorizer, READ, "etl")
    elsewhere = Caller(principal="etl", address="10.0.0.2", is_proven=True)
    assert (await authorizer.rights_of(elsewhere)).lacks([READ]) == (READ,)
    assert cluster.asked == ["User:etl"]


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("fe80::a:0b", "fe80:0:0:0:0:0:a:b"),
        ("unix", "unix"),
        ("", ""),
    ],
)
def test_addresses_are_compared_as_java_writes_them(address: str, host: str) -> None:
    assert host_of_acls(address) == host


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (Unavailable("no broker is named"), "what the brokers allow is not known now: no broker"),
        (NoAuthorizer("the cluster has no authorizer"), "the cluster has no authorizer: nobody"),
        (
            missing_acls("describe the ACLs", [cluster_acl("Describe")]),
            "this service may not ask: .*operation Describe, resource Cluster",
        ),
    ],
)
async def test_where_the_brokers_say_nothing_nobody_is_let_in(
    failure: RemoteStorageError, why: str
) -> None:
    cluster, clock = Cluster(entry()), ManualClock()
    authorizer = KafkaAuthorizer(cluster.acls, clock)
    assert await may(authorizer, READ)
    cluster.failure = failure
    await clock.sleep_ms(ACLS_VALID_MS)
    for _ in range(2):
        with pytest.raises(Unavailable, match=why):
            await may(authorizer, READ)
    assert len(cluster.asked) == 2
    cluster.failure = None
    await clock.sleep_ms(FAILURE_VALID_MS)
    assert await may(authorizer, READ)
