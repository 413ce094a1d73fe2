"""The conformance kit against S3 and HDFS in containers: called directly, and through gRPC."""

from dataclasses import replace
from pathlib import Path

import pytest
from hdfs_native import Client

from rsm_plugins.conformance import runner
from rsm_plugins.conformance.runner import Status, run_suite
from tests.containers.conftest import ServedStore
from tests.rsm_plugins.stores import BYTES, DIRECT, StoreRig, opened

pytestmark = pytest.mark.integration


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", [DIRECT, BYTES])
@pytest.mark.parametrize("server", ["s3_container", "hdfs_container"])
async def test_contract(
    server: str, mode: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store: ServedStore = request.getfixturevalue(server)
    if store.kind == "hdfs":
        Client(str(store.rows["rsm.config.hdfs.url"])).mkdirs(str(store.rows["rsm.config.root"]))
    rig = StoreRig(kind=store.kind, rows=store.rows, faults=None, many=store.many)
    async with opened(rig, mode, tmp_path) as subject:
        outcomes = await run_suite(replace(subject, many=store.many), mode, runner.CASES)
    assert [one for one in outcomes if one.status is Status.FAILED] == []
