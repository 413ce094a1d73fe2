"""The proxy before a trimmed topic answers as a broker that still has everything: field by field.

SEED=n asks other questions than those of every day.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import chain, islice

import pytest

from tests.kafka_protocol.oracle import Oracle, load_messages
from tests.scenarios.cluster import WORKERS
from tests.scenarios.raw import proxy_of
from tests.scenarios.twins.comparing import Difference, Json, Pair, Roles, TwinPartition, flat
from tests.scenarios.twins.requests import OTHER, TWIN, UNKNOWN, Asked, Requests, known_cases
from tests.scenarios.twins.topics import TwinTopics
from tests.scenarios.twins.wire import FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, Wire

pytestmark = pytest.mark.integration

APIS = (FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH)
_UNKNOWN_NAME, _UNKNOWN_ID = "never-created", b"\x07" * 16
_SEED = 405
_WAITS_MS = (*[None] * 5, *[2_000] * 20)
_PAUSES_S = (*[0.01] * 5, *[0.5] * 20)
_ENOUGH, _MOST_SHOWN = 200, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A connection, and which topic plays the twin there."""

    wire: Wire
    names: dict[str, str]
    ids: dict[str, bytes]

    @property
    def roles(self) -> Roles:
        known: dict[str | bytes, str] = {name: role for role, name in self.names.items()}
        return known | {raw: role for role, raw in self.ids.items()}

    async def ask(self, asked: Asked) -> dict[TwinPartition, Json]:
        request = asked.named(self.names, self.ids)
        return flat(await self.wire.ask(asked.api, asked.version, request), self.roles)


@asynccontextmanager
async def _side(twins: TwinTopics, oracle: Oracle, address: str, twin: str) -> AsyncIterator[Side]:
    async with Wire.to(oracle, address) as wire:
        names = {TWIN: twin, OTHER: twins.other, UNKNOWN: _UNKNOWN_NAME}
        ids = {TWIN: twins.ids[twin], OTHER: twins.ids[twins.other], UNKNOWN: _UNKNOWN_ID}
        yield Side(wire=wire, names=names, ids=ids)


def _oracle(twins: TwinTopics) -> Oracle:
    dist = twins.cluster.sandbox.dist
    [jar] = [one for one in dist.jars if one.name.startswith(f"kafka-clients-{dist.version}")]
    return Oracle(load_messages(jar))


async def _pair(asked: Asked, proxy: Side, broker: Side, twins: TwinTopics) -> Pair:
    """Asked until the remote part of it is there, at last with time to get it."""
    beside = await broker.ask(asked)
    pair = Pair(asked=asked, through=await proxy.ask(asked), beside=beside)
    for wait_ms, pause_s in zip(_WAITS_MS, _PAUSES_S, strict=True):
        if not pair.is_not_ready(twins):
            break
        await asyncio.sleep(pause_s)
        patient = asked if wait_ms is None else asked.waiting(wait_ms)
        pair = Pair(asked=asked, through=await proxy.ask(patient), beside=beside)
    return pair


@pytest.mark.parametrize("one_broker", ["local", WORKERS], indirect=True)
@pytest.mark.parametrize(
    "count",
    [500, pytest.param(20_000, marks=[pytest.mark.long, pytest.mark.timeout(3_600)])],
)
async def test_h37_a_trimmed_topic_answers_like_one_that_never_was(
    twins: TwinTopics, count: int
) -> None:
    seed = int(os.environ.get("SEED") or _SEED)
    print(f"SEED={seed}")
    cluster, oracle = twins.cluster, _oracle(twins)
    found: list[tuple[Asked, Difference]] = []
    versions: Counter[tuple[str, int]] = Counter()
    remote = 0
    async with (
        _side(twins, oracle, proxy_of(cluster, 1), twins.tiered) as proxy,
        _side(twins, oracle, cluster.direct, twins.plain) as broker,
    ):
        offered = {api: await proxy.wire.versions(api) for api in APIS}
        requests = Requests(random.Random(seed), twins, offered)
        for asked in chain(known_cases(twins), islice(requests, count)):
            pair = await _pair(asked, proxy, broker, twins)
            found += [(asked, one) for one in pair.differences(twins)]
            if len(found) > _ENOUGH:
                break
            versions[asked.api, asked.version] += 1
            remote += pair.remote_records(twins)
    assert not found, _words(found)
    assert versions.keys() >= {(api, one) for api in APIS for one in offered[api]}
    assert remote > count // 10, "hardly anything was asked of the remote store"


def _words(found: list[tuple[Asked, Difference]]) -> str:
    """The shortest requests first, one of each kind."""
    kinds: dict[tuple[str, str], tuple[Asked, Difference]] = {}
    for asked, one in sorted(found, key=lambda row: len(str(row[0].body))):
        kinds.setdefault((asked.api, one.field), (asked, one))
    shown = [
        f"{asked.api} v{asked.version} #{asked.number} {one.partition} {one.field}: "
        f"{str(one.through)[:200]} through the proxy, {str(one.beside)[:200]} at a broker, "
        f"asked {asked.body}"
        for asked, one in islice(kinds.values(), _MOST_SHOWN)
    ]
    return "\n".join((f"{len(found)} differences, the simplest of each kind:", *shown))
