"""A sandbox whose services do as in production, for benchmarks of copies."""

import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rlm.config.service import settings
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.services import QUICK_SERVICE
from rlm_sandbox.spec import PLAINTEXT, Override, SandboxSpec

_ANSWER_S = 10


@contextmanager
def production_sandbox(
    progress: Callable[[str], None],
    *,
    brokers: int = 1,
    native_tiering: bool = False,
    security: str = PLAINTEXT,
    heap_mib: int = 1024,
    overrides: tuple[Override, ...] = (),
) -> Iterator[Sandbox]:
    """Up while the block runs, and gone after it. The store is a directory."""
    with tempfile.TemporaryDirectory(prefix="rlm-bench-") as folder:
        spec = SandboxSpec(
            brokers=brokers,
            native_tiering=native_tiering,
            store="local",
            jvm="full",
            security=security,
            heap_mib=heap_mib,
            overrides=(*_default_intervals(), *overrides),
        )
        sandbox = Sandbox.up(Path(folder) / "sandbox", spec, progress=progress)
        try:
            yield sandbox
        finally:
            sandbox.down(delete=True)


def workers_override(workers: int) -> Override:
    """So many proxy processes in each service; 0 = none of their own."""
    return Override.parse(f"rlm.proxy.workers={workers}")


def answer_of(sandbox: Sandbox, node: int, path: str) -> bytes:
    """What the service of a broker answers by HTTP."""
    port = sandbox.state.ports[node].http
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=_ANSWER_S) as answer:
        return bytes(answer.read())


def _default_intervals() -> tuple[Override, ...]:
    """Takes back what a sandbox sets lower, so that tests see something within seconds: with a
    task each half a second, the topics of earlier rounds are most of the work.
    """
    return tuple(
        Override.parse(f"rlm.{row.key}={row.default}")
        for row in settings().values()
        if row.key in QUICK_SERVICE and row.key.endswith(".interval.ms")
    )
