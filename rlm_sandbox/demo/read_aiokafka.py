"""Reads the whole topic with aiokafka (read_committed), in order, to the end of every partition."""

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from rlm.clock import Clock
from rlm_sandbox.demo.comparison import Comparison, Progress, RecordCheck, Yardstick
from rlm_sandbox.demo.report import DemoError

_STALLED_MS = 60_000
_POLL_MS = 500


def read_aiokafka(
    bootstrap: str, topic: str, yardstick: Yardstick, *, clock: Clock, progress: Progress
) -> Comparison:
    """One full read_committed read; DemoError when it fails or makes no progress."""
    try:
        return asyncio.run(_read(bootstrap, topic, yardstick, clock, progress))
    except KafkaError as error:
        raise DemoError(f"aiokafka: {error!r}") from error


async def _read(
    bootstrap: str, topic: str, yardstick: Yardstick, clock: Clock, progress: Progress
) -> Comparison:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        enable_auto_commit=False,
        # A reset of a position is an error, not a new start.
        auto_offset_reset="none",
        isolation_level="read_committed",
    )
    await consumer.start()
    try:
        partitions = [TopicPartition(topic, one) for one in yardstick.expected]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        ends = await consumer.end_offsets(partitions)
        return await read_to_ends(consumer, ends, yardstick, clock=clock, progress=progress)
    finally:
        await consumer.stop()


async def read_to_ends(
    consumer: Any,
    ends: dict[Any, int],
    yardstick: Yardstick,
    *,
    clock: Clock,
    progress: Progress,
) -> Comparison:
    """Compare what a started consumer gives until its positions are at `ends`, by partition.

    DemoError when no record comes for a minute.
    """
    check = RecordCheck(yardstick)
    open_partitions = set(ends)
    last_ms = clock.monotonic_ms()
    while open_partitions:
        answer = await consumer.getmany(timeout_ms=_POLL_MS)
        now_ms = clock.monotonic_ms()
        for partition, records in answer.items():
            for one in records:
                check.see(
                    partition.partition, one.offset, one.timestamp, one.key, one.value, one.headers
                )
            last_ms = now_ms
        # By position, not by the last record: a transaction's marker may lie behind it, because
        # brokers write markers after they answered the commit, and no client is given them.
        open_partitions = {
            one for one in open_partitions if await consumer.position(one) < ends[one]
        }
        if now_ms - last_ms > _STALLED_MS:
            raise DemoError(
                f"aiokafka got no record for {_STALLED_MS // 1000} s after"
                f" {check.comparison.read_records} of {yardstick.records}"
            )
        progress(check.comparison.read_records)
    check.comparison.finish()
    return check.comparison
