"""Clusters that scenarios share; a scenario that stops parts leaves the cluster whole again."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm.sandbox.sandbox import Sandbox
from rlm.sandbox.spec import Override, SandboxSpec
from tests.scenarios.cluster import Cluster
from tests.scenarios.faults import whole
from tests.scenarios.replicas import heal

_RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture(scope="session")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Three brokers in racks rack-1 to rack-3, each with plugin and service, for the session.

    RLM_SCENARIO_SANDBOX=DIR: a running one instead, to repeat a test without the start-up.
    """
    if running := os.environ.get("RLM_SCENARIO_SANDBOX"):
        yield Sandbox.open(Path(running))
        return
    selector = Override(scope="broker", key="replica.selector.class", value=_RACK_AWARE)
    spec = SandboxSpec(brokers=3, jvm="quick", heap_mib=256, overrides=(selector,))
    made = Sandbox.up(tmp_path_factory.mktemp("three"), spec)
    try:
        yield made
    finally:
        made.down(delete=not os.environ.get("RLM_KEEP_SANDBOX"))


@pytest.fixture
def three(three_brokers: Sandbox) -> Iterator[Cluster]:
    """The shared three-broker cluster, whole again after the test: use topics of your own."""
    cluster = Cluster(three_brokers)
    try:
        yield cluster
    finally:
        heal(cluster)


@pytest.fixture(scope="session")
def one_broker(request: pytest.FixtureRequest) -> Sandbox:
    """The session's one-broker sandbox; RLM_ONE_SANDBOX=DIR: a running one instead."""
    if running := os.environ.get("RLM_ONE_SANDBOX"):
        return Sandbox.open(Path(running))
    made: Sandbox = request.getfixturevalue("sandbox")
    return made


@pytest.fixture
def one(one_broker: Sandbox) -> Iterator[Cluster]:
    """The shared one-broker cluster, whole again after the test: use topics of your own."""
    cluster = Cluster(one_broker)
    try:
        yield cluster
    finally:
        whole(cluster)
