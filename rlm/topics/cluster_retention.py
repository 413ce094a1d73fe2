"""Whether every live broker says that a topic's own retention is off: a trim's precondition (G1).

Each broker answers from its own copy of the cluster's metadata and its own configuration file, and
each may lead the topic next. A broker that still has a bounded retention would delete segments that
nobody has copied. Any doubt is an error: then nothing is trimmed. A retention that somebody keeps
bounding counts as bounded in between, too (rlm.plans.retention_contests). Reads only, at the direct
listeners.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kip405.errors import NotFound, RemoteStorageError, Unavailable
from rlm.broker.answers import TopicConfigValue
from rlm.clock import Clock
from rlm.plans.retention_contests import RetentionContests
from rlm.remote_log.snapshots import RETENTION_CONFIGS, bounded_retention

_FRESH_MS = 10_000


class ConfigSource(Protocol):
    """One broker (rlm.broker.OwnBroker)."""

    def topic_config(
        self, topic: str, names: tuple[str, ...] = ()
    ) -> Awaitable[Mapping[str, TopicConfigValue]]: ...


class LiveBrokers(Protocol):
    """The brokers of the cluster (rlm.topics.cluster.OtherBrokers)."""

    async def sources(self) -> Mapping[int, ConfigSource]:
        """Every broker that is alive now, by node id."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    until_ms: int
    bounded: str | None
    failure: RemoteStorageError | None


class BrokersRetention:
    """Implements rlm.remote_log.ports.ClusterRetention.

    One question for each broker serves all partitions of a topic that are planned within 10 s, also
    if it failed: a broker that hangs must not hold up every partition in turn.
    """

    def __init__(self, brokers: LiveBrokers, contests: RetentionContests, clock: Clock) -> None:
        self._contests = contests
        self._brokers = brokers
        self._clock = clock
        self._answers: dict[str, _Answer] = {}
        self._asking: dict[str, asyncio.Lock] = {}

    async def bounded(self, topic: str) -> str | None:
        """See `ClusterRetention`."""
        async with self._asking.setdefault(topic, asyncio.Lock()):
            answer = self._answers.get(topic)
            if answer is None or self._clock.monotonic_ms() >= answer.until_ms:
                self._forget_old()
                answer = self._answers[topic] = await self._ask(topic)
        if answer.failure is not None:
            raise Unavailable(str(answer.failure)) from answer.failure
        return answer.bounded or self._contests.words(topic, self._clock.monotonic_ms())

    def _forget_old(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for topic in [name for name, one in self._answers.items() if now_ms >= one.until_ms]:
            del self._answers[topic]
        for topic in [name for name, lock in self._asking.items() if not lock.locked()]:
            del self._asking[topic]

    async def _ask(self, topic: str) -> _Answer:
        bounded: str | None = None
        failure: RemoteStorageError | None = None
        try:
            bounded = await self._bounded_now(topic)
        except RemoteStorageError as error:
            failure = error
        until_ms = self._clock.monotonic_ms() + _FRESH_MS
        return _Answer(until_ms=until_ms, bounded=bounded, failure=failure)

    async def _bounded_now(self, topic: str) -> str | None:
        """Of all brokers at once; one that is bounded counts before one that is silent."""
        sources = sorted((await self._brokers.sources()).items())
        if not sources:
            raise Unavailable("no broker of the cluster is known to be alive")
        answers = await asyncio.gather(*(_of_broker(node, topic, one) for node, one in sources))
        failures = [one for one in answers if isinstance(one, RemoteStorageError)]
        bounded = [one for one in answers if isinstance(one, str)]
        if bounded:
            return "; ".join(bounded)
        if failures:
            raise failures[0]
        return None


async def _of_broker(
    node_id: int, topic: str, broker: ConfigSource
) -> str | RemoteStorageError | None:
    try:
        bounded = bounded_retention(await broker.topic_config(topic, RETENTION_CONFIGS))
    except NotFound:
        return Unavailable(f"broker {node_id} does not know the topic yet")
    except RemoteStorageError as error:
        return Unavailable(f"broker {node_id}: {error}")
    return None if bounded is None else f"broker {node_id}: {bounded}"
