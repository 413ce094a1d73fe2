"""A barrier that is asked for while another leader epoch begins waits for that leader's word."""

import asyncio
from collections.abc import Mapping

from kip405.ids import TopicPartition
from rlmm.leader_answers import EpochEnd, EpochQuestion
from tests.rlmm.leaders import Leaders
from tests.rlmm.test_metadata_log import PARTITION, Process
from tests.waiting import until


class _Elects(Leaders):
    """Once `is_electing`, a leader is elected, and its first record is read, after the end was
    asked for; its word for the epochs comes when the barrier asks, too.
    """

    is_electing = False
    waiting = 0

    async def end_offset(self, topic_partition: TopicPartition, min_insync_replicas: int) -> int:
        if self.is_electing and topic_partition == PARTITION:
            await until(lambda: self.asked)
            self.now[PARTITION].elect(1)
            self.now[PARTITION].append(1)
            await until(lambda: self.waiting == 1)  # the tail has read it, and asks by itself
        return await super().end_offset(topic_partition, min_insync_replicas)

    async def epoch_ends(
        self, questions: Mapping[TopicPartition, EpochQuestion]
    ) -> dict[TopicPartition, EpochEnd]:
        if self.now[PARTITION].leader_epoch:
            self.waiting += 1
            await until(lambda: self.waiting > 1)
        return await super().epoch_ends(questions)


async def test_h42_a_barrier_asks_again_where_another_epoch_began_meanwhile() -> None:
    process = Process(leaders_of=_Elects)
    leaders = process.leaders
    assert isinstance(leaders, _Elects)
    leaders.now[PARTITION].append(100)
    async with process.running():
        await process.log.wait_ready()
        leaders.asked.clear()
        leaders.is_electing = True
        async with asyncio.timeout(60):
            await process.barrier()
