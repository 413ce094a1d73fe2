"""A topic whose layout changes in the middle, from one layout to all others and back.

A change holds for what is copied from then on. What was copied before stays as it is, and services
that begin later read all of it.
"""

from collections.abc import Callable
from itertools import groupby

from rlm_sandbox.sandbox import Sandbox
from tests.sandbox_fixtures import PINTEREST_KEYS, SandboxFactory, enable_versioning
from tests.scenarios.cluster import Cluster, Row
from tests.scenarios.objects import finished_segments

CHANGES = ("kafka", "blocks", "pinterest", "kafka")
_KEPT = ("--local-retention-bytes", "1048576")
_MIB = 3


def with_all_layouts(sandbox_factory: SandboxFactory, kind: str = "local") -> Sandbox:
    """A sandbox whose store takes segments in every layout."""
    overrides = tuple(f"store.{key}={value}" for key, value in PINTEREST_KEYS.items())
    made = sandbox_factory(store=kind, overrides=overrides)
    enable_versioning(made)
    return made


def changed_through(
    cluster: Cluster, topic: str, check: Callable[[list[Row]], None] | None = None
) -> list[Row]:
    """Fill the topic in every layout of CHANGES, the service killed and started after each. `check`
    gets what was acknowledged so far, while the newest layout is that of the newest segments.
    """
    cluster.create_topic(topic)
    rows: list[Row] = []
    for layout in CHANGES:
        before = len(rows)
        cluster.enable(topic, "--trim", *_KEPT, "--layout", layout)
        rows += cluster.fill(topic, mib=_MIB, first=before)
        cluster.wait_copied(topic)
        cluster.wait_trimmed(topic, beyond=before)
        cluster.sandbox.kill("rlm:1")
        cluster.sandbox.start("rlm:1")
        if check is not None:
            check(rows)
    assert layouts_of(cluster, topic) == list(CHANGES)
    return rows


def layouts_of(cluster: Cluster, topic: str) -> list[str]:
    """The layouts of the segments in the order of offsets, each run once."""
    found = (str(one.custom().layout) for one in finished_segments(cluster, topic))
    return [layout for layout, _ in groupby(found)]
