"""What reads and writes the metadata topics ends by one cancellation, whenever that comes. Some of
it goes on after every error, and what it waits for may take a cancellation for an error.
"""

import asyncio

from kafka_protocol.error_codes import OFFSET_OUT_OF_RANGE
from kip405.errors import Unavailable
from kip405.ids import TopicPartition
from rlmm.end_offsets import EndOffsetClient
from rlmm.leader_answers import EpochQuestion
from rlmm.log_reader import LogReader
from tests.builders.two_brokers import TwoBrokers
from tests.cancelling import ends_at_each_turn
from tests.rlmm.test_metadata_log import PARTITION, Process
from tests.rlmm.test_publisher import LONG_MS, RECORD, Rig
from tests.rlmm.two_broker_tails import TOPIC_PARTITIONS, at_once, settings_of, tail_of
from tests.waiting import until


async def test_a_metadata_log_with_barriers_and_its_watch() -> None:
    process = Process()

    async def asks() -> None:
        while True:
            try:
                await process.log.barrier(PARTITION, LONG_MS)
            except Unavailable:
                await asyncio.sleep(0)

    async def life() -> None:
        process.intervals.release()
        async with asyncio.TaskGroup() as group:
            group.create_task(process.log.run())
            group.create_task(asks())

    await ends_at_each_turn(life, 60)


async def test_a_metadata_log_that_waits_for_its_topics() -> None:
    process = Process(may_create=False)
    process.missing = set(process.ids)
    await ends_at_each_turn(process.log.run, 20)


async def test_a_tail_whose_reader_stops() -> None:
    """It was refused what it reads, and connects anew. aiokafka takes a cancellation that comes
    meanwhile for that of a task of its own.
    """
    async with TwoBrokers().running() as cluster:
        for node in (0, 1):
            cluster.refusals[node] = asyncio.get_running_loop().create_future()
            cluster.refusals[node].set_result(OFFSET_OUT_OF_RANGE)
        stops = asyncio.Event()

        class Stopping(LogReader):
            async def stop(self) -> None:
                stops.set()
                await super().stop()

        async def stops_again() -> None:
            stops.clear()
            await stops.wait()

        async def life() -> None:
            await tail_of(lambda: Stopping(settings_of(cluster))).run()

        await ends_at_each_turn(life, 24, begun=stops_again)
        await until(lambda: not cluster.open_connections)


async def test_who_asks_leaders_for_epochs() -> None:
    async with TwoBrokers().running() as cluster:

        async def life() -> None:
            client = EndOffsetClient(settings_of(cluster), at_once)
            try:
                while True:
                    try:
                        await client.epoch_ends({TOPIC_PARTITIONS[0]: EpochQuestion(0, 0)})
                    except Unavailable:
                        await asyncio.sleep(0)
            finally:
                await client.close()

        await ends_at_each_turn(life, 80)
        await until(lambda: not cluster.open_connections)


async def test_who_publishes_again_after_each_failure() -> None:
    rig = Rig()

    async def read_back(_: TopicPartition, end: int) -> None:
        await asyncio.sleep(0)
        if end % 2:
            raise Unavailable("a read-back that fails")

    async def writes() -> None:
        while True:
            try:
                await rig.publisher.publish(RECORD, LONG_MS, read_back)
            except Unavailable:
                await asyncio.sleep(0)

    async def life() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(rig.publisher.run())
                group.create_task(writes())
        finally:
            await rig.publisher.close()

    await ends_at_each_turn(life, 60)
