"""RemoteLogManager beside Kafka that is not there: what it refuses, how its block ends."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kip405.addresses import Address
from kip405.errors import Fenced, Invalid, RemoteStorageError, Unavailable
from kip405.ids import TopicPartition
from rlm.config import ServiceConfig
from rlm.log_dir.identity import BrokerIdentity, ServiceLock
from rlm.remote_log.reads import Piece, ReadRequest
from rlm.service.broker_service import BrokerService
from rlm.service.remote_log_manager import LogReadResult, RemoteLogManager
from rlm_sandbox.ports import PortReservation
from tests.builders.clock import ManualClock
from tests.builders.fake_broker import FakeBroker
from tests.builders.service import NOBODY, NODE_ID, broker_config

PARTITION = TopicPartition("orders", 0)
IDENTITY = BrokerIdentity(cluster_id="ours", node_id=NODE_ID)
PIECE_BYTES = (b"first", memoryview(b"second"))


def settings(path: Path, address: Address = NOBODY, *, workers: int = 0) -> ServiceConfig:
    (path / "meta.properties").write_text(
        f"version=1\ncluster.id={IDENTITY.cluster_id}\nnode.id={IDENTITY.node_id}\n"
    )
    ports = PortReservation()
    proxy, grpc, http = ports.take(), ports.take(), ports.take()
    ports.lend(proxy, grpc, http)
    listen = {"proxy.listen": proxy, "grpc.listen": grpc, "http.listen": http}
    given = {key: f"127.0.0.1:{port}" for key, port in listen.items()}
    return broker_config(path, {**given, "proxy.workers": workers}, address)


def test_proxy_workers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"proxy\.workers"):
        RemoteLogManager(settings(tmp_path, workers=2))


async def test_h13_a_second_one_of_the_broker_is_refused_in_the_same_process_too(
    tmp_path: Path,
) -> None:
    config = settings(tmp_path)
    with ServiceLock(str(tmp_path), IDENTITY), pytest.raises(Invalid, match="another service"):
        await RemoteLogManager(config).__aenter__()


async def test_h13_the_disks_of_another_broker_are_refused(tmp_path: Path) -> None:
    config = settings(tmp_path)
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=ours\nnode.id=4\n")
    with pytest.raises(Invalid, match="belong to node 4"):
        await RemoteLogManager(config).__aenter__()


async def test_a_broker_that_is_refused_ends_the_start_without_a_group(tmp_path: Path) -> None:
    async with FakeBroker().running() as broker, asyncio.timeout(60):
        with pytest.raises(Invalid, match=r"older than Kafka 3\.3"):
            await RemoteLogManager(settings(tmp_path, broker.address)).__aenter__()


async def test_a_start_that_is_given_up_leaves_nothing_behind(tmp_path: Path) -> None:
    manager = RemoteLogManager(settings(tmp_path))
    before = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await manager.__aenter__()
    assert asyncio.all_tasks() == before
    with ServiceLock(str(tmp_path), IDENTITY):
        pass
    with pytest.raises(Invalid, match="entered once"):
        await manager.__aenter__()


class Ended(RemoteLogManager):
    """Its service does nothing; `dies` ends it with an error, `piece` is what a read finds."""

    def __init__(self, path: Path, clock: ManualClock | None = None) -> None:
        super().__init__(settings(path), clock=clock)
        self.dies, self.is_found = asyncio.Event(), asyncio.Event()
        self.has_ended = False
        self.paced: list[int] = []

    async def _start(self) -> None:
        self._serving = self._group.create_task(self._live())
        throttle = SimpleNamespace(pace=self._pace)
        service = SimpleNamespace(dependencies=SimpleNamespace(throttle=throttle))
        self._service = cast(BrokerService, service)

    async def _live(self) -> None:
        try:
            await self.dies.wait()
        finally:
            self.has_ended = True
        raise Fenced("services of a later version have written")

    async def _pace(self, principal: str, size_bytes: int, *, is_remote: bool) -> None:
        self.paced.append(size_bytes)

    async def _first_piece(
        self, service: BrokerService, partition: TopicPartition, request: ReadRequest
    ) -> Piece | None:
        await self.is_found.wait()
        return Piece(
            batches=list(PIECE_BYTES),
            next_offset=request.start_offset + 7,
            aborted=((1, 2),),
            high_watermark=90,
            last_stable_offset=90,
            log_start_offset=3,
            is_remote=True,
            missing=((4, 5),),
        )

    async def _nothing(self, partition: TopicPartition, offset: int) -> LogReadResult:
        return LogReadResult(
            records=b"", next_offset=offset, log_start_offset=3, remote_next_offset=90
        )


async def test_what_ends_the_service_cancels_the_block_and_is_raised_as_it_is(
    tmp_path: Path,
) -> None:
    with pytest.raises(Fenced, match="later version"):
        async with Ended(tmp_path) as manager:
            manager.dies.set()
            await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_the_blocks_own_error_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with Ended(tmp_path) as manager:
            await asyncio.sleep(0)
            raise ZeroDivisionError
    assert manager.has_ended
    with ServiceLock(str(tmp_path), IDENTITY):
        pass


async def test_a_block_that_is_cancelled_is_shut_down(tmp_path: Path) -> None:
    manager, entered = Ended(tmp_path), asyncio.Event()

    async def program() -> None:
        async with manager:
            entered.set()
            await asyncio.Event().wait()

    running = asyncio.ensure_future(program())
    await entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert manager.has_ended


async def test_a_read_has_the_bytes_and_what_is_around_them(tmp_path: Path) -> None:
    async with Ended(tmp_path) as manager:
        manager.is_found.set()
        found = await manager.read(PARTITION, 10, 1)
        assert manager.paced == [len(found.records)]
    assert found == LogReadResult(
        records=b"firstsecond",
        next_offset=17,
        log_start_offset=3,
        remote_next_offset=90,
        aborted=((1, 2),),
        missing=((4, 5),),
    )


@pytest.mark.parametrize(("offset", "max_bytes"), [(-1, 1), (0, 0), (0, (32 << 20) + 1)])
async def test_a_read_that_makes_no_sense_is_invalid(
    tmp_path: Path, offset: int, max_bytes: int
) -> None:
    async with Ended(tmp_path) as manager:
        with pytest.raises(Invalid):
            await manager.read(PARTITION, offset, max_bytes)


async def test_a_hard_limit_gives_no_batch_that_is_larger(tmp_path: Path) -> None:
    async with Ended(tmp_path) as manager:
        manager.is_found.set()
        nothing = await manager._nothing(PARTITION, 10)
        assert await manager.read(PARTITION, 10, 10, hard_max_bytes=True) == nothing
        whole = await manager.read(PARTITION, 10, 11, hard_max_bytes=True)
        assert whole.records == b"firstsecond"


async def test_a_shutdown_waits_for_reads_and_takes_no_more(tmp_path: Path) -> None:
    async with Ended(tmp_path) as manager:
        reading = asyncio.ensure_future(manager.read(PARTITION, 0))
        await asyncio.sleep(0)
        ending = asyncio.ensure_future(manager.shutdown())
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="does not run"):
            await manager.read(PARTITION, 0)
        assert not manager.has_ended
        manager.is_found.set()
        assert (await reading).records == b"firstsecond"
        await ending
        assert manager.has_ended


async def test_a_read_that_never_ends_is_given_up_at_the_end(tmp_path: Path) -> None:
    clock = ManualClock()
    async with asyncio.timeout(60), Ended(tmp_path, clock) as manager:
        reading = asyncio.ensure_future(manager.read(PARTITION, 0))
        await asyncio.sleep(0)
        await manager.shutdown()
        with pytest.raises(Unavailable, match="shut down during the read"):
            await reading


@pytest.mark.parametrize(
    "ask",
    [
        lambda manager: manager.read(PARTITION, 0),
        lambda manager: manager.add_partitions([PARTITION]),
        lambda manager: manager.remove_partitions([PARTITION]),
    ],
)
async def test_nothing_works_before_it_was_entered(
    tmp_path: Path, ask: Callable[[RemoteLogManager], Any]
) -> None:
    with pytest.raises(RemoteStorageError, match="is to be entered"):
        await ask(RemoteLogManager(settings(tmp_path)))
