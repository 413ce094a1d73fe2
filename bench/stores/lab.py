"""A sandbox with one store and, before an S3 server, a wire as long as one says."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from bench.processes import BenchError
from bench.production import workers_override
from bench.read import restart_service, use_production_intervals
from bench.stores.options import S3, StoreOptions
from bench.topics import Progress
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import Override, SandboxSpec

_ENDPOINT = "rsm.config.s3.endpoint.url"
_HEAP_MIB = 1024
_STOP_S = 10


class WireProcess:
    """bench/stores/wire.py in a process of its own, whose CPU is its own."""

    def __init__(self, upstream_port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.stores.wire", str(upstream_port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[2],
        )
        self.port = int(self._read())

    @property
    def pid(self) -> int:
        return self._process.pid

    def delay(self, delay_ms: int) -> None:
        self._ask(f"delay {delay_ms}")

    def take(self) -> dict[str, Any]:
        """Requests and bytes since the last call; see Counts."""
        taken: dict[str, Any] = json.loads(self._ask("counts"))
        return taken

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(_STOP_S)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchError("the wire ended")
        return line


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """`wire` None: a store that is asked without any."""

    store: str
    sandbox: Sandbox
    wire: WireProcess | None

    @property
    def pids(self) -> Mapping[str, int]:
        """Roles whose CPU is counted."""
        document = self.sandbox.json
        broker = document["brokers"][0]
        found = {
            "broker": broker["broker_pid"],
            "service": broker["rlm_pid"],
            "plugin": broker["plugin_pid"],
            **{f"store {number}": pid for number, pid in enumerate(document["store"]["pids"])},
        }
        return found if self.wire is None else {**found, "wire": self.wire.pid}

    @property
    def plugin_config(self) -> Path:
        return self.sandbox.layout.plugin_config(1)

    def delay(self, delay_ms: int) -> None:
        if self.wire is not None:
            self.wire.delay(delay_ms)

    def take(self) -> dict[str, Any]:
        """The requests that passed the wire since the last call; empty without a wire."""
        if self.wire is None:
            return {"requests": {}, "bytes": {}, "first_put_s": None}
        return self.wire.take()

    def empty_caches(self) -> None:
        """A fresh service; the plugin and its connections stay."""
        restart_service(self.sandbox)

    def production_intervals(self) -> None:
        use_production_intervals(self.sandbox)


@contextmanager
def lab(store: str, options: StoreOptions, progress: Progress) -> Iterator[Lab]:
    """Up while the block runs, and gone after it."""
    with tempfile.TemporaryDirectory(prefix="rlm-bench-") as folder:
        spec = SandboxSpec(
            store=store,
            jvm=options.jvm,
            heap_mib=_HEAP_MIB,
            overrides=(
                workers_override(options.workers),
                *((_disk_cache(Path(folder) / "chunks"),) if options.warm else ()),
            ),
        )
        sandbox = Sandbox.up(Path(folder) / "sandbox", spec, progress=progress)
        wire = None
        try:
            if store == S3:
                wire = _put_wire_between(sandbox)
            yield Lab(store=store, sandbox=sandbox, wire=wire)
        finally:
            sandbox.down(delete=True)
            if wire is not None:
                wire.close()


def _disk_cache(folder: Path) -> Override:
    folder.mkdir()
    return Override.parse(f"rlm.fetch.chunk.cache.path={folder}")


def _put_wire_between(sandbox: Sandbox) -> WireProcess:
    """The plugin's endpoint becomes the wire."""
    path = sandbox.layout.plugin_config(1)
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    port = urlsplit(config[_ENDPOINT]).port
    if port is None:
        raise BenchError(f"{_ENDPOINT} has no port")
    wire = WireProcess(port)
    config[_ENDPOINT] = f"http://127.0.0.1:{wire.port}"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    sandbox.stop("plugin:1")
    sandbox.start("plugin:1")
    return wire
