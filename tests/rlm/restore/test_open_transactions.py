"""An open transaction of somebody else is waited for, and counts if it was committed."""

from pathlib import Path

import pytest

from kip405.errors import Invalid, Unavailable
from tests.kip405.batch_builder import batch
from tests.rlm.restore.kafka_model import KafkaModel
from tests.rlm.restore.world import NEW, World

OTHER = 5
ABORT, COMMIT = 0, 1


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
async def test_an_open_transaction_is_waited_for(tmp_path: Path, kind: int) -> None:
    async with KafkaModel(slow_markers=1).running() as kafka:
        world = World(tmp_path, kafka)
        world.fill()
        await world.restore()
        world.put(batch(23, 10))
        log = kafka.logs[NEW, 0]
        log.open[OTHER] = log.end
        log.append(batch(0, 3, transactional=True, producer_id=OTHER))
        with pytest.raises(Unavailable, match=f"is open at {log.open[OTHER]}"):
            await world.restore()
        fetches = 0

        def end_it(count: int, name: str) -> str:
            nonlocal fetches
            fetches += name == "Fetch"
            if name == "ListOffsets" and fetches > 2 and OTHER in log.open:
                log.mark(OTHER, 0, kind)
            return ""

        kafka.on_request = end_it
        if kind == COMMIT:
            with pytest.raises(Invalid, match="somebody else has written"):
                await world.restore()
        else:
            await world.restore()
            assert world.restored() == world.expected[0]
