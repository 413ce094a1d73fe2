"""What happens to the topic itself: deleted, recreated under its name, kept, hidden from services.

Each of these is a story (stories.py), beside all other events.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from kip405.errors import RemoteStorageError
from tests.builders.log_dir import TOPIC
from tests.simulation.broker_client import LEDGER_ID
from tests.simulation.ends import Ends
from tests.simulation.known_topics import TopicLife

if TYPE_CHECKING:
    from tests.simulation.world import World

Story = Callable[["World", random.Random], Awaitable[None]]


def delete(world: "World", chance: random.Random) -> TopicLife | None:
    """The topic is deleted; the metadata of some brokers lags. None where that cannot be now."""
    leader = world.cluster.leader
    if leader is None:
        return None
    _let_metadata_lag(world, chance)
    life, replica = world.known_topics.current, leader.replica
    world.known_topics.delete(replica.batches(0, replica.high_watermark))
    world.cluster.delete_topic()
    world.happened("topic deleted", str(life.topic_id))
    return life


def create(world: "World", chance: random.Random) -> TopicLife | None:
    """Another topic gets the name, with the same retention once it is enabled."""
    if world.cluster.topic_id is not None:
        return None
    topic_id = world.known_topics.create(Ends(world.ends.retention))
    if topic_id is None:
        return None
    _let_metadata_lag(world, chance)
    if not world.cluster.create_topic(topic_id):
        world.known_topics.all.pop()
        return None
    world.happened("topic recreated", str(topic_id))
    return world.known_topics.current


def _let_metadata_lag(world: "World", chance: random.Random) -> None:
    """For longer than the grace, but never that of all: what they all say is true by then (H7)."""
    now_s, brokers = world.loop.time(), list(world.cluster.brokers.values())
    for broker in brokers:
        if chance.random() < 0.3:
            broker.metadata_lags_until_s = now_s + chance.uniform(1.0, 12.0)
    if all(broker.metadata_lags_until_s > now_s for broker in brokers):
        chance.choice(brokers).metadata_lags_until_s = now_s


async def deleted(world: "World", chance: random.Random) -> None:
    """A topic is deleted, and perhaps another one gets its name."""
    life = delete(world, chance)
    if life is not None and chance.random() < 0.8:
        await asyncio.sleep(chance.choice((0.3, 3.0, 15.0)) * chance.random())
        await _recreated(world, chance)


async def _recreated(world: "World", chance: random.Random) -> None:
    life = create(world, chance)
    if life is None:
        return
    await asyncio.sleep(chance.uniform(0.3, 4.0))
    if world.known_topics.current is life and chance.random() < 0.5:
        world.enable(life.ends.retention)


async def kept(world: "World", chance: random.Random) -> None:
    """A topic is deleted by mistake, and an operator keeps its remote data, if that is not begun to
    be deleted.
    """
    life = delete(world, chance)
    if life is None:
        return
    await asyncio.sleep(chance.uniform(0.5, 14.0))
    if chance.random() < 0.4:
        await _recreated(world, chance)
    for _ in range(4):
        if await _keep(world, life, chance):
            return
        await asyncio.sleep(1)


async def _keep(world: "World", life: TopicLife, chance: random.Random) -> bool:
    """`rlm topics disable` at some service; whether it is known what came of it."""
    services = [one for one in world.services.values() if one.is_up and one.topics is not None]
    if not services or world.known_topics.view.topic(life.topic_id) is None:
        return not services
    service = chance.choice(services)
    assert service.topics is not None
    name = TOPIC if world.cluster.topic_id is None else str(life.topic_id)
    try:
        outcome = await service.call(
            service.topics.verbs.disable(name, confirm=True, delete_remote=False)
        )
    except RemoteStorageError as error:
        world.say(f"not kept: {error}")
        return False
    if outcome is None or outcome.record.topic_id != life.topic_id:
        return False
    life.is_kept = True
    world.happened("remote data kept", str(life.topic_id))
    return True


async def hidden(world: "World", chance: random.Random) -> None:
    """The principal of the services loses its rights: the topic is refused, or left out (H7)."""
    cluster, topic_id = world.cluster, world.cluster.topic_id
    unseen = chance.choice(({topic_id}, {topic_id, LEDGER_ID}))
    world.happened("access lost", f"to {len(unseen)} topics")
    if chance.random() < 0.5:
        cluster.denied = frozenset(unseen)
    else:
        cluster.hidden = frozenset(unseen)
    await asyncio.sleep(chance.uniform(3.0, 16.0))
    cluster.denied = cluster.hidden = frozenset()


async def unaware(world: "World", chance: random.Random) -> None:
    """One broker does not know the topic, and all others do."""
    brokers = world.cluster.brokers
    if len(brokers) == 1:
        return  # whose word is all that there is
    broker = brokers[chance.choice((1, 1, 2, 3))]
    broker.is_unaware = True
    world.happened("broker unaware of the topic", broker.process.name)
    await asyncio.sleep(chance.uniform(6.0, 16.0))
    broker.is_unaware = False


def heal(world: "World") -> None:
    """Every broker learns what there is, and the services may see it."""
    world.cluster.denied = world.cluster.hidden = frozenset()
    for broker in world.cluster.brokers.values():
        broker.metadata_lags_until_s = 0.0
        broker.is_unaware = False


STORIES: tuple[Story, ...] = (deleted, deleted, kept, hidden, unaware)
