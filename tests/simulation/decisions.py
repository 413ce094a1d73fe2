"""What operators decide of the remote data of a topic that stays in Kafka: `rlm topics disable`,
with and without `--delete`, taken back or not, and `rlm topics enable` afterwards.

Each story calls the real verbs of whichever service leads the partition, as the commands do.
"""

import asyncio
import random
from typing import TYPE_CHECKING

from kip405.errors import RemoteStorageError
from rlm.remote_log.log_starts import Remains
from rlm.topics.rules import RetentionOptions
from rlm.topics.verbs import EnableOptions, Outcome, TopicVerbs
from tests.builders.log_dir import TOPIC
from tests.simulation.ends import UNLIMITED
from tests.simulation.invariants import Broken
from tests.simulation.known_topics import TopicLife
from tests.simulation.model_service import DELETE_DELAY_MS, Service

if TYPE_CHECKING:
    from tests.simulation.world import World

_ENABLED_WITHIN_S = 240
_DELAY_S = DELETE_DELAY_MS / 1000
_TRIES = 6


def leading(world: "World") -> Service | None:
    """The service beside the leader, where it can be asked."""
    leader = world.cluster.leader
    service = world.services.get(leader.node_id) if leader is not None else None
    if service is None or not service.is_up or service.topics is None:
        return None
    return service


async def disabled(world: "World", chance: random.Random) -> None:
    """A topic is disabled, and its remote data is to go or to stay; then it is enabled again."""
    life = world.known_topics.current
    deletes = chance.random() < 0.8
    event = "disable --delete" if deletes else "disable"
    if not await _disable(world, life, event, delete_remote=deletes):
        return
    if deletes and chance.random() < 0.5:
        at_s = chance.choice((chance.uniform(0.0, _DELAY_S), chance.uniform(0.9, 1.4) * _DELAY_S))
        await asyncio.sleep(at_s)
        if chance.random() < 0.3:
            await _slow_down(world, chance)
        await _disable(world, life, "disable --delete undone")
    await asyncio.sleep(chance.uniform(0.0, 12.0))
    if chance.random() < 0.7:
        await _enable_again(world, life, chance)


async def _slow_down(world: "World", chance: random.Random) -> None:
    """The decision that comes next may be read long before it is written."""
    service = leading(world)
    if service is not None:
        until_s = world.loop.time() + chance.uniform(0.5, 4.0)
        world.network.slow_until[service.process.name] = until_s


async def _disable(
    world: "World", life: TopicLife, event: str, *, delete_remote: bool = False
) -> bool:
    """Whether it is known that it was decided; asked until there is an answer, or another topic."""
    for attempt in range(_TRIES):
        service = leading(world)
        if world.known_topics.current is not life or life.deleted_ms is not None:
            return False
        if service is not None and service.topics is not None:
            life.is_disabled = True
            life.times_disabled += 1
            outcome = await _disable_at(world, service, service.topics.verbs, delete_remote)
            if outcome is not None and outcome.record.topic_id == life.topic_id:
                world.happened(event, str(life.topic_id))
                if not delete_remote:
                    _check_kept(world, life, is_first=attempt == 0)
                return True
        await asyncio.sleep(1)
    return False


def _check_kept(world: "World", life: TopicLife, *, is_first: bool) -> None:
    """An operator was told that the remote data is kept, and perhaps nothing else before. What was
    to be discarded besides is another decision, and may be gone.
    """
    if life.decided_ms is not None:
        world.fail(Broken(f"what is to be deleted of {life.topic_id} was taken back, and is not"))
    if life.has_begun and is_first and life.key not in world.discards.pending:
        world.fail(Broken(f"taken back too late: {life.topic_id} is not whole"))


async def _disable_at(
    world: "World", service: Service, verbs: TopicVerbs, delete_remote: bool
) -> Outcome | None:
    try:
        return await service.call(verbs.disable(TOPIC, confirm=True, delete_remote=delete_remote))
    except RemoteStorageError as error:
        world.say(f"not disabled: {error}")
        return None


async def _enable_again(world: "World", life: TopicLife, chance: random.Random) -> None:
    """`rlm topics enable --trim`, perhaps before the deletion is over, which refuses it."""
    for _ in range(_TRIES):
        if world.known_topics.current is not life or life.deleted_ms is not None:
            return
        if await enable(world) is None:
            return
        await asyncio.sleep(chance.uniform(0.5, 3.0))


async def enable(world: "World") -> str | None:
    """`rlm topics enable --trim` with an unlimited retention; why it was refused, None = done."""
    service, life = leading(world), world.known_topics.current
    if service is None or service.topics is None:
        return "there is no service to ask"
    retention = RetentionOptions(
        retention_ms=UNLIMITED.retention_ms,
        retention_bytes=UNLIMITED.retention_bytes,
        local_retention_ms=0,
    )
    options = EnableOptions(
        by="the simulation", trim=True, retention=retention, yes=True, remains=Remains.END
    )
    try:
        outcome = await service.call(service.topics.verbs.enable(TOPIC, options))
    except RemoteStorageError as error:
        world.say(f"not enabled: {error}")
        return str(error)
    if outcome is None or outcome.record.topic_id != life.topic_id:
        return "there was no answer"
    life.is_disabled = life.is_kept = False
    world.happened("enabled again", str(life.topic_id))
    return None


async def until_enabled(world: "World") -> None:
    """In peace: the topic can be enabled again, once what was to be deleted is gone."""
    limit_s = world.loop.time() + _ENABLED_WITHIN_S
    while world.known_topics.current.is_disabled and world.cluster.topic_id is not None:
        why = await enable(world)
        if why is not None and world.loop.time() > limit_s:
            raise Broken(f"not enabled again after {_ENABLED_WITHIN_S} s: {why}")
        await asyncio.sleep(1)
        world.raise_failure()
