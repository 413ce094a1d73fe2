"""Runs the demo in a sandbox: start, signals, failures, clean-up, and the commands to try next.

Ctrl-C, SIGTERM and SIGHUP end the demo through its clean-up, once.
"""

import contextlib
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import grpc
from confluent_kafka import KafkaException

from kip405.errors import RemoteStorageError
from rlm.clock import Clock
from rlm_sandbox.demo.client_steps import ClientSteps
from rlm_sandbox.demo.report import DemoError, Report
from rlm_sandbox.demo.run import TOPIC, DemoRun
from rlm_sandbox.sandbox import Sandbox, take_down
from rlm_sandbox.spec import Layout, SandboxError, SandboxSpec

if TYPE_CHECKING:
    from rlm_sandbox.demo.spark_steps import SparkSteps

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal ends the demo. It is not an Exception, so that it is not handled as a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise Interrupted(number)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise Interrupted for the signals inside the block."""
    before = {number: signal.signal(number, _interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore the signals inside the block: taking down is short and must be whole."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_DISK_BASE_MIB = 512
_DISK_COPIES = 3
"""The broker's log, the store's copy, and room for what is being written."""

_STORE_SERVERS = {"s3": "an S3 server, ", "hdfs": "HDFS, "}

_FAILURES = (
    DemoError,
    SandboxError,
    RemoteStorageError,
    KafkaException,
    grpc.RpcError,
    OSError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line. `root` None = a temporary directory; `spark`: Spark reads."""

    root: Path | None
    keep: bool
    size_mib: int
    kafka_home: Path | None
    store: str
    spark: bool


class Stage:
    """Plays the demo once."""

    def __init__(self, options: Options, report: Report, clock: Clock) -> None:
        self._options = options
        self._report = report
        self._clock = clock

    def play(self) -> int:
        """The exit status: 0 only if every comparison holds; nothing stays behind unless asked."""
        status, verdict = 1, "the demo failed"
        root: Path | None = None
        kept = False
        try:
            with interruptible():
                root = self._made_root()
                sandbox = self._up(root)
                steps = self._steps(sandbox)
                steps.run()
                verdict, status = steps.verdict, 0
        except Interrupted as interrupted:
            self._report.say(f"{interrupted}: taking everything down")
            status = interrupted.status
        except _FAILURES as error:
            self._report.say(f"the demo failed: {error}")
        with undisturbed():
            if root is not None:
                kept = self._clear(root, status)
        good = status == 0
        self._report.summary(verdict=verdict, good=good)
        if root is not None and kept:
            self._say_what_to_try(root)
        return status

    def _made_root(self) -> Path:
        given = self._options.root
        root = given or Path(tempfile.mkdtemp(prefix="kafka-rlm-demo-"))
        root.mkdir(parents=True, exist_ok=True)
        needed_mib = _DISK_BASE_MIB + _DISK_COPIES * self._options.size_mib
        free_mib = shutil.disk_usage(root).free >> 20
        if free_mib < needed_mib:
            raise DemoError(f"{root} has {free_mib} MiB left, {needed_mib} are needed: give --dir")
        return root.resolve()

    def _up(self, root: Path) -> Sandbox:
        home = self._options.kafka_home
        spec = SandboxSpec(
            kafka_home=str(home.resolve()) if home else None,
            store=self._options.store,
            jvm="quick",
        )
        server = _STORE_SERVERS.get(spec.store, "")
        what = f"bring up {server}one broker, its store plugin and its service"
        with self._report.step(what) as step:
            sandbox = Sandbox.up(root, spec, progress=step.show, clock=self._clock)
            version = sandbox.dist.version
            store = sandbox.json["store"]["uri"]
            step.result = f"Kafka {version}, clients use {sandbox.bootstrap}, store {store}"
        return sandbox

    def _steps(self, sandbox: Sandbox) -> "ClientSteps | SparkSteps":
        demo = DemoRun(
            sandbox=sandbox,
            report=self._report,
            clock=self._clock,
            size_bytes=self._options.size_mib << 20,
        )
        if not self._options.spark:
            return ClientSteps(demo=demo)
        from rlm_sandbox.demo.spark_steps import SparkSteps

        return SparkSteps(demo=demo)

    def _clear(self, root: Path, status: int) -> bool:
        """Take down what is up, unless it shall be kept; True when it was kept.

        A failure's directory stays, for its logs; a directory where nothing started goes.
        """
        layout = Layout(root=root)
        if not layout.state.exists():
            if self._options.root is None:
                shutil.rmtree(root, ignore_errors=True)
            return False
        if self._options.keep and status in (0, 1) and layout.document.exists():
            return True
        with self._report.step("take everything down"):
            take_down(root, delete=status != 1, clock=self._clock)
        if status == 1:
            self._report.say(f"logs are in {layout.root / 'logs'}; remove {root} when done")
        return False

    def _say_what_to_try(self, root: Path) -> None:
        sandbox = Sandbox.open(root)
        bootstrap, store = sandbox.bootstrap, sandbox.json["store"]
        rlm = shlex.quote(str(_shown(Path(sys.executable).parent / "rlm")))
        python = shlex.quote(str(_shown(Path(sys.executable))))
        settings = f"'bootstrap.servers': '{bootstrap}', 'group.id': 'me'"
        code = (
            f"import confluent_kafka as k; c = k.Consumer({{{settings},"
            f" 'auto.offset.reset': 'earliest'}}); c.subscribe(['{TOPIC}']);"
            " [print(m.partition(), m.offset(), m.key()) for m in c.consume(10, 20)]"
        )
        lines = [
            f"{rlm} status",
            f"{rlm} segments {TOPIC}",
            f"{rlm} fetch {TOPIC} -p 0 -o 0 | head",
            f'{python} -c "{code}"',
            f"{rlm} sandbox down --delete",
        ]
        self._report.say("everything is still up; five commands to try:")
        self._report.say(f"  export RLM_SANDBOX={shlex.quote(str(root))}")
        for line in lines:
            self._report.say(f"  {line}")
        self._report.say(f"the objects are in {store['uri']}{_way_to(store)}")


def _way_to(store: Mapping[str, Any]) -> str:
    """The address of a store that is a server, for a user's own tools."""
    if store["kind"] == "s3":
        return f", endpoint {store['endpoint']}, keys in {store['credentials_file']}"
    if store["kind"] == "hdfs":
        return f", also by WebHDFS at {store['endpoint']}"
    return ""


def _shown(path: Path) -> Path:
    """Relative to here where that is shorter."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
