"""Runs commands of `rlm` in processes that have its modules imported already.

Imports are most of what a command costs, and scenarios run hundreds of commands while they wait. A
process imports all of them and forks for each: arguments, environment, working directory, output
and exit status are those of a process of its own. What a command imports when it is called, other
tests show (`tests/rlm/cli/`, `tests/install/`).
"""

import atexit
import contextlib
import gc
import json
import os
import pkgutil
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from kip405.errors import RemoteStorageError

_ROOT = Path(__file__).resolve().parents[1]
_idle: "list[ForkingProcess]" = []


class CommandFailed(AssertionError):
    """What a command has said that should have succeeded."""


class Ended(subprocess.CompletedProcess[str]):
    """`is_retriable`: it failed by an error whose kind says that the caller is to try again."""

    is_retriable = False


def run_command(arguments: tuple[str, ...], environ: Mapping[str, str], timeout_s: float) -> Ended:
    """As `subprocess.run` of `python -m rlm.cli.main`, with text captured. Each of several threads
    has a process that forks; all end with this one.
    """
    try:
        forking = _idle.pop()
    except IndexError:
        forking = ForkingProcess()
    try:
        done = forking.run(arguments, environ, timeout_s)
    except BaseException:
        forking.close()
        raise
    _idle.append(forking)
    return done


@atexit.register
def _close_all() -> None:
    while _idle:
        _idle.pop().close()


class ForkingProcess:
    """The process that forks, as its parent knows it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked_commands"],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._child: int | None = None

    def run(
        self, arguments: tuple[str, ...], environ: Mapping[str, str], timeout_s: float
    ) -> Ended:
        """TimeoutExpired after the command was killed."""
        command = ["rlm", *arguments]
        with tempfile.TemporaryDirectory() as folder:
            output, errors = Path(folder, "output"), Path(folder, "errors")
            retriable = Path(folder, "retriable")
            request = {
                "arguments": arguments,
                "environ": dict(environ),
                "folder": os.getcwd(),
                "output": str(output),
                "errors": str(errors),
                "retriable": str(retriable),
            }
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._child = int(self._line())
            if not self._answers_within(timeout_s):
                self._end_child()
                raise subprocess.TimeoutExpired(
                    command, timeout_s, output.read_bytes(), errors.read_bytes()
                )
            code = int(self._line())
            self._child = None
            ended = Ended(command, code, output.read_text(), errors.read_text())
            ended.is_retriable = retriable.exists()
            return ended

    def close(self) -> None:
        """End it, and the command that still runs."""
        self._end_child()
        self._process.kill()
        self._process.communicate()

    def _end_child(self) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
            self._child = None

    def _answers_within(self, timeout_s: float) -> bool:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            return bool(selector.select(timeout_s))

    def _line(self) -> bytes:
        """Byte by byte: what follows stays in the pipe, where a selector sees it."""
        assert self._process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            read = self._process.stdout.read(1)
            assert read, "the process that runs commands has ended"
            line += read
        return line


def main() -> None:
    """Fork for each request, until the standard input is closed: prints the process id, then its
    exit status.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # gRPC may read it when it is imported
    import rlm.cli
    from rlm.cli.main import main as run

    for module in pkgutil.iter_modules(rlm.cli.__path__, "rlm.cli."):
        import_module(module.name)
    gc.freeze()  # else each fork would walk through all that is imported when it ends
    for line in sys.stdin:
        process_id = os.fork()
        if process_id == 0:
            request = json.loads(line)
            _become(request)
            _run(run, Path(request["retriable"]))
        print(process_id, flush=True)
        _, status = os.waitpid(process_id, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(run: Callable[[], object], retriable: Path) -> None:
    """The file is there afterwards if it failed by an error that is retriable."""
    try:
        run()
    except SystemExit as end:
        error = end.__context__
        if isinstance(error, RemoteStorageError) and error.retriable:
            retriable.touch()
        raise


def _become(request: Mapping[str, Any]) -> None:
    """What a process of its own begins with."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    opened = [
        os.open(os.devnull, os.O_RDONLY),
        *(os.open(request[name], flags, 0o600) for name in ("output", "errors")),
    ]
    for target, descriptor in enumerate(opened):
        os.dup2(descriptor, target)
        os.close(descriptor)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.modules["__main__"] = sys.modules["rlm.cli.main"]  # click's usage lines name it
    sys.argv = [str(sys.modules["rlm.cli.main"].__file__), *request["arguments"]]


if __name__ == "__main__":
    main()
