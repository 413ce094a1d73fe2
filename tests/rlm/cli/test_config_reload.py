"""`rlm config reload`: what a service took, what waits for its restart, and what it refused."""

from typing import Any

from kip405.errors import Invalid
from rlm.api.server import ApiServer
from rlm.config.running import SettingChange, SettingChanges
from rlm.v1.fetch_pb2_grpc import FetchServiceServicer
from tests.rlm.api.harness import api_node
from tests.rlm.cli.invoking import as_json, asked, assert_one_line, rlm
from tests.rlm.topics.cluster import Cluster

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


async def test_a_reader_says_how_it_reads_its_settings_again_and_has_no_other_command() -> None:
    unimplemented: Any = FetchServiceServicer
    server = ApiServer(admin=None, fetch=unimplemented(), listen="127.0.0.1:0")
    address = {"RLM_ADDRESS": await server.start()}
    try:
        reload = await rlm("config", "reload", env=address)
        status = await rlm("status", env=address)
    finally:
        await server.stop()
    assert_one_line(reload, address["RLM_ADDRESS"], "is a reader; send SIGHUP", status=2)
    assert_one_line(status, "does not have this call: it is a reader", status=2)
