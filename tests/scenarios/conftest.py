"""Clusters that scenarios share; a scenario that stops components starts them again."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import Override, SandboxSpec
from tests.endings import ended_early
from tests.sandbox_fixtures import with_versions, with_workers
from tests.scenarios.client_threads import clients_come_to, open_clients
from tests.scenarios.cluster import STORES, WORKERS, Cluster
from tests.scenarios.faults import whole

_SECURED_SETTINGS = (
    "rlm.remote.delete.delay.ms=3600000",
    "rlm.topic.deletion.grace.ms=2000",
    "rlm.retention.check.interval.ms=1000",
)
_RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture(autouse=True)
def _no_client_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test opens of librdkafka it closes too, or drops: it would complain of brokers that
    are gone to the end of the run. A failed test's frames are kept, and its clients with them.
    """
    before, failed = open_clients(), request.session.testsfailed
    yield
    if request.session.testsfailed == failed and open_clients() > before:
        gc.collect()
        assert clients_come_to(before), "the test left a client of librdkafka open"


@pytest.fixture(scope="session")
def three_brokers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sandbox]:
    """Three brokers in racks rack-1 to rack-3, each with two log dirs, plugin and service, until
    the last test.

    RLM_SCENARIO_SANDBOX=DIR: a running one instead, to repeat a test without the start-up.
    """
    if running := os.environ.get("RLM_SCENARIO_SANDBOX"):
        yield Sandbox.open(Path(running))
        return
    selector = Override(scope="broker", key="replica.selector.class", value=_RACK_AWARE)
    spec = SandboxSpec(brokers=3, log_dirs=2, jvm="quick", heap_mib=256, overrides=(selector,))
    made = Sandbox.up(tmp_path_factory.mktemp("three"), with_workers(spec))
    keep = os.environ.get("RLM_KEEP_SANDBOX")
    with ended_early(request, lambda: made.down(delete=not keep)):
        yield made


@pytest.fixture
def three(three_brokers: Sandbox) -> Iterator[Cluster]:
    """The shared three-broker cluster, whole again after the test: use topics of your own."""
    with Cluster(three_brokers) as cluster:
        try:
            yield cluster
        finally:
            whole(cluster)
            cluster.delete_topics()


@pytest.fixture(scope="session", params=["sasl_ssl", "mtls", "sasl_plaintext"])
def secured_sandbox(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sandbox]:
    """One broker with that security and StandardAuthorizer, and a reader where there is TLS, until
    the last test. What is decided to be deleted can be undone for an hour.
    """
    spec = SandboxSpec(
        security=request.param,
        readers=0 if request.param == "sasl_plaintext" else 1,
        jvm="quick",
        overrides=tuple(map(Override.parse, _SECURED_SETTINGS)),
    )
    made = Sandbox.up(tmp_path_factory.mktemp("secured"), with_workers(spec))
    keep = os.environ.get("RLM_KEEP_SANDBOX")
    with ended_early(request, lambda: made.down(delete=not keep)):
        yield made


@pytest.fixture(scope="session")
def one_broker(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """The session's one-broker sandbox; RLM_ONE_SANDBOX=DIR: a running one instead.

    A test that asks for a kind of store (indirect parameter `s3` or `hdfs`) gets one with that
    store, and for `workers` one with two proxy workers; tests of one kind run after each other and
    share it.
    """
    kind = getattr(request, "param", "local")
    spec = _spec_of(kind)
    if running := os.environ.get("RLM_ONE_SANDBOX"):
        opened = Sandbox.open(Path(running))
        has, wanted = opened.state.spec, (one for one in spec.overrides if one.scope != "broker")
        if has.store != spec.store or not set(has.overrides) >= set(wanted):
            pytest.skip(f"RLM_ONE_SANDBOX is not one for {kind}")
        yield opened
        return
    if kind == "local":
        yield request.getfixturevalue("sandbox")
        return
    folder = request.getfixturevalue("tmp_path_factory").mktemp(kind)
    made = with_versions(Sandbox.up(folder, spec))
    try:
        yield made
    finally:
        made.down(delete=not os.environ.get("RLM_KEEP_SANDBOX"))


def _spec_of(kind: str) -> SandboxSpec:
    if kind == WORKERS:
        return with_workers(SandboxSpec(jvm="quick"), "2")
    return with_workers(SandboxSpec(store=kind, jvm="quick"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Last the tests of the remote stores, those of one store together: each is up once."""
    items.sort(key=lambda item: STORES.index(_store_of(item)))


def _store_of(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    found = callspec.params.get("one_broker") if callspec is not None else None
    return found if found in STORES else "local"


@pytest.fixture
def one(one_broker: Sandbox) -> Iterator[Cluster]:
    """The shared one-broker cluster, whole again after the test: use topics of your own."""
    with Cluster(one_broker) as cluster:
        try:
            yield cluster
        finally:
            whole(cluster)
            cluster.delete_topics()
