"""Which brokers have a live service, and whether a second one serves ours. By heartbeats; pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from kip405.ids import Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The newest heartbeat of one node's service; wall time in ms."""

    node_id: int
    writer: Uuid
    time_ms: int


def live_nodes(beats: Iterable[Heartbeat], *, now_ms: int, max_age_ms: int) -> frozenset[int]:
    """Node ids whose heartbeat is at most `max_age_ms` old."""
    return frozenset(beat.node_id for beat in beats if now_ms - beat.time_ms <= max_age_ms)


class Rivals:
    """Notices a second live service of our node (H13): its heartbeats go on while ours do.

    One heartbeat of another writer may be our predecessor's last; two different ones seen by this
    process are a living rival. The lock in the state dir catches the rival on the same machine and
    state dir, this one anywhere else.
    """

    def __init__(self, node_id: int, writer: Uuid) -> None:
        self._node_id = node_id
        self._writer = writer
        self._last: dict[Uuid, int] = {}

    def see(self, beats: Iterable[Heartbeat]) -> Uuid | None:
        """The writer of a rival, None while there is no sign of one."""
        for beat in beats:
            if beat.node_id != self._node_id or beat.writer == self._writer:
                continue
            if self._last.setdefault(beat.writer, beat.time_ms) < beat.time_ms:
                return beat.writer
        return None
