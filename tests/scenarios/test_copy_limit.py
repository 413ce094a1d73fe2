"""`rlm copy-limit` on a real broker: it counts for a service that runs, and outlives it."""

import pytest

from tests.scenarios.cluster import Cluster, fresh
from tests.scenarios.test_h38_problems import Operator

pytestmark = pytest.mark.integration

_THROTTLED = "rlm_remote_copy_throttled_seconds_total "
_IN_EFFECT = "rlm_copy_limit_bytes_per_second "
_MIB = 1 << 20


def _metric(operator: Operator, name: str) -> float:
    [line] = [row for row in operator.get("/metrics").splitlines() if row.startswith(name)]
    return float(line.removeprefix(name))


def _wait_in_effect(cluster: Cluster, limit: float) -> None:
    """A service goes by what was decided as soon as it has read it."""
    operator = Operator(cluster)
    cluster.wait_for(lambda: _metric(operator, _IN_EFFECT) == limit, f"a limit of {limit}")


def test_a_limit_is_raised_while_copies_wait_and_outlives_the_service(one: Cluster) -> None:
    topic, operator = fresh("limited"), Operator(one)
    one.create_topic(topic)
    configured = _metric(operator, _IN_EFFECT)
    one.rlm("copy-limit", "1MiB")
    try:
        before_s = _metric(operator, _THROTTLED)
        one.enable(topic)
        one.fill(topic, mib=60)
        one.wait_for(lambda: _metric(operator, _THROTTLED) > before_s + 2, "copies wait")
        one.rlm("copy-limit", "512MiB", "--node", "1")
        _wait_in_effect(one, 512 * _MIB)
        raised_s = _metric(operator, _THROTTLED)
        one.wait_copied(topic)
        assert _metric(operator, _THROTTLED) < raised_s + 2, "60 MiB take a minute at 1 MiB/s"
        one.sandbox.kill("rlm:1")
        one.sandbox.start("rlm:1")
        _wait_in_effect(one, 512 * _MIB)
        [node] = one.rlm_json("copy-limit", "--default", "--node", "1")["nodes"]
        assert (node["bytes_per_second"], node["overruled"]["node_id"]) == (_MIB, None)
    finally:
        one.rlm("copy-limit", "--default", "--node", "1", check=False)
        one.rlm("copy-limit", "--default")
    _wait_in_effect(one, configured)
