"""An API server of a cluster whose topic is enabled; those of the harness know no topic."""

import contextlib
from collections.abc import AsyncIterator

from rlm.api.calls import TokenSource, no_tokens
from rlm.reading.throttle import ThrottleLimits
from rlm.topics.verbs import EnableOptions
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.builders.throttle import NO_LIMITS
from tests.rlm.api.harness import Log, Node, api_node
from tests.rlm.topics.cluster import Cluster


@contextlib.asynccontextmanager
async def enabled_node(
    cluster: Cluster,
    *,
    node_id: int = 1,
    log: Log | None = None,
    tokens: TokenSource = no_tokens,
    limits: ThrottleLimits = NO_LIMITS,
) -> AsyncIterator[Node]:
    """A service beside a broker, as `api_node`, whose topic is enabled."""
    made = api_node(cluster, node_id=node_id, log=log, tokens=tokens, limits=limits)
    async with made as node:
        await node.service.settings.barrier(1)
        if node.service.settings.view.topic(TOPIC_ID) is None:
            await node.service.verbs.enable(TOPIC, EnableOptions())
        yield node
