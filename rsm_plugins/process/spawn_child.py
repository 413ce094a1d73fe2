"""Becomes a plugin that dies with the process that started it, even when that process is killed.

It runs as a script before the plugin's own command. On Linux it asks the kernel for SIGKILL at the
parent's death and becomes the command. On other systems it stays, watches its standard input, which
the parent holds open, and kills the command when that ends. It uses the standard library only: it
must start fast and needs nothing installed.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from types import FrameType

_PR_SET_PDEATHSIG = 1
EXIT_NOT_RUN = 127


def become(command: Sequence[str], parent: int) -> int:
    """Does not return if the command could be run."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent died before the request to the kernel
        return EXIT_NOT_RUN
    os.execvp(command[0], list(command))  # noqa: S606 # the command is the operator's own setting


def watch(command: Sequence[str]) -> int:
    """The command's exit status; it is killed when our standard input ends."""
    child = subprocess.Popen(list(command), stdin=subprocess.DEVNULL)  # noqa: S603 # as above

    def terminate(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    signal.signal(signal.SIGTERM, terminate)
    threading.Thread(target=_kill_at_end_of_input, args=(child,), daemon=True).start()
    status = child.wait()
    return 128 - status if status < 0 else status


def _kill_at_end_of_input(child: "subprocess.Popen[bytes]") -> None:
    while os.read(0, 4096):
        pass
    child.kill()


def main(arguments: Sequence[str]) -> int:
    """`linux|other PARENT COMMAND...`"""
    way, parent, *command = arguments
    try:
        return become(command, int(parent)) if way == "linux" else watch(command)
    except OSError as error:
        sys.stderr.write(f"cannot run {command[0]}: {error.strerror}\n")
        return EXIT_NOT_RUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
