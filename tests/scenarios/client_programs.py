"""Readers in processes of their own: how each client's is made, and what it has read so far.

The programs are in `clients/`, one for each language; reader.py there says what they are given and
what they print. A machine that lacks what a program is made with leaves its client out.
"""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import pytest

from bench.java_classes import compiled, java_compiler, kafka_class_path
from rlm_sandbox.files import one_at_a_time
from rlm_sandbox.kafka_dist import cache_dir, java_environment, resolve_kafka
from rlm_sandbox.maven import cached_jars
from rlm_sandbox.spec import SandboxError
from rlm_sandbox.store_servers.versitygw import go_command
from tests.scenarios.client_table import Program, TestedClient
from tests.scenarios.cluster import Cluster, Row
from tests.scenarios.repeats import Commit

PROGRAMS = Path(__file__).parent / "clients"
EARLIEST = -2
_USUAL_GO = "/usr/local/go/bin/go"
_BUILD_LIMIT_S = 240
"""Less than a test has: where packets are lost, a client is left out and no test fails."""
_NPM_OPTIONS = (
    *("--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"),
    *("--fetch-timeout=20000", "--fetch-retries=1"),
)
_DONE = ".done"
_END_S = 60
_STREAMS_MIB = 6


def spec_of(
    client: TestedClient,
    cluster: Cluster,
    topic: str,
    count: int,
    *,
    starts: Mapping[int, int] | None = None,
    group: str | None = None,
    protocol: str = "classic",
    bootstrap: str | None = None,
) -> dict[str, Any]:
    """What a program is given; `bootstrap`: elsewhere than at the proxies."""
    return {
        "client": client.client,
        "bootstrap": bootstrap or cluster.bootstrap,
        "topic": topic,
        "count": count,
        "starts": None if starts is None else {str(p): at for p, at in starts.items()},
        "group": group,
        "protocol": protocol,
        "security": cluster.client_security(),
    }


@cache
def command_of(client: TestedClient) -> tuple[str, ...]:
    """The command of the client's program, which is made first; skips where it cannot be."""
    if client.program is Program.HERE:
        return (sys.executable, "-I", str(PROGRAMS / "reader.py"))
    if client.program is Program.PYTHON:
        python = _environment(client.version) / "bin" / "python"
        return (str(python), "-I", str(PROGRAMS / "reader.py"))
    if client.program is Program.GO:
        return (str(_go_program(client.client.partition("-")[0])),)
    if client.program is Program.NODE:
        return (_node(), str(_node_program() / "reader.js"))
    return _java(client)


def _java(client: TestedClient) -> tuple[str, ...]:
    dist = resolve_kafka(version=client.version)
    class_path, main = kafka_class_path(dist, PROGRAMS / "java", "client-reader"), "Reader"
    if client.program is Program.STREAMS:
        jars = cached_jars(
            f"kafka-streams-{client.version}",
            (f"org.apache.kafka:kafka-streams:{client.version}",),
            cache_dir(),
            repository=os.environ.get("RLM_MAVEN_REPO"),
            size_mib=_STREAMS_MIB,
            progress=lambda _: None,
            alone=True,
        )
        with_streams = os.pathsep.join((class_path, *map(str, jars)))
        name = f"client-streams-{client.version}"
        classes = compiled(java_compiler(), PROGRAMS / "streams", with_streams, name)
        class_path, main = os.pathsep.join((with_streams, str(classes))), "Streams"
    command = dist.tool_command(main)
    command[command.index("-cp") + 1] = class_path
    return tuple(command)


def _environment(version: str) -> Path:
    """A kafka-python beside a codec that it needs, pinned with hashes."""
    name = f"kafka-python-{version.partition('.')[0]}"
    lock = PROGRAMS / f"{name}.txt"

    def make(folder: Path) -> None:
        uv = (sys.executable, "-m", "uv")
        asked = (*uv, "venv", "--python", sys.executable, "--quiet", str(folder / "made"))
        assert not (why := failure(asked)), why
        python = str(folder / "made" / "bin" / "python")
        install = ("pip", "install", "--quiet", "--python", python, "--require-hashes")
        if why := failure((*uv, *install, "-r", str(lock))):
            pytest.skip(f"uv cannot get {name}: {why}")

    return _made(_folder(name, [lock]), make) / "made"


def _go_program(name: str) -> Path:
    """One of the folders with a main.go, with the modules whose hashes go.sum has."""
    source = PROGRAMS / "go"
    parts = (source / "go.mod", source / "go.sum", source / "rows", source / name)

    files = sorted(path for part in parts for path in (part, *part.rglob("*")) if path.is_file())
    folder = _folder(f"go-{name}", files)
    if _is_made(folder):
        return folder / name
    go = _go()  # before others have to wait, as it may be a download

    def make(folder: Path) -> None:
        build = (go, "build", "-mod=readonly", "-o", f"{folder}/", f"./{name}")
        if why := failure(build, cwd=source, GOTOOLCHAIN="local"):
            pytest.skip(f"Go cannot build the reader: {why}")

    return _made(folder, make) / name


def _go() -> str:
    """The compiler of this machine, else the one that builds the sandbox's servers."""
    if found := shutil.which("go") or shutil.which(_USUAL_GO):
        return found
    try:
        return str(go_command(cache_dir(), progress=lambda _: None))
    except SandboxError as error:
        pytest.skip(f"there is no Go to build the reader with: {error}")


def _node_program() -> Path:
    npm, source = shutil.which("npm"), PROGRAMS / "kafkajs"
    if npm is None:
        pytest.skip("there is no npm to run the reader with")
    files = sorted(source.iterdir())

    def make(folder: Path) -> None:
        for path in files:
            shutil.copy(path, folder)
        if why := failure((npm, "ci", *_NPM_OPTIONS), cwd=folder):
            pytest.skip(f"npm cannot get kafkajs: {why}")

    return _made(_folder("kafkajs", files), make)


def _node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("there is no Node.js to run the reader with")
    return found


def _folder(name: str, files: Iterable[Path]) -> Path:
    """A folder of the cache: another one where one of the files has changed."""
    content = b"\0".join(path.read_bytes() for path in files) + sys.version.encode()
    return cache_dir() / "client-programs" / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}"


def _is_made(folder: Path) -> bool:
    return (folder / _DONE).exists()


def _made(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder with what `make` puts there, once."""
    with one_at_a_time(folder.parent):
        if not _is_made(folder):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            make(folder)
            (folder / _DONE).touch()
    return folder


def failure(
    command: tuple[str, ...], cwd: Path | None = None, limit_s: float = _BUILD_LIMIT_S, **env: str
) -> str:
    """Why a command has failed; empty where it has not."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end in {limit_s} s"
    return "" if done.returncode == 0 else done.stderr.strip()[-300:] or "without a word"


class Reading:
    """A program that reads; `on_row` is called between two records, in a thread of its own, and
    holds the program up while it lasts: its output is a pipe.
    """

    def __init__(
        self,
        client: TestedClient,
        spec: Mapping[str, Any],
        on_row: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.rows: list[Row] = []
        self.events: list[Row | Commit] = []
        self._failed: BaseException | None = None
        self._on_row = on_row
        self._said: list[bytes] = []
        self._process = subprocess.Popen(
            command_of(client),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=java_environment(),
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(spec).encode() + b"\n")
        self._process.stdin.flush()
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._thread = threading.Thread(target=self._listen, args=(self._process.stdout,))
        errors = self._process.stderr
        self._errors = threading.Thread(target=lambda: self._said.extend(errors))
        for thread in (self._thread, self._errors):
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The program is gone afterwards in all cases."""
        self._process.kill()
        for thread in (self._thread, self._errors):
            thread.join()
        with suppress(OSError):
            self._process.communicate()

    @property
    def said(self) -> str:
        """What it has written to stderr."""
        return b"".join(tuple(self._said)).decode(errors="replace")[-2_000:]

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def all_rows(self, timeout_s: float) -> list[Row]:
        """Once it has ended by itself, and well."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"{len(self.rows)} rows in {timeout_s} s: {self.said}"
        if self._failed is not None:
            raise self._failed
        assert self._process.wait(_END_S) == 0, f"{len(self.rows)} rows: {self.said}"
        return self.rows

    def _listen(self, output: IO[bytes]) -> None:
        for line in output:
            try:
                self._add(json.loads(line))
            except BaseException as error:  # noqa: BLE001 - it is raised in the test's own thread
                self._failed = error
                self._process.kill()
                return

    def _add(self, said: Any) -> None:
        if isinstance(said, dict):
            self.events.extend(Commit(*one) for one in said["committed"])
            return
        row = _row(said)
        self.events.append(row)
        self.rows.append(row)
        self._on_row(len(self.rows))


def _row(said: Sequence[Any]) -> Row:
    """Without headers."""
    partition, offset, timestamp_ms, key, value = said
    return Row(
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        key=_data(key),
        value=_data(value),
        headers=(),
    )


def _data(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
