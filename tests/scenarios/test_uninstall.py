"""A service that is adopted and taken away again leaves the cluster as it was, and while it is well
no alert of Prometheus fires.
"""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from build_tools.reference.alerts import ALERTS
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import SandboxSpec
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from tests.rlm.alert_values import Scrape
from tests.sandbox_fixtures import with_workers
from tests.scenarios.adoption_page import AdoptionPage
from tests.scenarios.cluster import Row, assert_same
from tests.scenarios.cluster_state import ClusterState, commit, names_on_disk, state_of
from tests.scenarios.test_h38_problems import Operator
from tests.scenarios.test_secured import PrincipalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

_TOPIC = "clicks"
_SERVICE, _PLUGIN = "rlm:1", "plugin:1"
_AT_ONCE = frozenset(one.name for one in ALERTS if one.lasts == "0m")
_MAY_BE_UNKNOWN = frozenset(
    f"Rlm{name}"
    for name in (
        "CertificateEnds",
        "CopyBacklog",
        "CopyBehind",
        "LogDirFills",
        "OpenTransaction",
        "PluginRestarts",
        "RemoteReadsFail",
    )
)
"""Their metrics have no sample without TLS, a rate, segments that wait, an hour of growth, a plugin
that the service has started, or a read that has failed.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A cluster as it was before its service ran for the first time, and with it."""

    cluster: PrincipalCluster
    before: ClusterState
    names: set[str]
    rows: list[Row]


@pytest.fixture(scope="module")
def adopted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adopted]:
    """With an authorizer: what a principal may do is part of the cluster."""
    spec = SandboxSpec(security="sasl_plaintext", jvm="quick", without=(_SERVICE,))
    made = Sandbox.up(tmp_path_factory.mktemp("adopted"), with_workers(spec))
    try:
        with PrincipalCluster.of_sandbox(made) as cluster:
            yield _adopted(cluster)
    finally:
        made.down(delete=True)


def _adopted(cluster: PrincipalCluster) -> Adopted:
    past: dict[str, Any] = {"bootstrap.servers": cluster.direct}
    cluster.create_topic(_TOPIC, configs={"retention.ms": "604800000"})
    rows = cluster.fill(_TOPIC, mib=3, **past)
    commit(cluster, {**cluster.client, **past}, "readers", _TOPIC, len(rows))
    before, names = state_of(cluster), names_on_disk(cluster, 1)
    cluster.sandbox.start(_SERVICE)
    cluster.enable(_TOPIC)
    cluster.wait_trimmed(_TOPIC)
    return Adopted(cluster=cluster, before=before, names=names, rows=rows)


def _beyond(now: str, earlier: str) -> set[str]:
    scrape = Scrape(now, earlier)
    return {one.name for one in ALERTS if scrape.is_firing(one.name)}


def test_a_healthy_service_fires_no_alert(adopted: Adopted) -> None:
    """An alert that is to last fires only where it is beyond its threshold all the time: so late
    work of a busy machine is none.
    """
    cluster = adopted.cluster
    operator = Operator(cluster)
    earlier = operator.get("/metrics")
    assert_same(cluster.read_all(_TOPIC, end={0: len(adopted.rows)}), adopted.rows)
    cluster.wait_copied(_TOPIC)
    lasting = {one.name for one in ALERTS}

    def is_quiet() -> bool:
        now = operator.get("/metrics")
        beyond = _beyond(now, earlier)
        assert not beyond & _AT_ONCE, f"{sorted(beyond & _AT_ONCE)} would fire at once"
        lasting.intersection_update(beyond)
        return not lasting

    cluster.wait_for(is_quiet, "no alert is beyond its threshold")
    measured = {line.partition("{")[0].partition(" ")[0] for line in earlier.splitlines()}
    unmeasured = {one.name for one in ALERTS if one.measure.metric not in measured}
    assert unmeasured <= _MAY_BE_UNKNOWN, "nothing was compared"


def test_a_service_that_lost_its_store_is_beyond_a_threshold(adopted: Adopted) -> None:
    """So the test above can fail."""
    cluster, operator = adopted.cluster, Operator(adopted.cluster)
    cluster.sandbox.kill(_PLUGIN)
    try:
        cluster.wait_for(
            lambda: "RlmStoreUnavailable" in _beyond(operator.get("/metrics"), ""), "an alert"
        )
    finally:
        cluster.sandbox.start(_PLUGIN)
    cluster.wait_for(
        lambda: "RlmStoreUnavailable" not in _beyond(operator.get("/metrics"), ""), "no alert"
    )


def test_what_is_uninstalled_leaves_the_cluster_as_it_was(adopted: Adopted) -> None:
    cluster, before = adopted.cluster, adopted.before
    page = AdoptionPage(cluster, {})
    assert state_of(cluster).topic_configs[_TOPIC] != before.topic_configs[_TOPIC]
    page.run("Uninstall", "rlm topics disable T --confirm", T=_TOPIC)
    cluster.wait_for(
        lambda: state_of(cluster).topic_configs[_TOPIC] == before.topic_configs[_TOPIC],
        "the topic's own settings",
    )
    cluster.sandbox.stop(_SERVICE)
    cluster.sandbox.stop(_PLUGIN)
    shutil.rmtree(cluster.sandbox.layout.rlm_state(1))
    for asked in cluster.admin.delete_topics([LEDGER_TOPIC, SETTINGS_TOPIC]).values():
        asked.result(120)
    cluster.wait_for(lambda: names_on_disk(cluster, 1) == adopted.names, "the disks are as before")
    with contextlib.suppress(AssertionError):  # what differs is shown below
        cluster.wait_for(lambda: state_of(cluster) == before, "the state of before")
    assert state_of(cluster) == before
    start = cluster.log_start(_TOPIC)
    past: dict[str, Any] = {"bootstrap.servers": cluster.direct}
    left = cluster.read_all(_TOPIC, start={0: start}, **past)
    assert_same(left, adopted.rows[start:])
