"""Starts, watches and restarts a plugin process: configuration, handshake, logs, back-off, stop.

The socket's path is the same after every restart, so that a client connects once
(GrpcRemoteStorageManager at `.address`). This module must not know which store the plugin serves.
"""

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import yaml

from kip405.addresses import MAX_UNIX_PATH_BYTES
from kip405.errors import Invalid, RemoteStorageError, Unavailable
from kip405.settings import masked
from rsm_plugins.contract.client_channel import is_alive
from rsm_plugins.files.owned_folder import OwnedFolder
from rsm_plugins.process import spawn_child
from rsm_plugins.process.handshake import LINE_MAX_BYTES, parse_handshake
from rsm_plugins.store_kinds import secrets_of

OWN_COMMAND = (sys.executable, "-P", "-m", "rsm_plugins.process.main", "serve")
"""`rsm-plugin serve` of this very installation."""

_LAST_LINES = 5
_LINE_MAX = 64 * 1024
_WORDS_MAX = 400
_DRAIN_SECONDS = 2.0
_CONFIGURATION_STATUSES = (2, 126, spawn_child.EXIT_NOT_RUN)
log = structlog.get_logger(__name__)


def to_standard_error(line: str) -> None:
    """The default destination of a plugin's log lines."""
    sys.stderr.write(f"{line}\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnTimes:
    """Times of a plugin process, in seconds: `handshake` to become ready, `stop` to end after
    SIGTERM. The back-off between restarts doubles from the first to the last value, and starts
    again after `steady` of running. Every `ask` the plugin is asked whether it is alive, and has
    `answer` to reply; after `silent_most` unanswered questions in a row it counts as dead.
    """

    handshake: float = 30.0
    stop: float = 10.0
    back_off_first: float = 0.5
    back_off_last: float = 30.0
    steady: float = 60.0
    ask: float = 10.0
    answer: float = 20.0
    silent_most: int = 3


class SpawnedPlugin:
    """One plugin; the caller runs `run` in its TaskGroup and waits for `ready`. On Linux the plugin
    dies with the thread that runs the loop, which should therefore be the main thread.

    `command` is called with `--config FILE`: a YAML file (mode 0600) of `config` and the `listen`
    address. A value None in `config` leaves its key out.
    """

    def __init__(
        self,
        *,
        name: str,
        config: Mapping[str, Any],
        sleep: Callable[[float], Awaitable[None]],
        command: Sequence[str] = OWN_COMMAND,
        runtime_dir: Path | None = None,
        on_log: Callable[[str], None] = to_standard_error,
        times: SpawnTimes | None = None,
        way: str = "linux" if sys.platform == "linux" else "other",
        withheld: Collection[str] = (),
    ) -> None:
        """`withheld`: variables of the environment that are not the plugin's business.

        Makes the folder for socket and configuration: in `runtime_dir` where its path is short
        enough, else in one of this user's below the folder for temporary files.

        Unavailable where it cannot be made.
        """
        self.name = name
        self._command = tuple(command)
        self._sleep = sleep
        self._on_log = on_log
        self._times = times or SpawnTimes()
        self._way = way
        self._withheld = frozenset(withheld)
        self._secrets = secrets_of(config)
        self._folder = _folder(runtime_dir)
        socket = self._folder.path / "p.sock"
        self.address = f"unix:{socket}"
        self._file = self._folder.path / "plugin.yaml"
        self._config = {**config, "listen": self.address}
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._process: asyncio.subprocess.Process | None = None
        self.problem: RemoteStorageError | None = Unavailable(f"plugin {name} is being started")
        """What is wrong now; None while the plugin takes calls."""
        self.restarts = 0
        """How often it had to be started again."""

    @property
    def pid(self) -> int | None:
        """Of the process now running."""
        return None if self._process is None else self._process.pid

    async def ready(self) -> None:
        """Waits until the first start is over, and raises its error if it failed: Invalid if it
        cannot succeed before the configuration or the plugin is repaired, else Unavailable. `run`
        tries again in both cases.
        """
        await asyncio.shield(self._first)

    async def run(self) -> None:
        """Keep the process running until cancelled; then stop it and remove its files."""
        loop = asyncio.get_running_loop()
        pause = self._times.back_off_first
        try:
            while True:
                began = loop.time()
                problem = await self._run_once()
                if loop.time() - began >= self._times.steady:
                    pause = self._times.back_off_first
                log.warning("plugin_restarts", plugin=self.name, what=str(problem), seconds=pause)
                await self._sleep(pause)
                self.restarts += 1
                pause = min(2 * pause, self._times.back_off_last)
        finally:
            self._settled(Unavailable(f"plugin {self.name} was stopped"))
            self._folder.close()

    async def _run_once(self) -> RemoteStorageError:
        """The reason why the process ended, or was never ready."""
        self._last_lines.clear()
        try:
            process = await self._start()
        except OSError as error:
            return self._settled(
                Unavailable(f"plugin {self.name}: cannot start it: {error.strerror}")
            )
        self._process = process
        try:
            async with asyncio.TaskGroup() as tasks:
                readers = {tasks.create_task(self._pass_through(process.stderr))}
                try:
                    fault = await self._handshake(process)
                    if fault is None:
                        self.problem = None
                        self._settle_first(None)
                        readers.add(tasks.create_task(self._pass_through(process.stdout)))
                        fault = await self._watch(process)
                    left = process.returncode
                finally:
                    await self._end(process, readers)
        finally:
            self._process = None
        return self._settled(self._error_of(fault, left))

    async def _start(self) -> asyncio.subprocess.Process:
        _write_private(self._file, self._config)
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", spawn_child.__file__, self._way, str(os.getpid())),
            *self._command,
            *("--config", str(self._file)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={name: one for name, one in os.environ.items() if name not in self._withheld},
        )

    async def _handshake(self, process: asyncio.subprocess.Process) -> RemoteStorageError | None:
        """The fault of the handshake, or that the process has ended; None for a good handshake."""
        try:
            async with asyncio.timeout(self._times.handshake):
                line = await _first_line(process.stdout)
                if not line.endswith("\n") and len(line) < LINE_MAX_BYTES:
                    await process.wait()
                    return Unavailable("ended before its handshake")
        except TimeoutError:
            return Unavailable(f"no handshake within {self._times.handshake:g} s")
        try:
            address = parse_handshake(line.rstrip("\r\n"))
        except Invalid as error:
            return error
        if str(address) != self.address:
            return Invalid(f"it listens at {address}, and was given {self.address}")
        return None

    async def _watch(self, process: asyncio.subprocess.Process) -> RemoteStorageError | None:
        """Returns when the process ends, or the reason why it must be ended although it runs: a
        library that hangs can block the whole process, and no deadline of a call helps then.
        """
        silent = 0
        while silent < self._times.silent_most:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._times.ask):
                    await process.wait()
            if process.returncode is None:
                silent = 0 if await is_alive(self.address, self._times.answer) else silent + 1
            if process.returncode is not None:
                return None
        return Unavailable(f"it runs and does not answer, asked {silent} times")

    async def _pass_through(self, stream: asyncio.StreamReader | None) -> None:
        async for line in _lines(stream):
            safe = masked(line, self._secrets)
            self._last_lines.append(safe)
            with suppress(OSError, ValueError):  # a full disk or a closed stream: the line is lost
                self._on_log(safe)

    def _error_of(self, fault: RemoteStorageError | None, left: int | None) -> RemoteStorageError:
        """One error in one line, the last lines of the plugin's log included.

        `fault` is of the handshake; `left` the status it ended with by itself, None where we ended
        it.
        """
        kind: type[RemoteStorageError] = Unavailable
        if left is None:
            what = str(fault)
            kind = Invalid if isinstance(fault, Invalid) else Unavailable
        elif fault is None:
            what = _ended(left)
        else:
            what = f"{_ended(left)} before its handshake"
            kind = Invalid if left in _CONFIGURATION_STATUSES else Unavailable
        words = " | ".join(line[:_WORDS_MAX] for line in self._last_lines)
        message = f"plugin {self.name}: {masked(what, self._secrets)}"
        return kind(
            f"{message}; its last words: {words}" if words else f"{message}; it said nothing"
        )

    def _settled(self, problem: RemoteStorageError) -> RemoteStorageError:
        self.problem = problem
        self._settle_first(problem)
        return problem

    def _settle_first(self, problem: RemoteStorageError | None) -> None:
        """Resume the callers that wait for the first start."""
        if self._first.done():
            return
        if problem is None:
            self._first.set_result(None)
        else:
            self._first.set_exception(problem)
            self._first.exception()  # retrieved, because no caller has to wait for it

    async def _end(
        self, process: asyncio.subprocess.Process, readers: "set[asyncio.Task[None]]"
    ) -> None:
        """Stop the process if it runs, with all that it started, while its last lines are still
        read.
        """
        try:
            if process.returncode is None:
                self._signal(process, signal.SIGTERM)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._times.stop):
                        await process.wait()
        finally:
            self._signal(process, signal.SIGKILL)
            if process.stdin is not None:
                process.stdin.close()
            await process.wait()
        await asyncio.wait(readers, timeout=_DRAIN_SECONDS)
        for reader in readers:
            reader.cancel()

    @staticmethod
    def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def _folder(runtime_dir: Path | None) -> OwnedFolder:
    if runtime_dir is not None:
        longest = len(os.fsencode(runtime_dir.absolute())) + len("/rlm-own-12345678/p.sock")
        if longest <= MAX_UNIX_PATH_BYTES:
            return OwnedFolder.create(runtime_dir.absolute())
    return OwnedFolder.create_private()


def _write_private(path: Path, config: Mapping[str, Any]) -> None:
    """OSError where that fails; a folder that was cleaned away is made again."""
    text = yaml.safe_dump({key: value for key, value in config.items() if value is not None})
    path.parent.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _ended(status: int | None) -> str:
    if status is not None and status < 0:
        with suppress(ValueError):
            return f"it was ended by {signal.Signals(-status).name}"
    return f"it ended with status {status}"


async def _first_line(stream: asyncio.StreamReader | None) -> str:
    """With its newline, unless the stream ended or the line is too long to be a handshake."""
    line = b""
    while stream is not None and len(line) < LINE_MAX_BYTES and not line.endswith(b"\n"):
        byte = await stream.read(1)
        if not byte:
            break
        line += byte
    return line.decode("utf-8", "replace")


async def _lines(stream: asyncio.StreamReader | None) -> AsyncIterator[str]:
    """Lines without their line ends; a line that is too long is split."""
    rest = b""
    while stream is not None and (piece := await stream.read(_LINE_MAX)):
        *whole, rest = (rest + piece).split(b"\n")
        if len(rest) >= _LINE_MAX:
            whole, rest = [*whole, rest], b""
        for line in whole:
            yield line.decode("utf-8", "replace").rstrip("\r")
    if rest:
        yield rest.decode("utf-8", "replace")
