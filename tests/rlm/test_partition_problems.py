"""The cost of collecting problems: the proxy waits meanwhile, since there is one thread (G6)."""

import time
from dataclasses import replace
from pathlib import Path

from kip405.ids import PartitionKey
from tests.builders.ledger import PARTITION
from tests.rlm.watched import Watched

_PARTITIONS = 4_000
_MOST_TIMES = 3


async def _nothing() -> None:
    """A job that has nothing to do."""


def _cost_s(service: Watched) -> float:
    """Of this process, the least of some: others at work do not count."""
    costs = []
    for _ in range(3):
        began_s = time.process_time()
        service.watch.current()
        costs.append(time.process_time() - began_s)
    return min(costs)


async def test_h38_partitions_that_wait_for_a_task_do_not_make_each_others_problems_dearer(
    tmp_path: Path,
) -> None:
    """The set of those that wait was copied once for each of them: a second for 3,000."""
    service = Watched(tmp_path)
    service.rig.write_log(0, 100, end=150)
    await service.run_tasks()
    snapshot = service.leadership.snapshot
    row = snapshot.partitions[PARTITION.key]
    keys = [PartitionKey(PARTITION.topic_id, number) for number in range(_PARTITIONS)]
    service.leadership.snapshot = replace(
        snapshot,
        partitions={
            key: replace(row, topic_id_partition=replace(PARTITION, partition=key.partition))
            for key in keys
        },
    )
    idle_s = _cost_s(service)
    for key in keys:
        service.copy_pool.submit(key, _nothing)
    assert _cost_s(service) < _MOST_TIMES * idle_s
