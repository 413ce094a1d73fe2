"""H40 beside a real StandardAuthorizer: rights taken away one at a time, before and after enabling.

The services speak PLAINTEXT and are User:ANONYMOUS; nothing is allowed to them but what is granted.
"""

from collections.abc import Iterator

import pytest

from kip405.acls import ANONYMOUS, Acl, cluster_acl, grants, of_principal, topic_acl
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import SandboxSpec
from tests.sandbox_fixtures import with_workers
from tests.scenarios.authorizer import (
    OF_OUR_TOPICS,
    OVERRIDES,
    SUPER_USER,
    SecuredCluster,
    of_tier,
)
from tests.scenarios.cluster import assert_same, fresh

pytestmark = pytest.mark.integration


@pytest.fixture(
    scope="module", params=[1, pytest.param(3, marks=pytest.mark.long)], ids=["one", "three"]
)
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredCluster]:
    spec = SandboxSpec(brokers=request.param, jvm="quick", heap_mib=256, overrides=OVERRIDES)
    made = Sandbox.up(tmp_path_factory.mktemp("secured"), with_workers(spec))
    try:
        with SecuredCluster(made) as cluster:
            cluster.close_cluster()
            yield cluster
    finally:
        made.down(delete=True)


def taken_away_one_at_a_time(topic: str) -> tuple[Acl, ...]:
    """Describe comes with others that imply it: it can be missing with them only."""
    of_topic = [
        acl for acl in of_tier(topic) if acl.operation in ("Read", "Delete", "AlterConfigs")
    ]
    return (*of_topic, *of_principal([cluster_acl("Describe")], ANONYMOUS))


def test_h40_enabling_names_each_missing_right_and_alters_nothing(secured: SecuredCluster) -> None:
    topic, brokers = fresh("refused"), secured.sandbox.state.spec.brokers
    secured.create_topic(topic, partitions=brokers, replication_factor=brokers)
    before = secured.topic_config(topic)
    nothing = secured.rlm("topics", "enable", topic, "--trim", check=False).stderr
    for acl in of_tier(topic):
        assert str(acl) in nothing, nothing
    assert nothing.count("\n") == 1, nothing
    secured.grant(*of_tier(topic))
    for acl in taken_away_one_at_a_time(topic):
        secured.take_away(acl)
        said = secured.rlm("topics", "enable", topic, "--trim", check=False)
        assert said.returncode != 0
        assert said.stderr.count("\n") == 1, said.stderr
        assert said.stderr.count(f"missing ACL: {acl}") == 1, said.stderr
        assert said.stderr.count(", operation ") == 1, said.stderr
        assert grants([acl])[0] in said.stderr
        assert secured.topic_config(topic) == before
        assert secured.rlm_json("topics", "list").get("topics", []) == []
        secured.grant(acl)
    assert secured.log_lines("topic_config_altered") == []


REST = (
    cluster_acl("DescribeConfigs"),
    topic_acl("Describe", "__consumer_offsets"),
    *(acl for acl in OF_OUR_TOPICS if acl.operation != "Describe"),
)
"""The long way only. Describe of our own topics comes with Read and with Write."""


def assert_reported(secured: SecuredCluster, acl: Acl, node_id: int) -> None:
    """Asserts that metrics, health and one line of the log report it."""
    text = f"missing ACL: {acl}"

    reported: list[str] = []

    def is_reported() -> bool:
        reported[:] = [one for one in secured.problems(node_id) if one.startswith("missing ACL")]
        return bool(reported)

    secured.wait_for(is_reported, f"a problem for {acl}")
    (found,) = reported
    assert found.startswith(text)
    secured.wait_for(
        lambda: secured.problem_count(node_id) == len(secured.problems(node_id)),
        "as many problems in the metrics as in /healthz, of which each is asked on its own",
    )
    assert secured.is_alarmed(node_id) and secured.is_ready(node_id)

    def logged() -> list[str]:
        lines = secured.log_lines("problem", node_id)
        return [
            line["problem"]
            for line in lines
            if line["kind"] == "acl-missing" and str(acl) in line["problem"]
        ]

    secured.wait_for(lambda: bool(logged()), f"a line of the log for {acl}")
    assert logged() == [found]


def test_h40_rights_taken_away_later_are_one_line_and_a_problem(secured: SecuredCluster) -> None:
    topic, brokers = fresh("taken"), secured.sandbox.state.spec.brokers
    secured.create_topic(topic, replication_factor=brokers)
    secured.grant(*of_tier(topic))
    secured.enable(topic)
    rows = secured.fill(topic, mib=4, **SUPER_USER)
    secured.wait_all_within(topic, beyond=0)
    assert_same(secured.read_all(topic, **SUPER_USER), rows)
    secured.wait_for(lambda: all(map(secured.is_ready, secured.nodes)), "readiness")
    rights = taken_away_one_at_a_time(topic)
    if brokers > 1:
        rights = (*rights, *REST)
    for acl in rights:
        secured.take_away(acl)
        for node_id in secured.nodes:
            assert_reported(secured, acl, node_id)
        secured.grant(acl)
        secured.wait_for(lambda: not any(map(secured.problems, secured.nodes)), "no problem")
    secured.fill(topic, mib=4, first=4096, **SUPER_USER)
    secured.wait_all_within(topic, beyond=4096)
    # Records that were trimmed before do not prevent a proof.
    secured.rlm("topics", "trim", topic, "off", "--giveback")
    secured.rlm("topics", "trim", topic, "on")
