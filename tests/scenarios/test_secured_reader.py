"""A reader on a secured cluster has what the table gives its role, and nothing else.

In a sandbox the reader is the same principal as the service, so the service is stopped and its
rights are taken away first.
"""

import json
import urllib.request
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from kip405.acls import Acl
from rlm.plans.rights import Role, Topics, least_acls
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import SandboxSpec
from rlmm.topic import SETTINGS_TOPIC
from tests.builders import secured_clients
from tests.sandbox_fixtures import patient
from tests.scenarios.authorizer import binding_of, filter_of
from tests.scenarios.cluster import Cluster, fresh
from tests.service_log import events_of

pytestmark = [pytest.mark.integration, pytest.mark.long]

PRINCIPAL = "User:rlm"
OF_SERVICE = least_acls(Role.SERVICE, PRINCIPAL, Topics())
OF_READER = least_acls(Role.READER, PRINCIPAL, Topics())


class ReaderCluster(Cluster):
    """Its admin client is the super user, past the proxy, which may be away."""

    def _admin_config(self) -> dict[str, Any]:
        return secured_clients.librdkafka(self.sandbox.json, "admin")

    def take_away(self, acls: Iterable[Acl]) -> None:
        for deleted in self.admin.delete_acls([filter_of(acl) for acl in acls]).values():
            assert list(deleted.result(120)), "there was no such ACL"

    def give(self, acls: Iterable[Acl]) -> None:
        for created in self.admin.create_acls([binding_of(acl) for acl in acls]).values():
            created.result(120)

    def settings_end(self) -> int:
        """Beyond the last record of the settings topic: with the service away, the reader's."""
        direct = secured_clients.librdkafka(self.sandbox.json, "admin")
        consumer = Consumer({**direct, "group.id": "tests"})
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(SETTINGS_TOPIC, 0), timeout=120)
            return int(end)
        finally:
            consumer.close()

    def missing(self) -> list[str]:
        """Texts of the reader's problems of missing ACLs."""
        problems = self.health()["problems"]
        return [str(one["text"]) for one in problems if one["kind"] == "acl-missing"]

    def health(self) -> dict[str, Any]:
        (ports,) = self.sandbox.state.reader_ports.values()
        url = f"http://127.0.0.1:{ports.http}/healthz"
        with urllib.request.urlopen(url, timeout=120) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReaderCluster]:
    spec = SandboxSpec(security="sasl_plaintext", readers=1, jvm="quick")
    made = Sandbox.up(tmp_path_factory.mktemp("secured"), patient(spec))
    try:
        admin = secured_clients.librdkafka(made.json, "admin", proxy=True)
        with ReaderCluster(made, admin) as cluster:
            yield cluster
    finally:
        made.down(delete=True)


def test_h40_a_reader_needs_what_the_table_gives_it(secured: ReaderCluster) -> None:
    topic = fresh("read")
    secured.create_topic(topic)
    secured.fill(topic, mib=3)
    secured.enable(topic)
    secured.wait_trimmed(topic)
    secured.sandbox.stop("reader:1")
    secured.sandbox.stop("rlm:1")
    secured.take_away(OF_SERVICE)
    secured.give(OF_READER)
    secured.sandbox.start("reader:1")
    secured.wait_for(lambda: bool(secured.health()["ready"]), "the reader is ready")
    log = secured.sandbox.layout.log("reader:1")
    assert "missing ACL" not in log.read_text("utf-8")
    before = secured.settings_end()
    secured.wait_for(lambda: secured.settings_end() > before, "a heartbeat, which needs Write")
    assert "heartbeat_failed" not in log.read_text("utf-8")
    for acl in OF_READER:
        if acl.operation != "Describe":  # it comes with Read
            _assert_named_while_it_is_missing(secured, acl)


def _assert_named_while_it_is_missing(secured: ReaderCluster, acl: Acl) -> None:
    """By one problem, and one line of the log; the reader goes on when it is granted again."""
    secured.take_away([acl])
    secured.wait_for(lambda: bool(secured.missing()), f"a problem for {acl}")
    (found,) = secured.missing()
    assert found.startswith(f"missing ACL: {acl}; kafka-acls.sh --add ")
    secured.give([acl])
    secured.wait_for(lambda: not secured.missing(), f"no problem for {acl}")
    lines = events_of(secured.sandbox.layout.log("reader:1"))
    of_acl = [line for line in lines if line["event"] == "problem" and str(acl) in line["problem"]]
    assert [line["problem"] for line in of_acl] == [found]
    before = secured.settings_end()
    secured.wait_for(lambda: secured.settings_end() > before, "a heartbeat")
    assert secured.health()["ready"]
