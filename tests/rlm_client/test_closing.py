"""A consumer that is closed, or moves on, in the midst of a read leaves nothing behind."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import ConsumerStoppedError
from aiokafka.structs import TopicPartition

from rlm_client import TieredStorageConsumer
from rlm_client.store.opened import OpenStores
from rlm_client.store.options import store_options
from rlm_client.store.reader import StoreReader
from rsm_plugins.store_kinds import OpenStore
from tests.builders.ledger import PARTITION as STORED
from tests.rlm_client.store_site import Site, log_of, reading
from tests.tiered_reads.fake_kafka import FakeKafka
from tests.tiered_reads.fake_service import FakeService, stalling
from tests.waiting import until
from tiered_reads.stopping import Stop, Stopped

PARTITION = TopicPartition("t", 0)


@pytest.mark.parametrize("mode", ["remote_only", "kafka_preferred", "remote_preferred"])
async def test_stop_in_the_midst_of_a_read_leaves_no_task_and_no_thread(mode: str) -> None:
    with (
        FakeKafka(log_start=12, end=30).running() as kafka,
        FakeService(start=0, end=30, remote_end=21).running() as service,
    ):
        service.scripted.append(stalling())
        consumer = TieredStorageConsumer(
            bootstrap_servers=kafka.bootstrap,
            rlm_endpoints=service.address,
            tiered_storage_mode=mode,
        )
        consumer.assign([PARTITION])
        await consumer.start()
        consumer.seek(PARTITION, 0)
        waiting = asyncio.create_task(consumer.getone())
        await until(lambda: service.asked("Fetch"))
        async with asyncio.timeout(60):
            await consumer.stop()
            with pytest.raises(ConsumerStoppedError):
                await waiting
        await asyncio.to_thread(service.released.wait, 60)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await until(lambda: not _ours())
        assert consumer.counters().failed_reads == 0


def _ours() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("rlm-client")]


class _Silent:
    """A store that takes calls for a log and answers none."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.asked = threading.Event()
        self.given_up = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def fetch_log_segment(self, *asked: Any) -> Any:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up.set()


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_read_of_a_silent_store_ends_with_its_reader(tmp_path: Path, is_closed: bool) -> None:
    site = Site(tmp_path / "store")
    site.prepare()
    site.add(1, log_of(0, 60))
    silent = _Silent(site.store)

    async def opened(values: Any, threads: Any) -> OpenStore:
        return replace(await local.open(values, threads), manager=silent)

    options = store_options(**site.options())
    local = options.stores[0].kind
    made = replace(options.stores[0], kind=replace(local, open=opened))
    stores, stop = OpenStores(replace(options, stores=(made,))), Stop()
    reader = StoreReader(site, stores, reading(), STORED.topic_id.raw, site)
    ended: list[BaseException] = []

    def read() -> None:
        try:
            list(reader.read(0, 60, stop))
        except Exception as error:  # noqa: BLE001 - what it is the test says
            ended.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert silent.asked.wait(60)
    if is_closed:
        stop.set()
    stores.close()
    thread.join(60)
    assert not thread.is_alive() and silent.given_up.wait(60)
    assert [type(one) for one in ended] == [Stopped] if is_closed else len(ended) == 1
    assert stores.memory.taken_bytes == 0 and site.read_at == []
