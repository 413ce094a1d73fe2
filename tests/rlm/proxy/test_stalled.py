"""Clients that take nothing, or next to nothing, are ended when others wait for their room."""

from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from rlm.proxy.limits import StalledClients
from tests.builders.clock import ManualClock

STALLED_MS = 30_000
SECOND_MS = 1_000
ENOUGH_BYTES = 30 * 16_384
"""In `STALLED_MS`."""


@dataclass(eq=False)
class FakeClient:
    """`untaken_bytes` of it wait; it takes `taken_bytes` and then no more."""

    peer: str
    untaken_bytes: int = 0
    taken_bytes: int = 0
    causes: list[str] = field(default_factory=list)

    def abort(self, cause: str) -> None:
        self.causes.append(cause)
        self.untaken_bytes = 0


class Crowd:
    """Clients, the room that is lacking, and a clock."""

    def __init__(self, **untaken_bytes: int) -> None:
        self.clients = [FakeClient(name, size) for name, size in untaken_bytes.items()]
        self.lacking_bytes = 0
        self.clock = ManualClock()
        self.stalled = StalledClients(
            clients=lambda: self.clients,
            lacking_bytes=lambda: self.lacking_bytes,
            clock=self.clock,
            stalled_ms=STALLED_MS,
        )
        self.stalled.check()

    def after(self, duration_ms: int) -> list[str]:
        """Look once more; the clients that were ended so far."""
        self.clock.advance(duration_ms)
        self.stalled.check()
        return [client.peer for client in self.clients if client.causes]


def test_nobody_is_ended_while_no_room_is_lacking() -> None:
    crowd = Crowd(stalled=100)
    assert crowd.after(100 * STALLED_MS) == []
    crowd.lacking_bytes = 1
    assert crowd.after(0) == ["stalled"]
    assert crowd.clients[0].causes == ["stalled"]


def test_nobody_is_ended_before_the_time() -> None:
    crowd = Crowd(stalled=100)
    crowd.lacking_bytes = 1
    assert crowd.after(STALLED_MS - 1) == []
    assert crowd.after(1) == ["stalled"]


def test_h36_who_takes_a_byte_now_and_then_is_ended_by_its_own_cause() -> None:
    crowd = Crowd(trickling=100)
    crowd.lacking_bytes = 1
    for _ in range(29):
        crowd.clients[0].taken_bytes += 1
        assert crowd.after(SECOND_MS) == []
    assert crowd.after(SECOND_MS) == ["trickling"]
    assert crowd.clients[0].causes == ["slow_reader"]


@pytest.mark.parametrize(
    ("bytes_per_s", "is_ended"), [(65_536, False), (16_384, False), (16_383, True)]
)
def test_h36_a_slow_client_is_not_stalled(bytes_per_s: int, is_ended: bool) -> None:
    crowd = Crowd(slow=100)
    crowd.lacking_bytes = 1
    ended: list[str] = []
    for _ in range(300):
        crowd.clients[0].taken_bytes += bytes_per_s
        ended = crowd.after(SECOND_MS)
    assert ended == (["slow"] if is_ended else [])


@pytest.mark.parametrize("pause_s", [10, 29])
def test_a_client_whose_socket_takes_much_after_a_pause_is_not_stalled(pause_s: int) -> None:
    """A kernel takes from a slow client's peer in steps of a third of its buffer."""
    crowd = Crowd(slow=100)
    crowd.lacking_bytes = 1
    for second in range(1, 300):
        crowd.clients[0].taken_bytes += 0 if second % pause_s else pause_s * 65_536
        assert crowd.after(SECOND_MS) == []


def test_what_was_taken_before_does_not_count_for_the_next_time() -> None:
    crowd = Crowd(slow=100)
    crowd.lacking_bytes = 1
    crowd.clients[0].taken_bytes += 100 * ENOUGH_BYTES
    assert crowd.after(SECOND_MS) == []
    crowd.clients[0].taken_bytes += ENOUGH_BYTES - 1
    assert crowd.after(STALLED_MS - 1) == []
    assert crowd.after(1) == ["slow"]


def test_whoever_waits_for_nothing_holds_nothing() -> None:
    crowd = Crowd(idle=0)
    crowd.lacking_bytes = 1
    assert crowd.after(STALLED_MS) == []
    crowd.clients[0].untaken_bytes = 100  # only now does it begin to be stalled
    assert crowd.after(SECOND_MS) == []
    assert crowd.after(STALLED_MS) == ["idle"]


@pytest.mark.parametrize(
    ("lacking_bytes", "ended"),
    [(1, ["second"]), (200, ["second"]), (201, ["first", "second"]), (900, ["first", "second"])],
)
def test_the_longest_stalled_go_first_and_no_more_than_needed(
    lacking_bytes: int, ended: list[str]
) -> None:
    crowd = Crowd(first=100, second=200, third=300)
    crowd.after(SECOND_MS)
    crowd.clients[0].taken_bytes += ENOUGH_BYTES
    crowd.after(SECOND_MS)
    crowd.clients[2].taken_bytes += ENOUGH_BYTES
    crowd.after(SECOND_MS)  # second has taken nothing since the start, then first, then third
    crowd.lacking_bytes = lacking_bytes
    assert crowd.after(STALLED_MS - SECOND_MS) == ended


@pytest.mark.parametrize(("taken_bytes", "cause"), [(0, "stalled"), (7, "slow_reader")])
def test_it_is_logged(taken_bytes: int, cause: str) -> None:
    crowd = Crowd(stalled=100)
    crowd.lacking_bytes = 1
    crowd.clients[0].taken_bytes += taken_bytes
    with capture_logs() as logs:
        crowd.after(STALLED_MS)
    assert logs == [
        {
            "event": "stalled_client_ended",
            "log_level": "warning",
            "peer": "stalled",
            "cause": cause,
            "stalled_ms": STALLED_MS,
            "taken_bytes": taken_bytes,
            "held_bytes": 100,
        }
    ]
