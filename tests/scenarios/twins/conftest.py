"""The twins that the tests of this folder share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import Override, SandboxSpec
from tests.endings import ended_early
from tests.sandbox_fixtures import with_workers
from tests.scenarios.cluster import Cluster
from tests.scenarios.twins.topics import TwinTopics, made_twins

_LITTLE_CACHE = Override(scope="rlm", key="fetch.chunk.cache.bytes", value=str(4 << 20))


@pytest.fixture(scope="package")
def twins(one_broker: Sandbox) -> Iterator[TwinTopics]:
    """Made once for each sandbox; read them only."""
    cluster = Cluster(one_broker)
    try:
        yield made_twins(cluster)
    finally:
        cluster.delete_topics()
        cluster.close()


@pytest.fixture(scope="session")
def three_on_s3(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sandbox]:
    """Three brokers whose store is S3, with services that must ask it again and again; until the
    last test. RLM_SCENARIO_SANDBOX=DIR: a running one instead.
    """
    if running := os.environ.get("RLM_SCENARIO_SANDBOX"):
        yield Sandbox.open(Path(running))
        return
    spec = SandboxSpec(brokers=3, store="s3", jvm="quick", heap_mib=256, overrides=(_LITTLE_CACHE,))
    made = Sandbox.up(tmp_path_factory.mktemp("on-s3"), with_workers(spec))
    keep = os.environ.get("RLM_KEEP_SANDBOX")
    with ended_early(request, lambda: made.down(delete=not keep)):
        yield made
