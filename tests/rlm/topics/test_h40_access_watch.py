"""H40: an ACL that is taken away is one line and one problem, whoever would need it next."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
import structlog

from kip405.acls import CLUSTER_NAME, OUR_PRINCIPAL, Acl, cluster_acl, topic_acl
from kip405.errors import Unavailable
from rlm.plans.problems import ProblemKind
from rlm.plans.rights import EVERY_CASE, GROUPS_TOPIC, Role, Topics, least_acls
from rlm.service.problems import ProblemWatch
from rlm.topics.access import AccessWatch
from rlm.topics.needed_acls import needed_acls, not_granted
from rlm.topics.verbs import EnableOptions
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from tests.builders.clock import ManualClock
from tests.builders.log_dir import TOPIC
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.world import ServiceUnderTest

EVERYTHING = frozenset({"Read", "Write", "Delete", "Describe", "DescribeConfigs", "AlterConfigs"})


class BrokerWithAcls:
    """Allows everything but what is denied."""

    def __init__(self) -> None:
        self.denied: set[Acl] = set()
        self.is_down = False
        self.answers = True

    async def on_cluster(self) -> frozenset[str] | None:
        return self._operations("Cluster", CLUSTER_NAME)

    async def on_topics(self, topics: Sequence[str]) -> Mapping[str, frozenset[str] | None]:
        return {name: self._operations("Topic", name) for name in topics}

    def _operations(self, kind: str, name: str) -> frozenset[str] | None:
        if self.is_down:
            raise Unavailable("no answer")
        if not self.answers:
            return None
        mine = {
            one.operation
            for one in self.denied
            if (one.resource_type, one.resource_name) == (kind, name)
        }
        return frozenset() if "Describe" in mine else EVERYTHING - mine


async def watched(options: EnableOptions) -> tuple[BrokerWithAcls, AccessWatch]:
    service = ServiceUnderTest(Cluster())
    await service.verbs.enable(TOPIC, options)
    broker = BrokerWithAcls()
    return broker, access_watch(
        broker, lambda: needed_acls(service.settings.view.topics(), alters_configs=True)
    )


def access_watch(broker: BrokerWithAcls, needed: Callable[[], Sequence[Acl]]) -> AccessWatch:
    return AccessWatch(
        allowed=broker,
        needed=needed,
        clock=ManualClock(),
        interval_ms=lambda: 1_000,
        principal=None,
    )


OF_READER = least_acls(Role.READER, OUR_PRINCIPAL, Topics(), EVERY_CASE)


NEEDED = [
    cluster_acl("DescribeConfigs"),
    cluster_acl("Describe"),
    topic_acl("Describe", GROUPS_TOPIC),
    *(
        topic_acl(operation, topic)
        for topic in (LEDGER_TOPIC, SETTINGS_TOPIC)
        for operation in ("Read", "Write", "Describe", "DescribeConfigs")
    ),
    *(
        topic_acl(operation, TOPIC)
        for operation in ("Read", "Delete", "AlterConfigs", "Describe", "DescribeConfigs")
    ),
]


@pytest.mark.parametrize("acl", NEEDED, ids=str)
async def test_h40_each_right_taken_away_is_one_line_and_one_problem(acl: Acl) -> None:
    broker, watch = await watched(EnableOptions(trim=True))
    await assert_one_line_and_one_problem(broker, watch, acl)


@pytest.mark.parametrize("acl", OF_READER, ids=str)
async def test_h40_each_right_of_a_reader_taken_away_is_one_line_and_one_problem(acl: Acl) -> None:
    broker = BrokerWithAcls()
    await assert_one_line_and_one_problem(broker, access_watch(broker, lambda: OF_READER), acl)


async def assert_one_line_and_one_problem(
    broker: BrokerWithAcls, watch: AccessWatch, acl: Acl
) -> None:
    problems = ProblemWatch((watch.findings,), ManualClock())
    await watch.check()
    assert problems.current() == ()
    broker.denied = {acl}
    with structlog.testing.capture_logs() as lines:
        await watch.check()
        await watch.check()
        (problem,) = problems.current()
        assert problems.current() == (problem,)
    assert watch.missing == (acl,)
    assert problem.kind is ProblemKind.ACL_MISSING
    (line,) = lines
    assert (line["event"], line["log_level"]) == ("problem", "error")
    assert str(acl) in line["problem"]
    assert f"--operation {acl.operation}" in line["problem"]
    broker.denied = set()
    with structlog.testing.capture_logs() as lines:
        await watch.check()
        assert problems.current() == ()
    assert [line["event"] for line in lines] == ["problem_ended"]


async def test_h40_mode_copy_misses_nothing_that_it_does_not_use() -> None:
    broker, watch = await watched(EnableOptions())
    broker.denied = {
        cluster_acl("Describe"),
        topic_acl("Describe", GROUPS_TOPIC),
        *(topic_acl(operation, TOPIC) for operation in ("Read", "Delete", "AlterConfigs")),
    }
    await watch.check()
    assert watch.missing == ()


async def test_h40_a_right_that_no_broker_reports_is_unknown() -> None:
    broker, watch = await watched(EnableOptions(trim=True))
    assert watch.missing is None
    broker.denied = {topic_acl("Read", TOPIC)}
    await watch.check()
    broker.is_down = True
    await watch.check()
    assert watch.missing is None
    broker.is_down, broker.answers = False, False
    await watch.check()
    assert watch.missing is None


async def test_h40_topics_that_are_not_enabled_need_nothing() -> None:
    service = ServiceUnderTest(Cluster())
    record = (await service.verbs.enable(TOPIC, EnableOptions(trim=True))).record
    kept = needed_acls([replace(record, state="kept")], alters_configs=True)
    assert TOPIC not in {acl.resource_name for acl in kept}
    assert not_granted(needed_acls([record], alters_configs=True), {}) == ()


async def test_h40_who_alters_no_configuration_needs_no_right_to() -> None:
    service = ServiceUnderTest(Cluster())
    record = (await service.verbs.enable(TOPIC, EnableOptions(trim=True))).record
    needed = set(needed_acls([record], alters_configs=True))
    assert needed - set(needed_acls([record], alters_configs=False)) == {
        topic_acl("AlterConfigs", TOPIC)
    }
