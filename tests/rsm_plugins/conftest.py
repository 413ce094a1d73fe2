"""The stores the conformance kit is tried on, by kind."""

from pathlib import Path

import pytest

from tests.rsm_plugins.stores import StoreRig, hdfs_rig, local_rig, s3_rig

HDFS = pytest.param("hdfs", marks=pytest.mark.integration)
KINDS = ("local", "s3", HDFS)


@pytest.fixture
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> StoreRig:
    """A store of the kind that the test is parametrized with (`indirect`)."""
    if request.param == "local":
        return local_rig(tmp_path)
    if request.param == "s3":
        return s3_rig(request.getfixturevalue("s3_server"))
    return hdfs_rig(request.getfixturevalue("hdfs_server"))
