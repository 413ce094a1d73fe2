"""A node whose API the commands of these tests ask."""

from collections.abc import AsyncIterator

import pytest

from tests.rlm.api.harness import Node, api_node
from tests.rlm.topics.cluster import Cluster


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with api_node(Cluster()) as running:
        yield running
