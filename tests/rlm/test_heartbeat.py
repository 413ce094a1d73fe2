"""A reader says that it lives, and is counted nowhere as a broker's service (H13, H18)."""

import asyncio
from dataclasses import replace

import pytest

from kip405.errors import Unavailable
from kip405.ids import Uuid
from rlm.plans.formats import own_formats
from rlm.plans.services import Rivals, heartbeats
from rlm.service.heartbeat import HeartbeatSender, ReaderHeartbeat
from rlmm.settings_records import ReaderRecord, ServiceRecord, SettingsRecord
from tests.builders.clock import ManualClock
from tests.builders.ledger import MemorySettings

RECORD = ReaderRecord(grpc_address="reads-1:9500", http_address="reads-1:9501", version="1")


class Ending(ManualClock):
    """The service is stopped at the third sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps: list[float] = []

    async def sleep_ms(self, duration_ms: float) -> None:
        self.sleeps.append(duration_ms)
        if len(self.sleeps) == 3:
            raise asyncio.CancelledError
        await super().sleep_ms(duration_ms)


class FailingOnce(MemorySettings):
    def __init__(self) -> None:
        super().__init__()
        self.failures = 1

    async def publish(self, record: SettingsRecord, leader_epoch: int = -1) -> None:
        if self.failures:
            self.failures -= 1
            raise Unavailable("no broker")
        await super().publish(record, leader_epoch)


async def test_it_beats_on_after_a_failure() -> None:
    settings, clock = FailingOnce(), Ending()
    beating = ReaderHeartbeat(settings=settings, clock=clock, record=RECORD, interval_ms=10_000)
    with pytest.raises(asyncio.CancelledError):
        await beating.run()
    assert settings.published == [RECORD, RECORD]
    assert all(8_000 <= slept <= 12_000 for slept in clock.sleeps)


async def test_h06_a_service_one_version_back_still_says_what_was_written() -> None:
    settings, own = MemorySettings(), own_formats("1.2.0")
    later = replace(own, software="1.3.0", writes={**own.writes, "manifest": 9})
    settings.write(
        ServiceRecord(node_id=1, listen={}, advertised={}, version="1.3.0", formats=later)
    )
    beating = HeartbeatSender(
        settings=settings,
        clock=Ending(),
        node_id=1,
        writer=Uuid(b"\x01" * 16),
        formats=own,
        listen={},
        advertised={},
        stores=tuple,
        give_back=dict,
        interval_ms=10_000,
    )
    with pytest.raises(asyncio.CancelledError):
        await beating.run()
    beats = [beat for beat in settings.published if isinstance(beat, ServiceRecord)]
    assert [(beat.version, beat.formats) for beat in beats] == [("1.2.0", later)] * 3


def test_h13_a_reader_is_no_service() -> None:
    settings = MemorySettings()
    settings.write(RECORD, node_id=-1)
    assert settings.view.services() == ()
    assert heartbeats(settings.view, 0) == ()
    assert Rivals(-1, Uuid(b"\x01" * 16)).see(heartbeats(settings.view, 0)) is None
    assert [record for record, _ in settings.view.readers()] == [RECORD]
