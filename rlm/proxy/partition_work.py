"""What the handlers of requests about offsets share: one deadline, barriers, the broker's answer.

The partitions of a request are handled concurrently, a bounded number at once. No answer about an
offset may be sent before `view` has passed a barrier (H17). This module must not know what a
handler decides.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from kafka_protocol.frames import parse_request_header, parse_response_header
from kafka_protocol.primitives import Buffer
from kafka_protocol.schema import Api, decode, encode
from kip405.errors import RemoteStorageError
from rlm.clock import Clock
from rlm.proxy.position_answers import Value
from rlm.proxy.reads import STREAMED, WHOLE, Upstream, guarded
from rlm.proxy.session import Taken
from rlm.proxy.settings import ProxyMetrics
from rlm.remote_log.tier import Tier, TierPartition, TopicRef

_MOST_AT_ONCE = 64

Work = Callable[[], Awaitable[None]]
View = TierPartition | RemoteStorageError | None


class PartitionWork:
    """Works on the partitions of one request at a time, each step within `wait_ms`."""

    def __init__(self, tier: Tier, clock: Clock, metrics: ProxyMetrics, *, wait_ms: int) -> None:
        self._tier = tier
        self._clock = clock
        self._metrics = metrics
        self._wait_ms = wait_ms
        self._deadline_ms = 0

    def left_ms(self) -> int:
        """The rest of the time of one step, whatever its number of partitions."""
        return max(1, self._deadline_ms - self._clock.monotonic_ms())

    async def each(self, work: Iterable[Work]) -> None:
        """One step: handle all partitions, within a new deadline."""
        self._deadline_ms = self._clock.monotonic_ms() + self._wait_ms
        waiting = deque(work)

        async def work_on() -> None:
            while waiting:
                await waiting.popleft()()

        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(waiting), _MOST_AT_ONCE)):
                group.create_task(work_on())

    async def view(self, topic: str, partition: int) -> View:
        """The view after a barrier that began now; None = not tiered, for certain."""
        began_ms = self._clock.monotonic_ms()
        view = await guarded(self._tier.barrier(TopicRef(name=topic), partition, self.left_ms()))
        passed = not isinstance(view, RemoteStorageError)
        self._metrics.barrier_waited(self._clock.monotonic_ms() - began_ms, passed=passed)
        return view


def decode_request(api: Api, taken: Taken) -> Value:
    """The body of a request that was taken whole."""
    position = parse_request_header(taken.frame).body_offset
    request, _ = decode(api.request, taken.api_version, taken.frame, position)
    return request


async def pass_on(taken: Taken, upstream: Upstream) -> None:
    """Forward a request, and its answer, unchanged."""
    await upstream.ask(taken.frame, taken.api_version, taken.correlation_id, STREAMED)


async def ask_broker(
    api: Api, taken: Taken, frame: Buffer, upstream: Upstream
) -> tuple[Value, bytes]:
    """The broker's decoded answer to `frame`, and its header as it came."""
    answer = await upstream.ask(frame, taken.api_version, taken.correlation_id, WHOLE)
    if answer is None:
        raise ConnectionError("an answer that was asked whole was streamed")
    _, position = parse_response_header(answer, api, taken.api_version)
    response, _ = decode(api.response, taken.api_version, answer, position)
    return response, bytes(answer[:position])


async def ask_changed(api: Api, taken: Taken, request: Value, upstream: Upstream) -> Value:
    """The broker's decoded answer to another body under the header of the client's request."""
    head = taken.frame[: parse_request_header(taken.frame).body_offset]
    frame = head + encode(api.request, taken.api_version, request)
    response, _ = await ask_broker(api, taken, frame, upstream)
    return response
