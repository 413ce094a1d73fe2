"""A service works once it is known that it reads what is there; else it ends and writes nothing."""

import asyncio
from typing import Any, cast

import pytest

from kip405.errors import Invalid
from kip405.ids import TopicPartition
from rlm.plans.formats import own_formats
from rlm.service.formats import FormatGate
from rlm.service.lifetime import keep_all_running
from rlm.service.store_command import act_on_what_was_read
from rlmm.manager import Metadata, TopicBasedRemoteLogMetadataManager
from rlmm.publisher import Record
from rlmm.records import LedgerKey, ledger_partition
from rlmm.settings import Settings
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from tests.builders.clock import ManualClock
from tests.builders.metadata_log import FakeMetadataLog, FakeTopics
from tests.rlmm.builders import KEY, uuid

SETTINGS = TopicPartition(SETTINGS_TOPIC, 0)
LEDGER = TopicPartition(LEDGER_TOPIC, ledger_partition(KEY))
LEDGER_KEY = LedgerKey(partition=KEY, segment_id=uuid(1)).encode()


class Starting:
    """A service whose only work is to say that it works."""

    def __init__(self) -> None:
        self.topics = FakeTopics()
        self.log = _Log(self.topics)
        clock = ManualClock()
        self.metadata = Metadata(
            log=cast(Any, self.log),
            settings=Settings(
                log=self.log,
                node_id=1,
                writer=uuid(9),
                now_ms=clock.now_ms,
                monotonic_ms=clock.monotonic_ms,
                publish_timeout_ms=1_000,
            ),
            manager=TopicBasedRemoteLogMetadataManager(
                log=self.log, writer=uuid(9), publish_timeout_ms=1_000
            ),
        )
        self.works = asyncio.Event()
        self.gate = FormatGate(self.metadata, own_formats("1.2.0"))

    def write(self, partition: TopicPartition, key: bytes, value: bytes, version: int = 1) -> None:
        headers = (
            ("rlm.v", bytes([version])),
            ("rlm.epoch", bytes(4)),
            ("rlm.prev", b"\xff"),
            ("rlm.writer", bytes(16)),
        )
        self.topics.append(Record(topic_partition=partition, key=key, value=value, headers=headers))

    async def run(self) -> None:
        """As a composition root does."""
        components = {"work": self.gate.after(self._work)}
        await keep_all_running(components, ManualClock(), self.gate.check, self._drain)

    async def _drain(self) -> None:
        return

    async def _work(self) -> None:
        self.works.set()
        await asyncio.Event().wait()


class _Log(FakeMetadataLog):
    def __init__(self, topics: FakeTopics) -> None:
        super().__init__(topics)
        self._live = asyncio.Event()

    async def wait_ready(self) -> None:
        await self._live.wait()

    def end_replay(self) -> None:
        self.go_live()
        self._live.set()


async def test_work_begins_once_ledger_and_settings_are_read() -> None:
    service = Starting()
    running = asyncio.create_task(service.run())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not service.works.is_set()
    service.log.end_replay()
    await service.works.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


NEWER = pytest.mark.parametrize(
    ("partition", "key", "value", "version", "named"),
    [
        (SETTINGS, b"freeze", b'{"v":2}', 1, "v=2"),
        (LEDGER, LEDGER_KEY, b"\x01\x00\x00", 3, "rlm.v=3"),
    ],
    ids=["settings", "ledger"],
)


@NEWER
async def test_h06_beside_a_newer_format_no_work_begins_and_the_service_ends(
    partition: TopicPartition, key: bytes, value: bytes, version: int, named: str
) -> None:
    service = Starting()
    service.write(partition, key, value, version)
    service.log.end_replay()
    with pytest.raises(ExceptionGroup) as found:
        await service.run()
    (error,) = found.value.exceptions
    assert isinstance(error, Invalid)
    assert named in str(error)
    assert "this is version 1.2.0" in str(error)
    assert not service.works.is_set()
    assert [len(log) for log in service.topics.records.values()] == [1], "nothing was written"


async def test_h06_a_newer_format_whose_key_was_written_again_is_over() -> None:
    service = Starting()
    service.write(LEDGER, LEDGER_KEY, b"\x01\x00\x00", 3)
    service.write(LEDGER, LEDGER_KEY, b"\x09damaged")
    service.log.end_replay()
    await service.gate.check()


async def test_h06_a_record_of_an_unknown_kind_stops_its_partition_and_no_start() -> None:
    service = Starting()
    service.write(LEDGER, LEDGER_KEY, b"\x01\x07\x00new")
    service.log.end_replay()
    await service.gate.check()


async def test_h06_what_comes_after_the_start_ends_no_service() -> None:
    service = Starting()
    service.log.end_replay()
    running = asyncio.create_task(service.run())
    await service.works.wait()
    service.write(SETTINGS, b"freeze", b'{"v":2}')
    service.log.read_all()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@NEWER
async def test_h06_a_command_without_a_service_does_not_work_beside_a_newer_format_either(
    partition: TopicPartition, key: bytes, value: bytes, version: int, named: str
) -> None:
    service = Starting()
    service.write(partition, key, value, version)
    acted: list[Metadata] = []

    async def act(metadata: Metadata) -> None:
        acted.append(metadata)

    service.log.end_replay()
    with pytest.raises(Invalid, match=named) as found:
        await act_on_what_was_read(service.metadata, act)
    assert "this is version" in str(found.value)
    assert acted == []


async def test_a_command_without_a_service_acts_on_what_it_reads() -> None:
    service = Starting()

    async def act(metadata: Metadata) -> bool:
        return metadata is service.metadata and metadata.log.is_ready

    running = asyncio.create_task(act_on_what_was_read(service.metadata, act))
    await asyncio.sleep(0)
    service.log.end_replay()
    assert await running
