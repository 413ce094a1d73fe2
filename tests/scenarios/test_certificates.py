"""Clients of the proxy with certificates and without SASL, on a cluster with an authorizer: by the
broker's ACLs and by its authorizer's log each is who its certificate says.
"""

import base64
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kafka_protocol.apis import DESCRIBE_DELEGATION_TOKEN, METADATA
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.security.acls import Grant, create_acls, knows_acls
from rlm_sandbox.security.broker_calls import broker_calls
from rlm_sandbox.security.certificates import Authority, write_issued
from rlm_sandbox.security.clients import ClientIdentity
from rlm_sandbox.security.cluster_security import ClusterSecurity, security_of
from rlm_sandbox.spec import Override, SandboxSpec
from tests.builders import secured_clients
from tests.sandbox_fixtures import with_workers
from tests.scenarios.cluster import Cluster, Row, assert_same
from tests.scenarios.readers import first_error
from tests.service_log import events_of

pytestmark = pytest.mark.integration

SESSION_MS = 6_000
"""A session is renewed some time before its end, so a short one would end in a stall."""
_LASTS_S = 20
"""Longer than several sessions, than the certificate, and than a token."""
SETTINGS = (
    "rlm.proxy.tls.client.identity=delegation-token",
    "rlm.proxy.token.max.lifetime.ms=20000",
    # Brokers end a connection of the tiered listener that has not logged in again (KIP-368).
    f"broker.listener.name.tiered.connections.max.reauth.ms={SESSION_MS}",
)
_TIMEOUT_S = 60.0
EXPIRED, UNKNOWN = "SSLV3_ALERT_CERTIFICATE_EXPIRED", "SSLV3_ALERT_CERTIFICATE_UNKNOWN"


class CertificateCluster(Cluster):
    """The admin client, and what writes, go past the proxies as `admin`."""

    def __init__(self, sandbox: Sandbox, security: ClusterSecurity) -> None:
        self.security = security
        super().__init__(sandbox, secured_clients.librdkafka(sandbox.json, "admin"))

    def _admin_config(self) -> dict[str, Any]:
        return secured_clients.librdkafka(self.sandbox.json, "admin")

    def issue(self, name: str, *, life: timedelta = timedelta(days=1)) -> ClientIdentity:
        """A certificate of the cluster's authority; with a negative life it is an expired one."""
        now, files = datetime.now(UTC), self.security.files
        issued = Authority.load(files).issue(name, begin=now - timedelta(days=2), end=now + life)
        write_issued(issued, files.certificate(name), files.key(name))
        return ClientIdentity(
            protocol="SSL",
            username=None,
            password=None,
            ca=files.ca,
            certificate=files.certificate(name),
            key=files.key(name),
        )

    def allow(self, *grants: Grant) -> None:
        """Until the broker knows it."""
        port = self.sandbox.state.ports[1].direct
        create_acls(port, self.security.admin, grants)
        self.wait_for(lambda: knows_acls(port, self.security.admin, grants), "the ACLs")

    def of(self, identity: ClientIdentity, *, proxy: bool = True) -> dict[str, Any]:
        """Settings of librdkafka."""
        return {
            "bootstrap.servers": self.bootstrap if proxy else self.direct,
            "security.protocol": "SSL",
            "ssl.ca.location": str(identity.ca),
            "ssl.certificate.location": str(identity.certificate),
            "ssl.key.location": str(identity.key),
            "log_level": 0,
        }

    def log(self, name: str) -> str:
        return self.sandbox.layout.log(name).read_text("utf-8")

    def refusals(self, name: str) -> list[dict[str, Any]]:
        """What the service has logged of a client that it could not log in; a worker may write that
        after the client was told.
        """
        found: list[dict[str, Any]] = []

        def is_logged() -> bool:
            lines = events_of(self.sandbox.layout.log("rlm:1"))
            refused = (one for one in lines if one["event"] == "client_not_logged_in")
            found[:] = [one for one in refused if f"User:{name}" in one["error"]]
            return bool(found)

        self.wait_for(is_logged, f"a refusal of {name} in the log")
        return found

    def denials(self, name: str, topic: str) -> int:
        """How often the broker's authorizer has logged that it denies a principal a topic."""
        words = (f"Principal = User:{name} is Denied", f"on resource = Topic:LITERAL:{topic} ")
        return sum(all(one in line for one in words) for line in self.log("broker-1").splitlines())

    def tokens(self, owner: str) -> list[Any]:
        """The tokens of a principal that the broker has, as a super user sees them."""
        body = {"owners": [{"principal_type": "User", "principal_name": owner}]}
        port = self.sandbox.state.ports[1].direct
        with broker_calls(port, self.security.admin, timeout_s=_TIMEOUT_S) as calls:
            return list(calls.call(DESCRIBE_DELEGATION_TOKEN, 3, body)["tokens"])


def alert(port: int, identity: ClientIdentity) -> str:
    """Why TLS lets a client not in, by what the other side says. One that is cut off before it has
    read that comes again.
    """
    for _ in range(20):
        try:
            with broker_calls(port, identity, timeout_s=_TIMEOUT_S) as calls:
                calls.call(METADATA, 1, {"topics": []})
                return "none"
        except ssl.SSLError as error:
            if error.reason is not None:  # else the connection ended in the middle
                return str(error.reason)
        except (OSError, EOFError):
            continue
    return "cut off"


@pytest.fixture(scope="module", params=[None, "2"], ids=["one-process", "workers"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CertificateCluster]:
    spec = SandboxSpec(security="mtls", jvm="quick", overrides=tuple(map(Override.parse, SETTINGS)))
    made = Sandbox.up(tmp_path_factory.mktemp("certified"), with_workers(spec, request.param))
    try:
        security = security_of(made.layout, made.state.spec)
        assert security is not None
        with CertificateCluster(made, security) as found:
            yield found
    finally:
        made.down(delete=True)


@pytest.fixture(scope="module")
def trimmed(cluster: CertificateCluster) -> tuple[str, list[Row]]:
    return cluster.trimmed_topic("certified")


def may_create_tokens(name: str) -> Grant:
    return Grant("User:rlm", "User", f"User:{name}", "CreateTokens")


def test_h23_the_brokers_authorizer_decides_by_the_principal_of_the_certificate(
    cluster: CertificateCluster, trimmed: tuple[str, list[Row]]
) -> None:
    topic, acked = trimmed
    alice = cluster.issue("alice")
    cluster.allow(
        may_create_tokens("alice"),
        Grant("User:alice", "Group", "*", "Read"),
        Grant("User:alice", "Topic", topic, "Describe"),
    )
    assert cluster.denials("alice", topic) == 0
    assert first_error(cluster.of(alice), topic) == "TOPIC_AUTHORIZATION_FAILED"
    # Nobody has come past the proxy as alice yet: the broker knows her by what came through it.
    cluster.wait_for(lambda: cluster.denials("alice", topic) > 0, "alice in the authorizer's log")
    assert first_error(cluster.of(alice, proxy=False), topic) == "TOPIC_AUTHORIZATION_FAILED"
    cluster.allow(Grant("User:alice", "Topic", topic, "Read"))
    assert_same(cluster.read_all(topic, **cluster.of(alice)), acked)
    denied = cluster.security.identity("denied")
    refused = first_error(cluster.of(denied, proxy=False), topic)
    assert refused is not None
    assert first_error(cluster.of(denied), topic) == refused


def test_a_connection_outlives_its_sessions_its_token_and_its_certificate(
    cluster: CertificateCluster,
) -> None:
    """The broker ends a connection whose session is over at its next request. At a listener with
    certificates there are no sessions, and what was let in stays when its certificate has ended.
    """
    cluster.allow(may_create_tokens("bob"))
    bob = cluster.issue("bob", life=timedelta(milliseconds=2.5 * SESSION_MS))
    ports = cluster.sandbox.state.ports[1]
    until = time.monotonic() + _LASTS_S
    seen: set[str] = set()
    with (
        broker_calls(ports.direct, bob, timeout_s=_TIMEOUT_S) as bare,
        broker_calls(ports.proxy, bob, timeout_s=_TIMEOUT_S) as calls,
    ):
        while time.monotonic() < until or (len(seen) < 2 and time.monotonic() < until + _TIMEOUT_S):
            assert bare.call(METADATA, 1, {"topics": []})["brokers"]
            assert calls.call(METADATA, 1, {"topics": []})["brokers"]
            seen |= {one["token_id"] for one in cluster.tokens("bob")}
            time.sleep(0.25)
        assert not secured_clients.connects(ports.direct, bob)
        assert not secured_clients.connects(ports.proxy, bob)
        assert calls.call(METADATA, 1, {"topics": []})["brokers"]
    assert len(seen) >= 2  # a token has 20 s, of which 16 are used


def test_tokens_end_with_their_last_connection_and_are_in_no_log(
    cluster: CertificateCluster,
) -> None:
    cluster.allow(may_create_tokens("carol"))
    carol, proxy = cluster.issue("carol"), cluster.sandbox.state.ports[1].proxy
    with broker_calls(proxy, carol, timeout_s=_TIMEOUT_S) as first:
        with broker_calls(proxy, carol, timeout_s=_TIMEOUT_S) as second:
            assert first.call(METADATA, 1, {"topics": []})["brokers"]
            assert second.call(METADATA, 1, {"topics": []})["brokers"]
        [token] = cluster.tokens("carol")
        assert token["token_requester_principal_name"] == "rlm"
    cluster.wait_for(lambda: not cluster.tokens("carol"), "the end of the token", 18)
    log = cluster.log("rlm:1")
    assert token["token_id"] not in log
    assert base64.b64encode(bytes(token["hmac"])).decode() not in log


def test_without_the_right_the_client_is_refused_and_the_log_says_which(
    cluster: CertificateCluster,
) -> None:
    mallory = cluster.issue("mallory")
    assert secured_clients.connects(cluster.sandbox.state.ports[1].direct, mallory)
    assert not secured_clients.connects(cluster.sandbox.state.ports[1].proxy, mallory)
    found = cluster.refusals("mallory")
    assert {one["cause"] for one in found} == {"token_right_missing"}
    assert (
        "kafka-acls.sh --add --allow-principal User:rlm --operation CreateTokens "
        "--user-principal User:mallory" in found[0]["error"]
    )
    cluster.allow(may_create_tokens("mallory"))
    cluster.wait_for(
        lambda: secured_clients.connects(cluster.sandbox.state.ports[1].proxy, mallory),
        "a client that may come now",
    )


def test_an_expired_certificate_is_refused_as_by_the_broker(cluster: CertificateCluster) -> None:
    cluster.allow(may_create_tokens("late"))
    late = cluster.issue("late", life=timedelta(days=-1))
    ports = cluster.sandbox.state.ports[1]
    # Both end the handshake: to a client either is a failed authentication, and no reason to wait.
    assert alert(ports.direct, late) == UNKNOWN  # Java keeps the reason to itself
    assert alert(ports.proxy, late) == EXPIRED
    for port in (ports.direct, ports.proxy):
        assert not secured_clients.connects(port, replace(late, certificate=None))
    assert cluster.tokens("late") == []


def test_sasl_is_refused_as_by_a_listener_with_certificates_alone(
    cluster: CertificateCluster,
) -> None:
    reader = cluster.security.identity("reader", proxy=True)
    assert reader.username == "reader"
    ports = cluster.sandbox.state.ports[1]
    for port in (ports.direct, ports.proxy):
        assert not secured_clients.connects(port, reader)
        assert secured_clients.connects(port, replace(reader, username=None, password=None))


def test_acls_names_the_right_and_finds_it(cluster: CertificateCluster) -> None:
    asked = ("--principal", "User:rlm", "--client-principals", "User:reader,User:team-*")
    done = cluster.rlm("acls", *asked)
    assert "--operation CreateTokens --user-principal User:reader" in done.stdout
    assert (
        "--operation CreateTokens --user-principal User:team- --resource-pattern-type prefixed"
        in done.stdout
    )
    config = str(cluster.sandbox.layout.rlm_config(1))
    done = cluster.rlm("acls", *asked, "--check", "--config", config, check=False)
    missing = [one for one in done.stdout.splitlines() if one.startswith("missing ACL: ")]
    assert len(missing) == 1 and "User:prefix User:team-" in missing[0]
