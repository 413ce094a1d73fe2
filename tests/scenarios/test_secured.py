"""The main job on secured clusters: copy, trim and reads of old offsets, with an authorizer that
denies what no ACL allows. The services are User:rlm, and clients are who they are by SASL.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import pytest

from kip405.acls import CLUSTER_NAME, Acl
from rlm.plans.rights import Role, Topics, least_acls
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.security.cluster_security import security_of
from rlm_sandbox.security.files import SecurityFiles
from rlm_sandbox.security.principals import saved_secrets
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from tests.builders import secured_clients
from tests.scenarios.authorizer import binding_of, filter_of
from tests.scenarios.cluster import Cluster, Row, assert_same
from tests.scenarios.readers import first_error
from tests.service_log import events_of

pytestmark = pytest.mark.integration


class PrincipalCluster(Cluster):
    """Clients of the proxy are `admin` unless a test says who; so is the admin client, past it."""

    @classmethod
    def of_sandbox(cls, sandbox: Sandbox) -> Self:
        return cls(sandbox, secured_clients.librdkafka(sandbox.json, "admin", proxy=True))

    def _admin_config(self) -> dict[str, Any]:
        return secured_clients.librdkafka(self.sandbox.json, "admin")

    def client_security(self) -> dict[str, str]:
        proxy, found = self.sandbox.json["security"]["proxy"], self.sandbox.json["security"]
        return {
            "protocol": proxy["protocol"],
            "mechanism": proxy["mechanism"],
            "username": "admin",
            "password": found["admin"]["password"],
            "ca": found["ca"],
        }

    def kafka_python_options(self) -> dict[str, Any]:
        known = secured_clients.aiokafka(self.sandbox.json, "admin")
        return {**known, "bootstrap_servers": self.direct.split(",")}

    def missing_acls(self) -> list[str]:
        """What `rlm acls --check` finds, asked as the service itself and with its settings."""
        config = str(self.sandbox.layout.rlm_config(1))
        asked = ("--principal", "User:rlm", "--check", "--config", config)
        done = self.rlm("acls", *asked, check=False)
        found = [line for line in done.stdout.splitlines() if line.startswith("missing ACL: ")]
        assert done.returncode == (1 if found else 0), done.stderr
        return found

    def acl_problems(self) -> set[str]:
        """Missing ACLs that the service has logged as problems so far."""
        return {
            str(line["problem"])
            for line in events_of(self.sandbox.layout.log("rlm:1"))
            if line["event"] == "problem" and line["kind"] == "acl-missing"
        }

    def of(self, name: str, mechanism: str | None = None) -> dict[str, Any]:
        """Settings of a client of the proxy that is another principal."""
        return secured_clients.librdkafka(self.sandbox.json, name, mechanism=mechanism, proxy=True)


@pytest.fixture(scope="module")
def secured(secured_sandbox: Sandbox) -> Iterator[PrincipalCluster]:
    with PrincipalCluster.of_sandbox(secured_sandbox) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def trimmed(secured: PrincipalCluster) -> tuple[str, list[Row]]:
    return secured.trimmed_topic("trimmed")


def test_old_offsets_are_copied_trimmed_and_read_back_by_each_mechanism(
    secured: PrincipalCluster, trimmed: tuple[str, list[Row]]
) -> None:
    topic, acked = trimmed
    assert_same(secured.read_all(topic, **secured.of("reader")), acked)
    for mechanism in secured.sandbox.json["security"]["mechanisms"]:
        read = secured.read_all(topic, end={0: 100}, **secured.of("reader", mechanism))
        assert_same(read, acked[:100])


def test_denied_gets_the_same_errors_through_the_proxy(
    secured: PrincipalCluster, trimmed: tuple[str, list[Row]]
) -> None:
    topic, _ = trimmed
    direct = secured_clients.librdkafka(secured.sandbox.json, "denied")
    refused = first_error(direct, topic)
    assert refused is not None
    assert refused.endswith("AUTHORIZATION_FAILED")
    assert first_error(secured.of("denied"), topic) == refused
    assert first_error(secured.of("reader"), topic) is None


def test_the_proxy_takes_no_client_without_a_proof(secured: PrincipalCluster) -> None:
    security = security_of(secured.sandbox.layout, secured.sandbox.state.spec)
    assert security is not None
    proxy, right = secured.sandbox.state.ports[1].proxy, security.identity("reader", proxy=True)
    connects = secured_clients.connects
    assert connects(proxy, right)
    assert not connects(proxy, None)
    assert not connects(proxy, replace(right, password="0" * 32))
    if right.certificate is not None:
        assert not connects(proxy, replace(right, certificate=None))


def test_services_have_all_rights_that_they_need(
    secured: PrincipalCluster, trimmed: tuple[str, list[Row]]
) -> None:
    document = secured.rlm_json("status")
    assert document["partitions"]
    sandbox = secured.sandbox
    for name in ("rlm:1", *(f"reader:{one}" for one in sandbox.state.spec.reader_ids)):
        log = sandbox.layout.log(name).read_text("utf-8")
        assert "missing ACL" not in log
        found = saved_secrets(SecurityFiles(folder=sandbox.layout.security).secrets)
        assert not [word for word in found.passwords.values() if word in log]


def rights_to_take_away() -> list[Any]:
    """Rights that no other gives too, whose lack the service finds by itself: three of them in CI.
    Those to read the service's own topics come with the ones for every topic.
    """
    ours = {(name, "Write") for name in (LEDGER_TOPIC, SETTINGS_TOPIC)}
    others = {("*", "Read"), *ours}
    cheap = {("*", "Delete"), ("*", "AlterConfigs"), (CLUSTER_NAME, "DescribeConfigs")}
    return [
        pytest.param(
            acl,
            id=f"{acl.resource_name}-{acl.operation}",
            marks=() if (acl.resource_name, acl.operation) in cheap else pytest.mark.long,
        )
        for acl in least_acls(Role.SERVICE, "User:rlm", Topics())
        if (acl.resource_name, acl.operation) in cheap | others
    ]


@pytest.mark.parametrize("acl", rights_to_take_away())
def test_h40_each_right_that_is_taken_away_is_named(
    secured: PrincipalCluster, trimmed: tuple[str, list[Row]], acl: Acl
) -> None:
    assert secured.missing_acls() == []
    before = secured.acl_problems()
    for deleted in secured.admin.delete_acls([filter_of(acl)]).values():
        assert list(deleted.result(120)), "there was no such ACL"
    try:
        secured.wait_for(lambda: bool(secured.missing_acls()), f"{acl} is missing")
        (found,) = secured.missing_acls()
        assert found.startswith(f"missing ACL: {acl}: not allowed. ")
        secured.wait_for(lambda: secured.acl_problems() > before, f"a problem for {acl}")
        for problem in secured.acl_problems() - before:
            assert f"operation {acl.operation}, resource {acl.resource_type}:" in problem
    finally:
        for created in secured.admin.create_acls([binding_of(acl)]).values():
            created.result(120)
    secured.wait_for(lambda: not secured.missing_acls(), f"{acl} is back")


def test_kafkas_own_tools_go_through_the_proxy(
    secured: PrincipalCluster, trimmed: tuple[str, list[Row]]
) -> None:
    topic, _ = trimmed
    path = secured.sandbox.json["security"]["reader"]["proxy_client_properties"]
    where = ("--bootstrap-server", secured.bootstrap, "--command-config", path)
    done = secured.sandbox.dist.run_tool("topics", *where, "--list")
    assert done.returncode == 0, done.stderr
    assert topic in done.stdout.split()
