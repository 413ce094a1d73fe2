"""The twins that the tests of this folder share."""

from collections.abc import Iterator

import pytest

from rlm_sandbox.sandbox import Sandbox
from tests.scenarios.cluster import Cluster
from tests.scenarios.twins.topics import TwinTopics, made_twins


@pytest.fixture(scope="package")
def twins(one_broker: Sandbox) -> Iterator[TwinTopics]:
    """Made once for each sandbox; read them only."""
    cluster = Cluster(one_broker)
    try:
        yield made_twins(cluster)
    finally:
        cluster.delete_topics()
        cluster.close()
