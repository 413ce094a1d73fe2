"""`rlm status`: stores, readers and problems, and when it fails."""

import json

from kip405.ids import Uuid
from rlm.plans.problems import Problem, ProblemKind
from rlm.stores.reports import StoreStatus
from rlmm.settings_records import ReaderRecord, ServiceRecord
from tests.builders.log_dir import TOPIC
from tests.rlm.api.harness import Node
from tests.rlm.cli.invoking import as_json, asked


async def test_status_shows_each_store_once_with_what_is_wrong(node: Node) -> None:
    store_id = Uuid(b"\x51" * 16)
    node.stores.statuses = (
        StoreStatus(
            name="hot",
            store_id=store_id,
            plugin="s3",
            uri="s3://hot",
            segments=3,
            size_bytes=2048,
            alarms=("objects go after 7 d",),
        ),
        StoreStatus(name="cold", problem="the plugin is away"),
        StoreStatus(store_id=Uuid(b"\x52" * 16), problem="not configured"),
    )
    shown = await asked(node, "status")
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["hot", str(store_id), "s3", "s3://hot", "3", "/", "2.0", "KiB", "alarm"] in lines
    [cold] = [line for line in lines if line[:2] == ["cold", "-"]]
    assert cold[-4:] == ["not", "well", "for", "1"]
    assert any(line[:2] == ["(not", "configured)"] for line in lines)
    [service] = (await as_json(node, "status"))["services"]
    assert [store["name"] for store in service["stores"]] == ["hot", "cold", ""]


FULL = Problem(
    kind=ProblemKind.STORE_REFUSES_WRITES, subject="store hot", text="it is full", since_ms=60_000
)
SOON = Problem(
    kind=ProblemKind.CERTIFICATE_ENDS_SOON, subject="api.pem", text="renew it", since_ms=60_000
)


async def test_h38_status_prints_a_problem_once_and_an_alarm_is_an_exit_status(
    node: Node,
) -> None:
    assert (await asked(node, "status")).exit_code == 0
    node.statuses.problems[:] = [SOON]
    warned = await asked(node, "status")
    assert warned.exit_code == 0
    assert (
        "warning: api.pem: renew it [certificate-ends-soon, since 1970-01-01 00:01:00 UTC, "
        "reported by 1]"
    ) in warned.stdout.splitlines()
    node.statuses.problems[:] = [FULL, SOON]
    shown = await asked(node, "status")
    assert (shown.exit_code, shown.stderr) == (1, "")
    assert shown.stdout.count("it is full") == 1
    document = await asked(node, "status", "--json")
    assert document.exit_code == 1
    [full, soon] = json.loads(document.stdout)["problems"]
    assert full == {
        "kind": "store-refuses-writes",
        "severity": "alarm",
        "subject": "store hot",
        "text": "it is full",
        "topic": "",
        "since_ms": 60_000,
        "node_ids": [1],
        "risk": "at-risk",
    }
    assert soon["severity"] == "warning"


async def test_h38_a_lag_that_is_not_known_is_unknown_and_null(node: Node) -> None:
    await as_json(node, "topics", "enable", TOPIC)
    assert (await as_json(node, "status"))["partitions"][0]["lag_bytes"] == 2048
    node.statuses.lag_bytes = None
    row = (await as_json(node, "status"))["partitions"][0]
    assert row["lag_bytes"] is None and row["lag_segments"] is None
    (line,) = [
        one for one in (await asked(node, "status")).stdout.splitlines() if f"{TOPIC}-0" in one
    ]
    assert "unknown" in line.split()


async def test_status_shows_readers_apart_from_services(node: Node) -> None:
    alone = (await asked(node, "status")).stdout
    assert "reader" not in alone and "versions" not in alone
    await node.service.settings.publish(
        ReaderRecord(grpc_address="reads-1:9500", http_address="reads-1:9501", version="7")
    )
    found = await as_json(node, "status")
    assert [row["node_id"] for row in found["services"]] == [1]
    assert [(row["grpc_address"], row["alive"]) for row in found["readers"]] == [
        ("reads-1:9500", True)
    ]
    shown = (await asked(node, "status")).stdout
    (line,) = [one for one in shown.splitlines() if one.startswith("reads-1:9500")]
    assert line.split()[1] == "7" and line.endswith("well")
    (mix,) = [one for one in shown.splitlines() if one.startswith("2 versions: ")]
    assert "7 (reader reads-1:9500)" in mix and "(service 1)" in mix
    node.service.clock.advance(31_000)
    silent = (await asked(node, "status")).stdout
    assert "SILENT" in silent and "versions" not in silent
    node.service.clock.advance(24 * 3_600_000)
    assert "reads-1:9500" not in (await asked(node, "status")).stdout


async def test_versions_are_those_of_services_that_live(node: Node) -> None:
    """One that is gone for good keeps its heartbeat on record, with the version that it had."""
    gone = ServiceRecord(node_id=9, listen={"grpc": "127.0.0.1:9"}, advertised={}, version="0.9")
    await node.service.settings.publish(gone)
    assert "2 versions: 0.9 (service 9)" in (await asked(node, "status")).stdout
    node.service.clock.advance(31_000)
    [row] = [one for one in (await as_json(node, "status"))["services"] if one["node_id"] == 9]
    assert (row["version"], row["reachable"], row["alive"]) == ("0.9", False, False)
    assert "versions" not in (await asked(node, "status")).stdout
