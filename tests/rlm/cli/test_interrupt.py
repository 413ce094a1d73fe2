"""Ctrl-C ends a command at once, without a trace."""

import signal
import socket
import subprocess
import sys


def test_ctrl_c_while_waiting_for_an_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(30)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-m", "rlm.cli.main", "status", "--address", address]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            connection, _ = silent.accept()
            with connection:
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert errors.strip() == b""
