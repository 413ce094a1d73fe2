"""`rlm freeze`, of the cluster or of the topic, and `rlm unfreeze` some seconds later (G1).

While a freeze is known, no object and no record of a log goes, but for what was on its way.
"""

import asyncio
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from kip405.errors import NotFound, RemoteStorageError
from kip405.ids import Uuid
from rlm.service.metadata import BARRIER_DEADLINE_MS
from rlm.topics.partition_records import Freezes
from rlmm.settings_records import FreezeRecord
from rlmm.settings_view import SettingsView
from tests.builders.log_dir import TOPIC
from tests.simulation.invariants import Broken
from tests.simulation.loop import Process
from tests.simulation.model_cluster import Cluster
from tests.simulation.model_service import Service

if TYPE_CHECKING:
    from tests.simulation.world import World

_ON_ITS_WAY_S = 5.0
_INTERVAL_S = 0.25


class FreezeWatch:
    """Since when every service that runs knows a freeze, and no process has stood since then: what
    a process has read when it stands, it does when it goes on.
    """

    def __init__(self, cluster: Cluster, services: Mapping[int, Service]) -> None:
        self._cluster = cluster
        self._services = services
        self._known_since_s: float | None = None

    def observe(self, topic_id: Uuid) -> None:
        """To be called often while a freeze may be on record."""
        up = [one for one in self._services.values() if one.is_up]
        processes = [*(one.process for one in up), *self._brokers()]
        is_known = all(_found(one.settings.view, topic_id) for one in up)
        if not is_known or any(one.is_paused for one in processes):
            self._known_since_s = None
        elif self._known_since_s is None:
            self._known_since_s = self._cluster.loop.time()

    def forget(self) -> None:
        """The freeze is about to be removed."""
        self._known_since_s = None

    def check(self, what: str) -> None:
        """Right before something is deleted."""
        since_s, now_s = self._known_since_s, self._cluster.loop.time()
        if since_s is not None and now_s - since_s > _ON_ITS_WAY_S:
            raise Broken(f"frozen for {now_s - since_s:.1f} s, and {what} is deleted")

    def _brokers(self) -> list[Process]:
        return [one.process for one in self._cluster.brokers.values()]


async def frozen(world: "World", chance: random.Random) -> None:
    """An operator freezes what deletes, and lifts that later."""
    topic_id = world.known_topics.current.topic_id
    topic = chance.choice(("", TOPIC))
    end_s = world.loop.time() + chance.uniform(7.0, 12.0)
    if not await _freeze(world, topic):
        return
    while world.loop.time() < end_s:
        await asyncio.sleep(_INTERVAL_S)
        world.freezes.observe(topic_id)
    await lift(world)


async def _freeze(world: "World", topic: str) -> bool:
    """Asked until it is on record; whether it is."""
    for _ in range(5):
        service = _any_service(world)
        if service is not None:
            freezes = _freezes(service)
            try:
                await service.call(freezes.freeze(topic, by="an operator", why="a simulation"))
            except RemoteStorageError as error:
                world.say(f"not frozen: {error}")
        if _on_record(world):
            world.happened("freeze", topic or "all topics")
            return True
        await asyncio.sleep(1)
    return False


async def lift(world: "World") -> None:
    """Every freeze on record is removed, also one whose request came late."""
    while found := _on_record(world):
        world.freezes.forget()
        service = _any_service(world)
        topic = "" if found == FreezeRecord.KIND else TOPIC
        try:
            if service is not None:
                await service.call(_freezes(service).unfreeze(topic))
                world.happened("unfreeze", found)
        except NotFound as error:
            world.say(f"not frozen: {error}")
        except RemoteStorageError as error:
            world.say(f"not lifted: {error}")
        await asyncio.sleep(1)
        world.raise_failure()


def _any_service(world: "World") -> Service | None:
    return next((one for one in world.services.values() if one.is_up), None)


def _freezes(service: Service) -> Freezes:
    return Freezes(
        settings=service.settings,
        broker=cast(Any, service.client),
        barrier_deadline_ms=BARRIER_DEADLINE_MS,
    )


def _on_record(world: "World") -> str | None:
    """The key of a freeze that counts."""
    return _found(world.known_topics.view, world.known_topics.current.topic_id)


def _found(view: SettingsView, topic_id: Uuid) -> str | None:
    keys = (FreezeRecord.KIND, f"{FreezeRecord.KIND}/{topic_id}")
    return next((one for one in keys if view.get(one) is not None), None)
