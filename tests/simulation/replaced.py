"""A dead history (H8): segments of a log that another one has replaced, copied before that.

Nothing is trimmed meanwhile, so that the new leader's epoch file reaches down to these segments: no
other file proves that they are in no history.
"""

import asyncio
import random
from typing import TYPE_CHECKING

from tests.simulation.model_cluster import Broker
from tests.simulation.model_service import UNREFERENCED_GRACE_MS
from tests.simulation.peace import tick

if TYPE_CHECKING:
    from tests.simulation.world import World

EVENT = "unreferenced deleted"
_MOST_S = 3 * UNREFERENCED_GRACE_MS / 1000


async def replaced(world: "World", chance: random.Random) -> None:
    """After the chaos, whose elections would leave no time for it, a follower that lacks the newest
    copied segments leads, and writes other records; perhaps these are not copied for a while.
    """
    while world.is_chaos:
        await asyncio.sleep(0.5)
        world.raise_failure()
    cluster, retention = world.cluster, world.ends.retention
    others = [one for one in cluster.brokers if one != cluster.partition.leader]
    if not others:
        return
    world.enable(retention, trims=False)
    if await _diverge(world, cluster.brokers[chance.choice(others)], chance):
        deleted, limit_s = world.counts[EVENT], world.loop.time() + _MOST_S
        world.store.is_full = chance.random() < 0.5
        await _produce(world, chance.uniform(6.0, 12.0))
        world.store.is_full = False
        while world.counts[EVENT] == deleted and world.loop.time() < limit_s:
            await _produce(world, 1.0)
    world.enable(retention)


async def _diverge(world: "World", behind: Broker, chance: random.Random) -> bool:
    """Whether a follower leads with what it had some seconds ago."""
    behind.cut_off_until_s = world.loop.time() + 60
    await _produce(world, chance.uniform(4.5, 7.5))
    behind.cut_off_until_s = 0.0
    if not behind.is_up or world.cluster.partition.leader == behind.node_id:
        return False
    world.cluster.elect(behind.node_id, isr=(behind.node_id,))
    world.happened("unclean election", f"{behind.process.name} with {behind.replica.end}")
    return True


async def _produce(world: "World", duration_s: float) -> None:
    end_s = world.loop.time() + duration_s
    while world.loop.time() < end_s:
        await asyncio.sleep(0.3)
        world.cluster.produce()
        tick(world)
        world.raise_failure()
