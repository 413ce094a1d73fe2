"""Topics and objects that the version before wrote, under this one: everything is read back equal,
the settings hold, and the work goes on.

`written_before/` is the directory of a whole sandbox; its README says how it was made.
"""

import hashlib
import json
import tarfile
from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest

from rlm_sandbox import state as states
from rlm_sandbox.ports import PortReservation
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import Layout, Override
from rlm_sandbox.state import prepared
from tests.sandbox_fixtures import with_workers
from tests.scenarios.cluster import Cluster, Row, assert_same

pytestmark = pytest.mark.integration

KEPT = Path(__file__).parent / "written_before"
TOPICS = ("orders", "payments")
LEVELS = ("read_uncommitted", "read_committed")


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The kept sandbox with this version's services, on free ports."""
    root = tmp_path_factory.mktemp("written_before").resolve()
    with tarfile.open(KEPT / "sandbox.tar.xz") as kept:
        kept.extractall(root, filter="data")
    _take_free_ports(root)
    spec = Sandbox.open(root).state.spec
    # As in production: the retention that was never enforced would soon end the kept records.
    delay = Override.parse("rlm.remote.delete.delay.ms=86400000")
    sandbox = Sandbox.up(root, with_workers(replace(spec, overrides=(*spec.overrides, delay))))
    try:
        with Cluster(sandbox) as cluster:
            yield cluster
    finally:
        sandbox.down(delete=True)


def _take_free_ports(root: Path) -> None:
    layout = Layout(root=root)
    before = states.load_existing(root)
    with PortReservation() as ports:
        fresh = prepared(layout, before.spec, None, ports)
    states.save(layout, replace(fresh, cluster_id=before.cluster_id))


def digests(rows: list[Row], name: str) -> dict[str, dict[str, object]]:
    """What written_before/records.json has of each partition."""
    found: dict[str, dict[str, object]] = {}
    for partition in sorted({row.partition for row in rows}):
        own = [row for row in rows if row.partition == partition]
        digest = hashlib.sha256(b"".join(repr(astuple(row)).encode() for row in own))
        found[f"{name.replace(' ', f'-{partition} ')}"] = {
            "records": len(own),
            "first_offset": own[0].offset,
            "last_offset": own[-1].offset,
            "sha256": digest.hexdigest(),
        }
    return found


def test_every_record_is_read_as_the_version_before_read_it(upgraded: Cluster) -> None:
    found: dict[str, dict[str, object]] = {}
    for topic in TOPICS:
        for level in LEVELS:
            config: dict[str, Any] = {"isolation.level": level}
            rows = upgraded.read_all(topic, **config)
            found |= digests(rows, f"{topic} {level}")
    assert found == json.loads((KEPT / "records.json").read_text(encoding="utf-8"))
    # The broker has the end only: what is below came from the objects.
    assert upgraded.log_start("orders") > 3_000


def test_the_settings_hold_and_the_work_goes_on(upgraded: Cluster) -> None:
    upgraded.wait_for(
        lambda: "frozen by command" in str(upgraded.status("payments")["trim_reason"]),
        "payments is frozen as before",
    )
    before = upgraded.read_all("payments")
    upgraded.rlm("unfreeze", "payments")
    rows = upgraded.fill("payments", mib=3, first=9_000)
    # --force: a group of that time has its position below the bound.
    upgraded.enable("payments", "--trim", "--local-retention-bytes", "1048576", "--force")
    upgraded.wait_trimmed("payments", beyond=before[-1].offset)
    assert_same(upgraded.read_all("payments"), [*before, *rows])
