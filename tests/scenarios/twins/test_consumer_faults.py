"""Groups in every mode read a trimmed topic as aiokafka's read its full twin, whatever fails.

The remote tier is read by services, or from the store by the consumers themselves. Of three
consumers each, members come, leave and are killed. Meanwhile trims move the border of the tiers,
leaders move, a service and a broker are killed, and the store is away. Every record comes, in
order, and none twice but after the last commit of a member that was lost.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlm_client.consumer import SERVICE, STORE
from rlm_sandbox.sandbox import Sandbox
from tests.scenarios.cluster import Cluster
from tests.scenarios.objects import store_settings
from tests.scenarios.replicas import heal, lead, replicas, wait_isr
from tests.scenarios.twins.deliveries import Deliveries, rebalances
from tests.scenarios.twins.produced_twins import PARTITIONS, ProducedTwins, produced_twins
from tests.scenarios.twins.read_group import ReadGroup, all_records, ended
from tiered_reads.values import ReadMode

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(2_400)]

_ISOLATIONS = ("read_uncommitted", "read_committed")
_STORE_AWAY_S = 20
_STEPS, _STEP_S = 40, 0.5
"""Of what is read while something happens, which may last for 20 s."""
_NODES = (1, 2, 3)
_READS = (
    *((mode, SERVICE) for mode in ReadMode),
    (ReadMode.REMOTE_PREFERRED, STORE),
    (ReadMode.REMOTE_ONLY, STORE),
)


@pytest.fixture
def on_s3(three_on_s3: Sandbox) -> Iterator[Cluster]:
    with Cluster(three_on_s3) as cluster:
        try:
            yield cluster
        finally:
            heal(cluster)
            cluster.delete_topics()


class Story:
    """What happens to both topics and to all groups at the same time."""

    def __init__(self, twins: ProducedTwins, groups: list[ReadGroup]) -> None:
        self.twins = twins
        self.cluster = twins.cluster
        self.groups = groups
        self.starts: list[dict[int, int]] = []
        self._share = 0.0

    async def run(self) -> None:
        """Up to where most is read."""
        await self._members("joins", "a")
        await self._meanwhile(0.05)
        await self._members("joins", "b")
        await self._meanwhile(0.10)
        await self._members("joins", "c", as_process=True)
        await self._meanwhile(0.24, self._trim_to(3))
        await self._meanwhile(0.34, self._leaders_move)
        await self._members("leaves", "b")
        await self._meanwhile(0.40, self._service_is_killed)
        await self._meanwhile(0.46, self._trim_to(2))
        await self._meanwhile(0.64, self._store_is_away)
        await self._members("is_killed", "c")
        await self._meanwhile(0.68)
        await self._members("is_balanced")
        await self._members("joins", "d")
        await self._meanwhile(0.74, self._trim_to(1))
        await self._meanwhile(0.90, self._broker_is_killed)

    async def _members(self, verb: str, *names: str, **options: Any) -> None:
        _print(f"{verb} {names}")
        await asyncio.gather(*(getattr(one, verb)(*names, **options) for one in self.groups))

    async def _meanwhile(self, share: float, happens: Callable[[], None] | None = None) -> None:
        """It happens in the midst of reading up to that share: members read on as long as it lasts,
        in small steps.
        """
        _print(f"reads up to {share}")
        if happens is not None:
            happening = asyncio.create_task(asyncio.to_thread(happens))
            for step in range(_STEPS):
                for one in self.groups:
                    one.may_take(self._share + (share - self._share) * step / _STEPS)
                if happening.done():
                    break
                await asyncio.wait((happening,), timeout=_STEP_S)
            _print(f"taken meanwhile: {[one.share_taken for one in self.groups]}")
            await happening
        self._share = share
        await asyncio.gather(*(one.reads(share) for one in self.groups))

    def _trim_to(self, mib: int) -> Callable[[], None]:
        return lambda: self.starts.append(self.twins.trim(mib))

    def _leaders_move(self) -> None:
        for topic in (self.twins.tiered, self.twins.plain):
            for partition in (0, 3):
                _, other, *_ = replicas(self.cluster, topic, partition)
                lead(self.cluster, topic, other, partition)

    def _service_is_killed(self) -> None:
        self.cluster.sandbox.kill("rlm:1")
        self.cluster.sandbox.start("rlm:1")

    def _store_is_away(self) -> None:
        """And a service has lost what it had of it in memory."""
        self.cluster.sandbox.kill("store")
        self.cluster.sandbox.kill("rlm:2")
        self.cluster.sandbox.start("rlm:2", wait=False)
        time.sleep(_STORE_AWAY_S)  # so long it is away, whatever happens
        self.cluster.sandbox.start("store")

    def _broker_is_killed(self) -> None:
        self.cluster.sandbox.kill("broker:2")
        for topic in (self.twins.tiered, self.twins.plain):
            for partition in range(PARTITIONS):
                self.cluster.wait_for(
                    lambda topic=topic, partition=partition: (  # type: ignore[misc]
                        self.cluster.leader(topic, partition) in (1, 3)
                    ),
                    "another leader",
                )
        self.cluster.sandbox.start("broker:2", wait=False)
        for topic in (self.twins.tiered, self.twins.plain):
            for partition in range(PARTITIONS):
                wait_isr(self.cluster, topic, set(_NODES), partition)


@pytest.mark.parametrize(("mode", "remote_reads"), _READS)
async def test_h37_groups_read_as_aiokafkas_do_on_the_twin_whatever_fails(
    on_s3: Cluster, mode: ReadMode, remote_reads: str
) -> None:
    twins = await asyncio.to_thread(produced_twins, on_s3, seed=405)
    starts = await asyncio.to_thread(twins.trim, 4)
    ends = log_ends = await asyncio.to_thread(twins.ends)
    if mode is ReadMode.REMOTE_ONLY:
        ends = await asyncio.to_thread(twins.remote_ends)
    begins = starts if mode is ReadMode.KAFKA_ONLY else dict.fromkeys(starts, 0)
    tiered = _tiered(on_s3, mode, remote_reads)
    ours, theirs = [], []
    for isolation in _ISOLATIONS:
        options = {"bootstrap_servers": on_s3.direct, "isolation_level": isolation}
        there = await all_records(twins.plain, log_ends, options)
        wanted = {
            one: [row for row in rows if begins[one] <= row[0] < ends[one]]
            for one, rows in there.items()
        }
        assert all(len(rows) > 1_000 for rows in wanted.values())
        ours.append(ReadGroup(twins.tiered, wanted, {**options, **tiered}))
        theirs.append(ReadGroup(twins.plain, there, options))
    story = Story(twins, [*ours, *theirs])
    async with ended(story.groups):
        await story.run()
        our_ends = await asyncio.gather(*(one.reads_to_end(ends) for one in ours))
        their_ends = await asyncio.gather(*(one.reads_to_end(log_ends) for one in theirs))
        committed = await asyncio.gather(*(one.committed() for one in story.groups))
    _print(f"began at {starts}, then {story.starts}, ends {ends}")
    for our, their in zip(ours, theirs, strict=True):
        _check(our, story.starts[-1] if mode is ReadMode.KAFKA_ONLY else {})
        _check(their, {})
        assert rebalances(our.events) == rebalances(their.events)
        _check_counters(mode, remote_reads, our)
    assert our_ends == committed[:2] == [ends, ends]
    assert their_ends == committed[2:] == [log_ends, log_ends]


def _tiered(cluster: Cluster, mode: ReadMode, remote_reads: str) -> dict[str, Any]:
    options: dict[str, Any] = {"tiered_storage_mode": mode.value, "remote_reads": remote_reads}
    if mode is not ReadMode.KAFKA_ONLY:
        options["rlm_endpoints"] = [str(one["grpc"]) for one in cluster.sandbox.json["brokers"]]
    if remote_reads == STORE:
        options["rlm_stores"] = store_settings(cluster)
    return options


def _check(group: ReadGroup, trimmed_to: dict[int, int]) -> None:
    expected = group.expected
    deliveries = Deliveries(expected, trimmed_to)
    deliveries.check(group.events)
    _print(
        f"{group.topic} {group.group}: {sum(map(len, expected.values()))} records, "
        f"{deliveries.stints} stints, {deliveries.reread} read again, {group.counters}, "
        f"{len(group.failures)} failures: {sorted(set(group.failures))[:4]}"
    )


def _check_counters(mode: ReadMode, remote_reads: str, group: ReadGroup) -> None:
    counters = list(group.counters.values())
    assert len(counters) == 3, "of all members but the killed one"
    kafka = sum(one.kafka.records for one in counters)
    by_services = sum(one.remote.records for one in counters)
    from_store = sum(one.store.records for one in counters)
    remote = by_services + from_store
    assert sum(one.offsets_missed for one in counters) == 0
    if remote_reads == STORE:
        assert from_store > by_services, "services read what the consumer cannot, and no more"
    else:
        assert from_store == 0
    match mode:
        case ReadMode.KAFKA_ONLY:
            assert remote == 0
        case ReadMode.REMOTE_ONLY:
            assert remote > 0 and kafka == 0
        case _:
            assert remote > 0 and kafka > 0


def _print(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
