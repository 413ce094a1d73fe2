"""Decides by heartbeats which brokers have a live service, and whether ours has a rival. Pure.

No writer's clock is trusted: a service whose clock ran ahead would count as live long after it
died, and records would be trimmed that it cannot serve (G1, H16, H18).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kip405.ids import Uuid
from rlmm.settings_view import SettingsView

DEAD_AFTER_BEATS = 3
"""A service that was not heard for so many intervals of heartbeats is dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The newest heartbeat of one node's service: its record, and its age since it was received,
    None = not received since this process follows the settings topic.
    """

    node_id: int
    writer: Uuid
    offset: int
    heard_ms_ago: int | None


def heartbeats(view: SettingsView, monotonic_ms: int) -> tuple[Heartbeat, ...]:
    """The newest heartbeat of every node's service, at that time of our monotonic clock."""
    found = ((record, view.get(record.key)) for record, _ in view.services())
    return tuple(
        Heartbeat(
            node_id=record.node_id,
            writer=adopted.stamp.writer,
            offset=adopted.offset,
            heard_ms_ago=view.heard_age_ms(record.key, monotonic_ms),
        )
        for record, adopted in found
        if adopted is not None
    )


def live_nodes(beats: Iterable[Heartbeat], *, max_age_ms: int) -> frozenset[int]:
    """Node ids whose service sent a heartbeat at most `max_age_ms` ago."""
    return frozenset(
        beat.node_id
        for beat in beats
        if beat.heard_ms_ago is not None and beat.heard_ms_ago <= max_age_ms
    )


class Rivals:
    """Detects a second live service of our node (H13): its heartbeats continue while ours do.

    One heartbeat of another writer may be the last of our predecessor; two different ones seen by
    this process are those of a live rival. The lock in the state dir detects a rival on the same
    machine and state dir, this class one anywhere else.
    """

    def __init__(self, node_id: int, writer: Uuid) -> None:
        self._node_id = node_id
        self._writer = writer
        self._last: dict[Uuid, int] = {}

    def see(self, beats: Iterable[Heartbeat]) -> Uuid | None:
        """The writer id of a rival, None while there is no sign of one."""
        for beat in beats:
            if beat.node_id != self._node_id or beat.writer == self._writer:
                continue
            if self._last.setdefault(beat.writer, beat.offset) < beat.offset:
                return beat.writer
        return None
