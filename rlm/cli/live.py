"""Commands that go on until somebody ends them: q, Ctrl-C or SIGTERM, each a good end."""

import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import click

_QUIT = b"q"
_CLEAR, _TO_TOP = "\x1b[2J", "\x1b[H\x1b[J"


class Ended(BaseException):
    """Somebody has ended the command. No Exception, as a library would take it for an error of its
    own: gRPC does where it decodes an answer, and the command would go on.
    """


@contextmanager
def until_ended() -> Iterator[None]:
    """What runs within ends well when it is interrupted or terminated."""
    with suppress(Ended, KeyboardInterrupt), _terminated():
        yield


class Terminal:
    """Frames on a terminal replace each other, and q ends them; elsewhere each is printed."""

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Single keys are read, where there are keys; the terminal is as before afterwards."""
        if not _has_keys():
            yield
            return
        before = termios.tcgetattr(sys.stdin)
        try:
            tty.setcbreak(sys.stdin)
            click.echo(_CLEAR, nl=False)
            yield
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)

    def begin_frame(self) -> None:
        """What is printed now takes the place of the last frame."""
        click.echo(_TO_TOP, nl=False) if _has_keys() else click.echo()

    def wait(self, seconds: float) -> None:
        """Until the next frame; Ended where somebody presses q."""
        if not _has_keys():
            pause(seconds)
            return
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        if ready and _QUIT in os.read(sys.stdin.fileno(), 64).lower():
            raise Ended


def pause(seconds: float) -> None:
    """A signal ends it."""
    threading.Event().wait(seconds)


def _has_keys() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextmanager
def _terminated() -> Iterator[None]:
    """SIGTERM raises Ended, in the main thread, where alone it can be caught."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ended(number: int, frame: FrameType | None) -> None:
        raise Ended

    before = signal.signal(signal.SIGTERM, ended)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
