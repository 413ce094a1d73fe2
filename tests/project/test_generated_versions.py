"""Generated code demands a lowest grpcio and protobuf; the base dependencies must promise them."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.project.tree import ROOT, files

GRPC = re.compile(r"^GRPC_GENERATED_VERSION = '([0-9.]+)'$", re.MULTILINE)
PROTOBUF = re.compile(r"^# Protobuf Python Version: ([0-9.]+)$", re.MULTILINE)


@pytest.mark.parametrize(("package", "pattern"), [("grpcio", GRPC), ("protobuf", PROTOBUF)])
def test_lower_bounds_are_those_of_the_generated_code(
    package: str, pattern: re.Pattern[str]
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = {wanted.name: wanted.specifier for wanted in map(Requirement, project["dependencies"])}
    modules = [path for path in files() if path.name.endswith(("_pb2.py", "_pb2_grpc.py"))]
    generated = {found for path in modules for found in pattern.findall(path.read_text("utf-8"))}
    assert {str(bounds[package])} == {f">={version}" for version in generated}
