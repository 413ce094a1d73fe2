"""Answers through the proxy give a principal what a bare broker gives it, and nothing more (G8).

Each request is sent twice: to the broker itself, and through the proxy for a topic whose oldest
records only the store has. Principals have one right each on the topic, by an authorizer that
denies the rest. A topic that was never trimmed has the same records: what the bare broker answers
for it, the proxy answers for the trimmed one.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafka_protocol.apis import FETCH, METADATA
from kip405.acls import Acl
from rlm.clock import SystemClock
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import Override, SandboxSpec
from tests.builders import secured_clients
from tests.rlm.proxy.raw_client import RawClient
from tests.sandbox_fixtures import with_workers
from tests.scenarios.acl_requests import (
    COMMITTED_GROUP,
    FIRST_TIMESTAMP_MS,
    INVALID_TOKEN,
    LIFETIME_MS,
    NONE,
    RECORDS,
    REFUSED,
    REFUSED_HERE,
    SAME_AS_TWIN,
    SAME_ERROR,
    Ask,
    bearer_token,
    delete_records,
    fetch,
    list_offsets,
    produce,
    prove,
    proved,
    with_token,
)
from tests.scenarios.authorizer import binding_of, filter_of
from tests.scenarios.cluster import Cluster, fresh
from tests.scenarios.raw import ASK_AGAIN, connection
from tests.waiting import succeeds_once

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

RIGHTS: Mapping[str, tuple[str, ...]] = {
    "nobody": (),
    "describes": ("Describe",),
    "reads": ("Read",),
    "writes": ("Write",),
    "deletes": ("Delete",),
}
"""What each principal may do with both topics; each has Read of every group, but the stranger."""
PRINCIPALS = ("stranger", *RIGHTS)
_LIMIT_S = 120
MAY_DESCRIBE = frozenset(RIGHTS) - {"nobody"}
"""Read, Write and Delete imply Describe."""


class Site(Cluster):
    """Principals of it are whom a token names, which tests sign."""

    old: str
    twin: str

    def _admin_config(self) -> dict[str, Any]:
        return secured_clients.librdkafka(self.sandbox.json, "admin")

    def token(self, name: str, lifetime_ms: int = LIFETIME_MS) -> str:
        return bearer_token(self.sandbox, name, lifetime_ms)

    @property
    def broker_address(self) -> str:
        return f"127.0.0.1:{self.sandbox.state.ports[1].direct}"

    @property
    def proxy_address(self) -> str:
        return f"127.0.0.1:{self.sandbox.state.ports[1].proxy}"

    def as_principal(
        self, address: str, name: str, lifetime_ms: int = LIFETIME_MS
    ) -> contextlib.AbstractAsyncContextManager[RawClient]:
        return with_token(address, self.token(name, lifetime_ms))

    def grant(self, *acls: Acl) -> None:
        for created in self.admin.create_acls([binding_of(acl) for acl in acls]).values():
            created.result(_LIMIT_S)

    def revoke(self, *acls: Acl) -> None:
        for deleted in self.admin.delete_acls([filter_of(acl) for acl in acls]).values():
            assert list(deleted.result(_LIMIT_S)), "there was no such ACL"

    def fill_alike(self, topic: str) -> None:
        """The same records in the same batches, whatever the topic."""
        config = secured_clients.librdkafka(self.sandbox.json, "admin")
        producer = Producer({**config, "linger.ms": 60_000, "acks": "all"})
        for number in range(RECORDS):
            value = (b"%d " % number).ljust(1_000, b".")
            producer.produce(topic, value, partition=0, timestamp=FIRST_TIMESTAMP_MS + number)
            if number % 50 == 49:
                assert producer.flush(_LIMIT_S) == 0


def topic_acls(topic: str) -> list[Acl]:
    return [
        Acl(
            principal=f"User:{name}",
            operation=operation,
            resource_type="Topic",
            resource_name=topic,
        )
        for name, operations in RIGHTS.items()
        for operation in operations
    ]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    # Only with this setting a broker ends a session when its token does.
    ends_sessions = Override.parse("broker.connections.max.reauth.ms=3600000")
    spec = SandboxSpec(security="sasl_plaintext", jvm="quick", overrides=(ends_sessions,))
    made = Sandbox.up(tmp_path_factory.mktemp("equivalence"), with_workers(spec))
    try:
        admin = secured_clients.librdkafka(made.json, "admin", proxy=True)
        with Site(made, admin) as cluster:
            cluster.old, cluster.twin = fresh("old"), fresh("twin")
            for topic in (cluster.old, cluster.twin):
                cluster.create_topic(topic)
                cluster.fill_alike(topic)
                cluster.grant(*topic_acls(topic))
            cluster.grant(
                *(
                    Acl(
                        principal=f"User:{name}",
                        operation="Read",
                        resource_type="Group",
                        resource_name="*",
                    )
                    for name in RIGHTS
                )
            )
            cluster.enable(cluster.old)
            cluster.wait_trimmed(cluster.old)
            cluster.wait_settled(cluster.old)
            yield cluster
    finally:
        made.down(delete=True)


@dataclass(frozen=True, slots=True)
class Both:
    """What a principal is answered at the broker and through the proxy."""

    broker: Any
    proxy: Any


def answers_to(
    site: Site, name: str, asks: Mapping[str, Ask], *, topic_at_broker: str
) -> dict[str, Both]:
    """What the principal gets for each, all of them over one connection to either."""

    async def at(address: str, topic: str) -> dict[str, Any]:
        async with site.as_principal(site.broker_address, "admin") as admin:
            found = await admin.call(METADATA, 12, {"topics": [{"name": topic}]})
            topic_id = found["topics"][0]["topic_id"]
        async with site.as_principal(address, name) as client:
            return {
                what: await _known(partial(ask, client, topic, topic_id))
                for what, ask in asks.items()
            }

    async def both() -> dict[str, Both]:
        broker, proxy = await asyncio.gather(
            at(site.broker_address, topic_at_broker), at(site.proxy_address, site.old)
        )
        return {what: Both(broker=broker[what], proxy=proxy[what]) for what in asks}

    return asyncio.run(both())


async def _known(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Asked again, as by clients, where what is asked for is not known in this moment."""
    until_s = time.monotonic() + _LIMIT_S
    while True:
        found = await ask()
        if not _is_not_yet(found) or time.monotonic() >= until_s:
            return found
        await asyncio.sleep(0.2)


def _is_not_yet(answer: Any) -> bool:
    error = answer[0] if isinstance(answer, tuple) and answer else answer
    return (error.get("error_code") if isinstance(error, dict) else error) in ASK_AGAIN


def answers(site: Site, name: str, ask: Ask, *, topic_at_broker: str) -> Both:
    return answers_to(site, name, {"it": ask}, topic_at_broker=topic_at_broker)["it"]


def error_of(answer: Any) -> int:
    return int(answer["error_code"] if isinstance(answer, dict) else answer[0])


@pytest.fixture(scope="module")
def committed(site: Site) -> None:
    """A group that has committed an offset of each topic."""
    config = secured_clients.librdkafka(site.sandbox.json, "admin")
    consumer = Consumer({**config, "group.id": COMMITTED_GROUP, "enable.auto.commit": False})
    try:
        offsets = [TopicPartition(topic, 0, 77) for topic in (site.old, site.twin)]
        site.wait_for(
            lambda: bool(consumer.commit(offsets=offsets, asynchronous=False)), "a coordinator"
        )
    finally:
        consumer.close()


@pytest.mark.parametrize("name", PRINCIPALS)
def test_g8_a_principal_learns_what_a_bare_broker_shows_it(
    site: Site, committed: None, name: str
) -> None:
    differing = {}
    for what, both in answers_to(site, name, SAME_AS_TWIN, topic_at_broker=site.twin).items():
        if both.broker != both.proxy:
            differing[what] = both
        if what.startswith("Fetch v"):
            assert error_of(both.broker) == (NONE if name == "reads" else REFUSED), what
        if what.startswith("ListOffsets"):
            may = name in MAY_DESCRIBE
            assert error_of(both.broker) == (NONE if may else REFUSED), what
    assert differing == {}


@pytest.mark.parametrize("name", PRINCIPALS)
def test_g8_only_who_may_describe_learns_of_tiers(site: Site, name: str) -> None:
    for what, both in answers_to(site, name, SAME_ERROR, topic_at_broker=site.old).items():
        assert error_of(both.broker) == error_of(both.proxy), what
        if error_of(both.broker) != NONE:
            assert both.broker == both.proxy, what
        may = name == "reads" if what.startswith("Fetch") else name in MAY_DESCRIBE
        if not may:
            assert error_of(both.proxy) == REFUSED, what


@pytest.mark.parametrize("name", PRINCIPALS)
def test_g8_what_a_broker_refuses_moves_nothing(site: Site, name: str) -> None:
    def state() -> tuple[int, int, int]:
        row = site.status(site.old)
        return site.log_start(site.old), site.log_end(site.old), row["remote_log_start_offset"]

    before = state()
    may = {("deletes", "DeleteRecords"), ("writes", "Produce")}
    asks = {what: ask for what, ask in REFUSED_HERE.items() if (name, what.split()[0]) not in may}
    for what, both in answers_to(site, name, asks, topic_at_broker=site.old).items():
        assert both.broker == both.proxy, what
        if what != "DescribeLogDirs":
            assert error_of(both.proxy) == REFUSED, what
    assert state() == before
    assert before[2] == 0 < before[0]


def test_g8_denied_and_allowed_topics_of_one_request_are_answered_each(site: Site) -> None:
    """One old offset that may be read, and one that may not."""
    hidden = fresh("hidden")
    site.create_topic(hidden)

    async def ask(client: RawClient, topic: str, _: bytes) -> Any:
        asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50_000}
        topics = [{"topic": one, "partitions": [asked]} for one in (hidden, topic)]
        request = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 100_000, "topics": topics}
        found: dict[bool, tuple[int, bool]] = {}
        # The error ends the wait, also for records that are not here yet.
        for _attempt in range(100):
            answer = await client.call(FETCH, 12, request)
            found = {
                one["topic"] == topic: (row["error_code"], bool(row["records"]))
                for one in answer["responses"]
                for row in one["partitions"]
            }
            if found[True] != (NONE, False):
                break
            await asyncio.sleep(0.1)
        return found

    both = answers(site, "reads", ask, topic_at_broker=site.twin)
    assert both.proxy == both.broker == {True: (NONE, True), False: (REFUSED, False)}


READS_OLD = "reads-old"


def refused(site: Site, name: str, topic: str) -> bool:
    """Whether the broker itself refuses to give the principal records."""

    async def ask() -> Any:
        async with site.as_principal(site.broker_address, name) as client:
            return await fetch(12, RECORDS - 1)(client, topic, b"")

    return error_of(asyncio.run(ask())) == REFUSED


def consumer_of(site: Site, name: str, *, proxy: bool, **more: Any) -> Consumer:
    config = secured_clients.librdkafka(site.sandbox.json, "reader", mechanism="PLAIN", proxy=proxy)
    for key in ("sasl.username", "sasl.password"):
        config.pop(key)
    token = site.token(name)
    expires_s = SystemClock().now_ms() / 1000 + LIFETIME_MS / 1000
    return Consumer(
        {
            **config,
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token, expires_s),
            "group.id": fresh("group"),
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.message.max.bytes": 20_000,
            "queued.max.messages.kbytes": 40,
            "fetch.error.backoff.ms": 50,
            **more,
        }
    )


def test_the_owner_of_a_bearer_token_is_the_principal_that_rlm_clients_shows(site: Site) -> None:
    consumer = consumer_of(site, "reads", proxy=True, **{"client.id": "by-token"})
    try:
        consumer.assign([TopicPartition(site.old, 0, 0)])
        first = consumer.poll(_LIMIT_S)
        assert first is not None and first.error() is None and first.offset() == 0

        def principals() -> set[str]:
            rows = site.rlm_json("clients", site.old)["clients"]
            return {row.get("principal", "") for row in rows if row["client_id"] == "by-token"}

        site.wait_for(lambda: principals() == {"reads"}, "the principal of the client")
    finally:
        consumer.close()


@pytest.mark.parametrize("proxy", [False, True], ids=["broker", "proxy"])
def test_g8_an_acl_that_is_revoked_in_mid_read_is_an_error_and_the_position_stays(
    site: Site, proxy: bool
) -> None:
    topic, name = (site.old if proxy else site.twin), f"{READS_OLD}-{proxy}"
    may_read = Acl(
        principal=f"User:{name}", operation="Read", resource_type="Topic", resource_name=topic
    )
    groups = Acl(
        principal=f"User:{name}", operation="Read", resource_type="Group", resource_name="*"
    )
    site.grant(may_read, groups)
    site.wait_for(lambda: not refused(site, name, topic), "the broker knows")
    consumer = consumer_of(site, name, proxy=proxy)
    seen: list[int] = []

    def poll_until(ends: Callable[[], bool]) -> str | None:
        """The name of the error that came, if one did before that."""
        for _ in range(20_000):
            if ends():
                return None
            message = consumer.poll(_LIMIT_S)
            assert message is not None, f"nothing for {_LIMIT_S} s after {seen[-1:]}"
            error = message.error()
            if error is not None:
                return str(error.name())
            offset = message.offset()
            assert offset is not None
            seen.append(offset)
        raise AssertionError("neither the end nor an error")

    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert poll_until(lambda: len(seen) >= 300) is None
        site.revoke(may_read)
        site.wait_for(lambda: refused(site, name, topic), "the broker knows")
        assert poll_until(lambda: len(seen) >= RECORDS) == "TOPIC_AUTHORIZATION_FAILED"
        stopped_at = len(seen)
        assert stopped_at < RECORDS
        [position] = consumer.position([TopicPartition(topic, 0)])
        assert position.offset == stopped_at
        site.grant(may_read)
        site.wait_for(lambda: not refused(site, name, topic), "the broker knows")
        consumer.assign([position])
        assert poll_until(lambda: len(seen) >= 2_000) is None
        assert seen == list(range(2_000))
    finally:
        consumer.close()


async def is_ended(client: RawClient, ask: Ask, topic: str, topic_id: bytes) -> bool:
    try:
        await ask(client, topic, topic_id)
    except (asyncio.IncompleteReadError, ConnectionError):
        return True
    return False


@pytest.mark.parametrize("at", ["broker_address", "proxy_address"])
async def test_g8_a_token_that_expires_in_mid_read_ends_the_connection_and_no_position(
    site: Site, at: str
) -> None:
    topic = site.twin if at == "broker_address" else site.old

    async def attempt() -> None:
        await _ends_with_its_token(site, getattr(site, at), topic)

    await succeeds_once(attempt)  # a token that lives for seconds may end in a stall


async def _ends_with_its_token(site: Site, address: str, topic: str) -> None:
    lifetime_ms = 8_000
    clock = SystemClock()
    async with site.as_principal(address, "reads", lifetime_ms) as client:
        error, first, _, _ = await fetch(12, 0)(client, topic, b"")
        assert (error, first) == (NONE, 0)
        async with site.as_principal(address, "reads", lifetime_ms) as renewed:
            await clock.sleep_ms(lifetime_ms // 4)  # most is left, for a machine with other work
            assert await prove(renewed, site.token("reads")) == NONE
            assert (await fetch(12, 50)(renewed, topic, b""))[:2] == (NONE, 50)
            await clock.sleep_ms(lifetime_ms)
            assert await is_ended(client, fetch(12, 50), topic, b"")
            assert (await fetch(12, 100)(renewed, topic, b""))[:2] == (NONE, 100)
            other = await prove(renewed, site.token("writes"))
            assert other == 58  # nobody becomes another principal on one connection
    async with connection(address) as late:
        refused = await proved(late, site.token("reads", -60_000))
        assert (refused["error_code"], refused["error_message"]) == (58, INVALID_TOKEN)
    async with site.as_principal(address, "reads") as again:
        assert (await fetch(12, 50)(again, topic, b""))[:2] == (NONE, 50)


def test_g8_who_may_change_a_topic_does(site: Site) -> None:
    """The last test of this module: the topics differ afterwards."""

    async def one_batch(client: RawClient, topic: str, _: bytes) -> Any:
        asked = {"partition": 0, "fetch_offset": RECORDS - 1, "partition_max_bytes": 9}
        key = {"topic": topic, "partitions": [asked]}
        request = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 9, "topics": [key]}
        answer = await client.call(FETCH, 12, request)
        # A producer's batch begins at offset 0.
        return bytes(8) + answer["responses"][0]["partitions"][0]["records"][8:]

    batch = answers(site, "admin", one_batch, topic_at_broker=site.twin).broker
    for version in (3, 9, 12, 13):
        both = answers(site, "writes", produce(version, batch), topic_at_broker=site.twin)
        assert both.broker == both.proxy
        assert both.proxy["error_code"] == NONE
    both = answers(site, "deletes", delete_records(2, 3_000), topic_at_broker=site.twin)
    assert both.broker == both.proxy
    assert both.proxy["error_code"] == NONE
    both = answers(site, "reads", list_offsets(7, -2), topic_at_broker=site.twin)
    assert both.broker == both.proxy
    assert both.proxy["offset"] == 3_000
