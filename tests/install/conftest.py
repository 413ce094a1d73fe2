"""What `make dist` builds, once for all tests here."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from build_tools.dist import build
from tests.install.environments import VERSION


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The files of a release by what they are: `kafka_rlm.whl`, `kafka_rlm_spark.tar.gz`."""
    paths = build(tmp_path_factory.mktemp("dist"), VERSION)
    return {f"{path.name.split('-')[0]}{_end(path)}": path for path in paths}


def _end(path: Path) -> str:
    return ".whl" if path.suffix == ".whl" else ".tar.gz"
