"""A restore keeps to the quotas of the brokers that it writes to."""

from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.rlm.restore.kafka_model import KafkaModel
from tests.rlm.restore.world import World


@pytest.fixture
async def kafka() -> AsyncIterator[KafkaModel]:
    async with KafkaModel(slow_markers=1).running() as model:
        yield model


@pytest.mark.parametrize("portion_bytes", [1, 1 << 20])
async def test_after_an_answer_of_a_quota_nothing_is_asked_before_its_time(
    tmp_path: Path, kafka: KafkaModel, portion_bytes: int
) -> None:
    """Also batches that wait together stay in order."""
    world, asked = World(tmp_path, kafka), list[tuple[str, int]]()
    world.fill()
    kafka.throttle_ms = 400

    def note(number: int, name: str) -> str:
        asked.append((name, world.clock.monotonic_ms()))
        return ""

    kafka.on_request = note
    await world.restore(portion_bytes=portion_bytes)
    assert world.restored() == world.expected[0]
    last = max(at for at, (name, _) in enumerate(asked) if name == "Produce")
    assert asked[last + 1][1] >= asked[last][1] + 400
    if portion_bytes == 1:
        for (name, at_ms), (_, next_ms) in pairwise(asked):
            assert name != "Produce" or next_ms >= at_ms + 400
