"""`python -m build_tools.proto [--check]`: the modules generated from proto/, made or compared.

`proto/rlm/v1/fetch.proto` becomes `rlm/v1/fetch_pb2.py` and, where it declares a service,
`fetch_pb2_grpc.py`, each with its `.pyi` (the second by mypy-protobuf). Generated code is
committed, so that neither users nor executors need protoc.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from build_tools.locks import ROOT

SOURCES = ROOT / "proto"
SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")


def generate(target: Path) -> frozenset[Path]:
    """Generate every module below target; the paths made, relative to it."""
    sources = sorted(path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.proto"))
    if not sources:
        return frozenset()
    _protoc([f"--python_out={target}", f"--pyi_out={target}"], sources)
    services = [name for name in sources if _declares_service(SOURCES / name)]
    if services:
        _protoc([f"--grpc_python_out={target}", f"--mypy_grpc_out=quiet:{target}"], services)
    return found(target)


def _protoc(outputs: list[str], sources: list[str]) -> None:
    # protoc finds mypy-protobuf's plugin beside the interpreter.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{SOURCES}", *outputs, *sources]
    subprocess.run(command, check=True, env={**os.environ, "PATH": path})


def _declares_service(path: Path) -> bool:
    lines = path.read_text(encoding="utf-8").splitlines()
    return any(line.startswith("service ") for line in lines)


def found(root: Path) -> frozenset[Path]:
    """The generated modules below a folder, relative to it; hidden folders are not entered."""
    tops = [child for child in root.iterdir() if child.is_dir() and not child.name.startswith(".")]
    return frozenset(
        path.relative_to(root)
        for top in tops
        for path in top.rglob("*_pb2*")
        if path.name.endswith(SUFFIXES)
    )


def stale() -> list[str]:
    """The faults of the committed generated code, one line each; empty when it is fresh."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        expected = generate(fresh)
        present = found(ROOT)
        missing = [f"{path}: not generated" for path in sorted(expected - present)]
        orphans = [f"{path}: has no .proto" for path in sorted(present - expected)]
        differing = [
            f"{path}: differs from its .proto"
            for path in sorted(expected & present)
            if (ROOT / path).read_bytes() != (fresh / path).read_bytes()
        ]
    return missing + orphans + differing


def refresh() -> int:
    """Make the committed generated code what proto/ says; the number of files it now is."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        expected = generate(fresh)
        for path in expected:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_bytes((fresh / path).read_bytes())
        for orphan in found(ROOT) - expected:
            (ROOT / orphan).unlink()
    return len(expected)


def main(arguments: list[str]) -> int:
    """Generate, or with --check only compare; the exit status of the process."""
    if arguments != ["--check"]:
        print(f"{refresh()} generated files")
        return 0
    problems = stale()
    for problem in problems:
        print(problem)
    if problems:
        print("run: make proto")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
