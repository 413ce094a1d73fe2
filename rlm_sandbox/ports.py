"""Free loopback ports that stay ours from the choice until the sandbox is taken down.

Ports are taken below the ephemeral range: a port out of it may become the local end of somebody's
outgoing connection while our process is down, and these ports must survive restarts. A JVM needs
seconds until it listens, and tests kill and start processes: in that time the port is claimed by a
socket that is bound and does not listen, which keeps other sandboxes from taking it.
"""

import contextlib
import socket
import sys
import weakref
from pathlib import Path
from typing import Self

from rlm_sandbox.spec import SandboxError

_LOWEST = 11_000
_HIGHEST = 32_000
_TRIES = 200
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOOPBACK = "127.0.0.1"
_CAN_CLAIM = sys.platform == "linux"
"""Elsewhere a server cannot listen beside a socket that is only bound."""


class PortReservation:
    """Ports held by listening sockets; `lend` them just before the process that listens is started.

    A port that is lent stays claimed until `release`: its own process can listen (with
    SO_REUSEADDR, as all servers do), and `take`, in any process, chooses another.
    """

    def __init__(self) -> None:
        self._claims: dict[int, socket.socket] = {}
        self._listening: dict[int, socket.socket] = {}
        weakref.finalize(self, _close_all, self._claims, self._listening)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.release_all()

    def take(self) -> int:
        """A port that was free and is now held."""
        top = _below_ephemeral()
        for _ in range(_TRIES):
            port = _LOWEST + _kernels_choice() % (top - _LOWEST)
            if _is_unclaimed(port) and self.hold(port):
                return port
        raise SandboxError("no free loopback port found")

    def hold(self, port: int) -> bool:
        """Hold a port known from an earlier run; False when somebody else has it."""
        # With SO_REUSEADDR two bound sockets may share a port until one listens; hence the listen.
        held = [one for one in (_bound(port), _bound(port) if _CAN_CLAIM else None) if one]
        try:
            if len(held) < 1 + _CAN_CLAIM:
                raise OSError(f"port {port} is taken")
            held[0].listen(1)
        except OSError:
            for one in held:
                one.close()
            return False
        self._listening[port] = held[0]
        for claim in held[1:]:
            self._claims[port] = claim
        return True

    def lend(self, *ports: int) -> None:
        """Let a server of ours listen; where claims are possible, there is no moment at which
        nothing has the port.
        """
        for port in ports:
            with contextlib.suppress(KeyError):
                self._listening.pop(port).close()

    def lend_all(self) -> None:
        self.lend(*tuple(self._listening))

    def release(self, *ports: int) -> None:
        for port in ports:
            for held in (self._listening, self._claims):
                with contextlib.suppress(KeyError):
                    held.pop(port).close()

    def release_all(self) -> None:
        self.release(*{*self._claims, *self._listening})


def _close_all(*held: dict[int, socket.socket]) -> None:
    """Of a sandbox that somebody else has taken down, or that is to run on."""
    for one in held:
        while one:
            one.popitem()[1].close()


def port_is_free(port: int) -> bool:
    """Whether a server could bind the loopback port now."""
    reservation = PortReservation()
    free = reservation.hold(port)
    reservation.release_all()
    return free


def _bound(port: int) -> socket.socket | None:
    """A socket as servers bind it: without SO_REUSEADDR, connections of the last run in TIME_WAIT
    block the port.
    """
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((_LOOPBACK, port))
    except OSError:
        bound.close()
        return None
    return bound


def _is_unclaimed(port: int) -> bool:
    """Whether no socket at all has the port: without SO_REUSEADDR a claim is in the way, too."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as strict:
        try:
            strict.bind((_LOOPBACK, port))
        except OSError:
            return False
    return True


def _kernels_choice() -> int:
    """A free ephemeral port: the kernel's random pick spreads sandboxes over our own range."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((_LOOPBACK, 0))
        port = probe.getsockname()[1]
    # Linux prefers one parity for bind(0); the factor, prime to the range, spreads that again.
    return int(port) * 7919


def _below_ephemeral() -> int:
    try:
        lowest_ephemeral = int(_EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _HIGHEST
    return lowest_ephemeral if _LOWEST + 1000 < lowest_ephemeral < _HIGHEST else _HIGHEST
