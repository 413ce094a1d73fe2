"""`rlm config reload`: what a service took, what waits for its restart, and what it refused."""

from kip405.errors import Invalid
from rlm.config.running import SettingChange, SettingChanges
from tests.rlm.api.harness import api_node
from tests.rlm.cli.invoking import as_json, asked, assert_one_line
from tests.rlm.topics.world import Cluster

CHANGES = SettingChanges(
    applied=(SettingChange(key="trim.interval.ms", before="30000", after="5000"),),
    needs_restart=("proxy.listen",),
)


async def test_it_prints_what_was_changed_and_what_waits() -> None:
    async with api_node(Cluster(), node_id=1) as node:
        assert (await asked(node, "config", "reload")).stdout == "no setting has changed\n"
        node.reload.found = CHANGES
        assert (await asked(node, "config", "reload")).stdout.splitlines() == [
            "trim.interval.ms: 30000 -> 5000",
            "proxy.listen: changed, and waits for a restart of the service",
        ]
        assert await as_json(node, "config", "reload") == {
            "applied": [{"key": "trim.interval.ms", "before": "30000", "after": "5000"}],
            "needs_restart": ["proxy.listen"],
        }


async def test_a_refused_reload_is_one_line_and_exit_status_2() -> None:
    async with api_node(Cluster(), node_id=1) as node:
        node.reload.found = Invalid("nothing was changed: log.level: must be debug or info")
        done = await asked(node, "config", "reload")
        assert_one_line(done, "nothing was changed: log.level: must be debug or info", status=2)
