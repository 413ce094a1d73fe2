"""Publishes this service's heartbeat and address every few seconds, and detects a rival (H13, H18).

A rival is a second live service of the same node.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

import structlog

from kip405.errors import RemoteStorageError
from kip405.ids import Uuid
from rlm.clock import Clock, jittered_ms
from rlm.plans.services import Rivals, heartbeats
from rlmm.formats import Formats
from rlmm.settings_records import ReaderRecord, ServiceRecord, SettingsRecord
from rlmm.settings_view import SettingsView

log = structlog.get_logger()


class _Settings(Protocol):
    @property
    def is_ready(self) -> bool: ...

    @property
    def view(self) -> SettingsView: ...

    async def publish(self, record: SettingsRecord) -> None: ...


class HeartbeatSender:
    """Publishes the ServiceRecord; `rival` is the writer id of another live service of this node.

    `error`: why the last heartbeat was not published. All heartbeats since `failing_since_ms`
    (monotonic) have failed.
    """

    def __init__(
        self,
        *,
        settings: _Settings,
        clock: Clock,
        node_id: int,
        writer: Uuid,
        formats: Formats,
        listen: Mapping[str, str],
        advertised: Mapping[str, str],
        stores: Callable[[], tuple[Uuid, ...]],
        give_back: Callable[[], Mapping[Uuid, int]],
        interval_ms: int,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._record = ServiceRecord(
            node_id=node_id,
            listen=listen,
            advertised=advertised,
            version=formats.software,
            formats=formats,
        )
        self._formats = formats
        self._stores = stores
        self._give_back = give_back
        self._interval_ms = interval_ms
        self._rivals = Rivals(node_id, writer)
        self.rival: Uuid | None = None
        self.error: RemoteStorageError | None = None
        self.failing_since_ms = 0

    async def run(self) -> None:
        """Send heartbeats until cancelled; a failed one is retried at the next interval."""
        while True:
            if self._settings.is_ready:
                await self._beat()
            await self._clock.sleep_ms(jittered_ms(self._interval_ms))

    async def _beat(self) -> None:
        began_ms = self._clock.monotonic_ms()
        self.rival = self._rivals.see(heartbeats(self._settings.view, began_ms))
        try:
            beat = replace(
                self._record,
                stores=self._stores(),
                give_back=self._give_back(),
                formats=self._formats.with_written(self._written_before()),
            )
            await self._settings.publish(beat)
        except RemoteStorageError as error:
            log.warning("heartbeat_failed", error=str(error))
            self.failing_since_ms = self.failing_since_ms if self.error else began_ms
            self.error = error
        else:
            self.error = None

    def _written_before(self) -> Formats | None:
        """By the heartbeat of this node, of whatever version."""
        records = (record for record, _ in self._settings.view.services())
        own = next((one for one in records if one.node_id == self._record.node_id), None)
        return None if own is None else own.formats


class ReaderHeartbeat:
    """Publishes the ReaderRecord, which no broker counts as a live service."""

    def __init__(
        self, *, settings: _Settings, clock: Clock, record: ReaderRecord, interval_ms: int
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._record = record
        self._interval_ms = interval_ms

    async def run(self) -> None:
        """As HeartbeatSender."""
        while True:
            if self._settings.is_ready:
                try:
                    await self._settings.publish(self._record)
                except RemoteStorageError as error:
                    log.warning("heartbeat_failed", error=str(error))
            await self._clock.sleep_ms(jittered_ms(self._interval_ms))
