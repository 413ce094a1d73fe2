"""Ctrl-C ends a command at once, without a trace, wherever it strikes."""

import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest

from rlm.cli.live import until_ended
from rlm.cli.main import interrupted_afterwards, never_ignored
from tests.builders.interrupts import ctrl_c_heeded

_STRUCK = """
import os, signal, sys
from rlm.cli.main import main

calls = 0

def strike(frame, event, argument):
    global calls
    calls += 1
    if calls == {at}:
        os.kill(os.getpid(), signal.SIGINT)

sys.setprofile(strike)
main(["status", "--address", "{address}"])
"""
"""SIGINT at the numbered call or return of a function after the command has begun."""
_AT = (50, 2_000, 10_000, 30_000, 60_000, 90_000, 120_000, 150_000)


@pytest.fixture(autouse=True)
def _heeded() -> Iterator[None]:
    with ctrl_c_heeded():
        yield


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(240)
        yield made


def address_of(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


def test_ctrl_c_while_waiting_for_an_answer(silent: socket.socket) -> None:
    command = [sys.executable, "-m", "rlm.cli.main", "status", "--address", address_of(silent)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        connection, _ = silent.accept()
        with connection:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 130
    assert errors.strip() == b""


def test_ctrl_c_at_many_moments(silent: socket.socket) -> None:
    """Most of them are in the middle of imports."""
    scripts = [_STRUCK.format(at=at, address=address_of(silent)) for at in _AT]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script], stderr=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for script in scripts
    ]
    try:
        for at, process in zip(_AT, running, strict=True):
            said, errors = process.communicate(timeout=240)
            assert (process.returncode, said, errors.strip()) == (130, b"", b""), at
    finally:
        for process in running:
            process.kill()


class Thing:
    """Something to refer to weakly."""


def strike_where_python_ignores_it(number: signal.Signals = signal.SIGINT) -> None:
    """Inside the callback of a weak reference, whose exceptions Python prints and drops."""
    thing = Thing()
    reference = weakref.ref(thing, lambda _: signal.raise_signal(number))
    del thing
    assert reference() is None


def test_ctrl_c_within_an_import_comes_at_its_end() -> None:
    passed = False
    with pytest.raises(KeyboardInterrupt), interrupted_afterwards():
        strike_where_python_ignores_it()
        passed = True
    assert passed
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_ctrl_c_does_not_wait_for_an_import() -> None:
    with pytest.raises(KeyboardInterrupt), interrupted_afterwards():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the second one was not heeded")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_that_python_ignores_comes_again() -> None:
    before = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt), never_ignored():
        strike_where_python_ignores_it()
        threading.Event().wait(30)
        raise AssertionError("it was lost")
    assert sys.unraisablehook is before


def test_sigterm_of_a_live_command_that_python_ignores_comes_again() -> None:
    went_on = False
    with never_ignored(), until_ended():
        strike_where_python_ignores_it(signal.SIGTERM)
        threading.Event().wait(30)
        went_on = True
    assert not went_on


def test_sigterm_of_a_live_command_is_no_error_of_what_it_strikes() -> None:
    """gRPC catches every Exception where it decodes an answer."""
    went_on = False
    with until_ended():
        try:
            signal.raise_signal(signal.SIGTERM)
        except Exception:  # noqa: BLE001 - as gRPC does
            went_on = True
    assert not went_on


def test_ctrl_c_that_is_to_be_ignored_is() -> None:
    """As a shell without job control asks of what it starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupted_afterwards():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
