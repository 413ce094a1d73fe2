"""A process that has imported what tests need of others' packages, and forks for each run.

Half of a short run of tests is imports. None of ours is imported here: a fork must see the planted
bug. It reads one request a line, JSON: the arguments of pytest and the file for what is printed; it
answers with the process id and, when that has ended, with the exit code. When its standard input is
closed, however its parent ended, it ends the run that is under way, and itself.
"""

import contextlib
import json
import os
import select
import signal
import sys
import traceback
from importlib import import_module

_THEIRS = (
    "aiohttp",
    "aiokafka",
    "google.protobuf",
    "grpc",
    "hypothesis.stateful",
    "psutil",
    "pytest",
    "structlog",
    "yaml",
)

_NO_RUN = 70
"""Exit code where pytest itself failed."""


def main() -> None:
    """Serve until the standard input is closed."""
    for name in _THEIRS:
        import_module(name)
    ended, is_ended = os.pipe()
    os.set_blocking(is_ended, False)
    signal.set_wakeup_fd(is_ended)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for line in sys.stdin:
        request = json.loads(line)
        process_id = os.fork()
        if process_id == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _run(request["arguments"], request["output"])
        print(process_id, flush=True)
        print(_exit_code(process_id, ended), flush=True)


def _exit_code(process_id: int, ended: int) -> int:
    """Of a run, when it has ended; `ended` is readable after the end of a child."""
    while True:
        done, status = os.waitpid(process_id, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        ready, _, _ = select.select([sys.stdin, ended], [], [])
        if ended in ready:
            os.read(ended, 64)
        if sys.stdin in ready:  # nothing is requested during a run: it is closed
            for end in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError):
                    end(process_id, signal.SIGKILL)
            sys.exit()


def _run(arguments: list[str], output: str) -> None:
    import pytest

    os.setsid()
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    code = _NO_RUN
    try:
        # Pytest would rather rewrite its plugins' packages itself; they assert nothing of ours.
        code = int(pytest.main(["-W", "ignore::pytest.PytestAssertRewriteWarning", *arguments]))
    except BaseException:  # noqa: BLE001 - printed for whoever reads the output
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
