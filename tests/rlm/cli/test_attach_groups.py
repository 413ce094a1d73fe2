"""Groups of unmodified clients at `rlm attach`, and its end by SIGKILL between their commits."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaException

from tests.builders.attached_process import AttachedReader, attached_reader
from tests.builders.ledger import PARTITION
from tests.builders.opened import opened
from tests.rlm.cli.test_attach import stored
from tests.waiting import until

END = 300
_LIMIT_S = 120


@pytest.mark.timeout(600)  # two starts of the command
async def test_a_group_goes_on_where_it_was_after_a_kill(tmp_path: Path) -> None:
    """Each record once, by librdkafka, then aiokafka, then two members of which one leaves."""
    store = await stored(tmp_path)
    with attached_reader(tmp_path, store, serves_kafka=True, is_killed=True) as reader:
        read = await asyncio.to_thread(_librdkafka, reader, 120)
        reader.process.kill()
    with attached_reader(tmp_path, store, serves_kafka=True) as reader:
        read += await _aiokafka(reader, 80)
        read += await asyncio.to_thread(_one_after_the_other, reader)
    assert read == list(range(END))


def _config(reader: AttachedReader) -> dict[str, Any]:
    return {
        "bootstrap.servers": reader.kafka,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }


def _read(consumer: Consumer, most: int) -> list[int]:
    """So many offsets at most, which are committed."""
    found: list[int] = []

    def are_read() -> bool:
        message = consumer.poll(0.1)
        if message is not None:
            if message.error():
                raise KafkaException(message.error())
            found.append(message.offset() or 0)
            if len(found) == most:
                consumer.commit(message=message, asynchronous=False)
        return len(found) == most

    asyncio.run(until(are_read, _LIMIT_S))
    return found


def _librdkafka(reader: AttachedReader, most: int) -> list[int]:
    consumer = Consumer(_config(reader))
    try:
        consumer.subscribe([PARTITION.topic])
        return _read(consumer, most)
    finally:
        consumer.close()


async def _aiokafka(reader: AttachedReader, most: int) -> list[int]:
    consumer = AIOKafkaConsumer(
        PARTITION.topic,
        bootstrap_servers=reader.kafka,
        group_id="g",
        enable_auto_commit=False,
    )
    async with opened(consumer), asyncio.timeout(_LIMIT_S):
        found = [(await consumer.getone()).offset for _ in range(most)]
        await consumer.commit()
    return found


def _one_after_the_other(reader: AttachedReader) -> list[int]:
    """Two members for one partition: the one without it takes it over, and goes on."""
    members = [Consumer(_config(reader)) for _ in range(2)]
    try:
        members[0].subscribe([PARTITION.topic])
        found = _read(members[0], 50)
        members[1].subscribe([PARTITION.topic])

        def is_joined() -> bool:
            for one in members:
                one.pause(one.assignment())
                assert one.poll(0.1) is None
            return members[1].memberid() not in (None, "") and bool(members[0].assignment())

        asyncio.run(until(is_joined, _LIMIT_S))
        members.pop(0).close()
        return found + _read(members[0], 50)
    finally:
        for one in members:
            one.close()
