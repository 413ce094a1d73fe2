"""Each alert fires while its fault lasts, and clears when it is mended.

A cause is a story of three scrapes: all is well, something is broken, it is mended. The faults are
in components of a service over fakes; the metric is compared with the threshold of the alert.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from build_tools.reference.alerts import ALERTS
from kip405.errors import Corrupt, Unavailable
from kip405.ids import TopicPartition
from rlm.plans.process_rules import ProcessObservation, process_findings
from rlm.proxy.purgatory import Outcome, RemoteFetch
from rlm.service.clients import OwnProxy
from rlm.service.gauges import copy_gauges, problem_gauges, store_gauges, thread_gauges
from rlm.service.loop_watch import LoopWatch
from rlm.service.partition_gauges import PartitionGauges
from rlm.service.problems import ProblemWatch
from rlm.service.safety_gauges import (
    RunAges,
    loop_gauges,
    metadata_gauges,
    plugin_gauges,
    service_gauges,
)
from rlm.tasks.copy_progress import Copying, CopyProgress
from rlmm.seen_ends import SeenEnds
from rlmm.topic import LEDGER_TOPIC
from rsm_plugins.threads import Threads
from tests import waiting
from tests.builders.clock import ManualClock
from tests.builders.rig import NODE_ID, Rig
from tests.builders.service import built_service
from tests.rlm.alert_stories import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    Story,
    after,
    certificate_ends,
    fault,
    frozen,
    log_dir_fills,
    log_dir_low,
    loss_near,
    new_hole,
    records_lost,
    store_away,
    store_setup,
)
from tests.rlm.alert_values import Scrape, scraped
from tests.rlm.service.test_safety_gauges import LateClock, Led
from tests.rlm.tasks.test_expiration import expiration_of
from tests.rlm.tasks.test_h18_open_transactions import World as Transactions
from tests.rlm.tasks.test_verify_watch import watch as verify_watch
from tests.rlm.watched import with_replica
from tests.rlmm.test_seen_ends import Leaders
from tests.rsm_plugins.test_spawned import script, spawned

HEARTBEAT_MS = 10_000


async def nothing_scraped(path: Path) -> Story:
    """A reader is scraped, and the service beside the broker is not."""
    rig, of_reader = Rig(path), scraped(lambda: store_gauges(()))
    led = Led([rig.led], rig.clock.now)
    ages = RunAges(partitions=led, good_runs=rig.good_runs, verified_ms=None, clock=rig.clock)
    of_both = of_reader + scraped(ages.gauges)
    for text in (of_both, of_reader, of_both):
        yield Scrape(text)


async def service_absent(path: Path) -> Story:
    rig = Rig(path)

    def shown() -> Scrape:
        rig.heartbeat()
        now_ms = rig.clock.monotonic_ms()
        return Scrape(scraped(lambda: service_gauges(rig.settings.view, now_ms, HEARTBEAT_MS)))

    rig.heartbeat(NODE_ID + 1)
    yield shown()
    rig.clock.advance(MINUTE_MS + 1_000)
    yield shown()
    rig.heartbeat(NODE_ID + 1)
    yield shown()


async def clock_skew(path: Path) -> Story:
    rig = Rig(path)

    def shown() -> Scrape:
        now_ms = rig.clock.monotonic_ms()
        return Scrape(scraped(lambda: service_gauges(rig.settings.view, now_ms, HEARTBEAT_MS)))

    for ahead_ms in (0, -2 * MINUTE_MS, 0):
        rig.heartbeat()
        rig.heartbeat_of(NODE_ID + 1, time_ms=rig.clock.now + ahead_ms)
        yield shown()


async def copy_backlog(_path: Path) -> Story:
    clock, progress = ManualClock(), CopyProgress()
    for _ in range(2):
        clock.advance(1_000)
        progress.is_due(clock.now, 1_000)

    def shown(bytes_left: int) -> Scrape:
        copying = Copying(
            progress=progress.of(clock.now, 1, bytes_left),
            unmeasured_partitions=0,
            limit_bytes_per_second=1,
        )
        return Scrape(scraped(lambda: copy_gauges(copying)))

    for bytes_left in (1_000, 100_000_000, 1_000):
        yield shown(bytes_left)


def run_age(hours: int) -> Callable[[Path], Story]:
    """The broker does not answer for so long: neither trim nor expiry get a snapshot."""

    async def story(path: Path) -> Story:
        rig = Rig(path)
        rig.write_log(0, 100, end=150)
        led = Led([rig.led], rig.clock.now)
        ages = RunAges(partitions=led, good_runs=rig.good_runs, verified_ms=None, clock=rig.clock)

        async def run() -> Scrape:
            with suppress(Unavailable):  # it is tried again
                await rig.copy.run(rig.led)
                await expiration_of(rig).run(rig.led)
            return Scrape(scraped(ages.gauges))

        def refuse(_question: str) -> None:
            raise Unavailable("connection refused")

        yield await run()
        rig.broker.after_answer = refuse
        rig.clock.advance(hours * HOUR_MS + MINUTE_MS)
        yield await run()
        rig.broker.after_answer = lambda _question: None
        rig.heartbeat()
        yield await run()

    return story


async def not_verified(path: Path) -> Story:
    rig = Rig(path)
    rig.write_log(0, 100, 200, end=250)
    await rig.copy.run(rig.led)
    verify = verify_watch(rig)
    ages = RunAges(
        partitions=Led([rig.led], rig.clock.now),
        good_runs=rig.good_runs,
        verified_ms=verify.whole_ms,
        clock=rig.clock,
    )

    async def run(days: int) -> Scrape:
        for _ in range(2 * days):
            rig.clock.advance(DAY_MS // 2)
            await verify.verify_due()
        return Scrape(scraped(ages.gauges))

    yield await run(2)
    identity, rig.store.identity = rig.store.identity, None
    yield await run(5)
    rig.store.identity = identity
    yield await run(2)


async def metadata_behind(_path: Path) -> Story:
    leaders, clock = Leaders(), ManualClock()
    ends, topic = SeenEnds(leaders, clock.monotonic_ms), TopicPartition(LEDGER_TOPIC, 0)

    for end, position in ((900, 0), (2_500, 900), (2_500, 2_500)):
        leaders.ends = {topic: end}
        await ends.epoch_ends({})
        reads = _Reads(ends, position)
        yield Scrape(scraped(partial(metadata_gauges, reads, clock.now)))


async def metadata_silent(_path: Path) -> Story:
    leaders, clock = Leaders(), ManualClock()
    ends = SeenEnds(leaders, clock.monotonic_ms)
    for known in ({TopicPartition(LEDGER_TOPIC, 0): 5}, None, {TopicPartition(LEDGER_TOPIC, 0): 5}):
        clock.advance(3 * MINUTE_MS)
        leaders.ends = known
        with suppress(Unavailable):  # as a service does, which asks again
            await ends.epoch_ends({})
        yield Scrape(scraped(lambda: metadata_gauges(_Reads(ends, 5), clock.now)))


class _Reads:
    """A metadata log that is read up to a position."""

    def __init__(self, ends: SeenEnds, position: int) -> None:
        self._ends, self._position = ends, position

    def unread_records(self, topic: str) -> int | None:
        return self._ends.unread_records(topic, lambda _: self._position)

    @property
    def answered_at_ms(self) -> int | None:
        return self._ends.answered_at_ms


async def open_transaction(_path: Path) -> Story:
    world = Transactions()
    gauges = PartitionGauges(world.clock, pinned_ms=world.watch.pinned_ms)

    def shown() -> Scrape:
        return Scrape(scraped(lambda: gauges.read(())))

    await world.after(ms=0)
    yield shown()
    await world.after(ms=HOUR_MS + MINUTE_MS)
    yield shown()
    world.last_stable_offset += 1
    await world.after(ms=1_000)
    yield shown()


async def plugin_restarts(_path: Path) -> Story:
    async with spawned(script("raise SystemExit(3)")) as plugin:

        def shown() -> str:
            return scraped(lambda: plugin_gauges({"hot": plugin.restarts}))

        first = scraped(lambda: plugin_gauges({"hot": 0}))
        yield Scrape(first, first)
        await waiting.until(lambda: plugin.restarts > 2, timeout_s=240)
        later = shown()
        yield Scrape(later, first)
    yield Scrape(shown(), shown())


async def loop_lag(_path: Path) -> Story:
    clock = LateClock([0, 1_500, 0])
    watch = LoopWatch(clock)

    def shown() -> Scrape:
        return Scrape(scraped(lambda: loop_gauges(watch.worst_ms())))

    watch._note(0)
    yield shown()
    with pytest.raises(EOFError):
        await watch.run()
    yield shown()
    clock.advance(2 * MINUTE_MS)
    watch._note(0)
    yield shown()


async def threads_hung(_path: Path) -> Story:
    gate, pool = threading.Event(), Threads("snapshots", 1, hang_ms=1)

    def shown() -> Scrape:
        return Scrape(scraped(lambda: thread_gauges([pool])))

    def is_hung() -> bool:
        found = pool.hung()
        return found is not None and found.count > 0

    yield shown()
    work = asyncio.ensure_future(pool.run(gate.wait))
    await waiting.until(is_hung, timeout_s=240)
    yield shown()
    gate.set()
    await asyncio.gather(work, return_exceptions=True)
    await waiting.until(lambda: not is_hung(), timeout_s=240)
    yield shown()
    pool.close()


async def process_ends(_path: Path) -> Story:
    clock = ManualClock()
    worker = ProcessObservation(name="worker 1", quiet_ms=0, up_ms=1_000, recent_ends=0)
    for one in (worker, replace(worker, recent_ends=3), replace(worker, up_ms=HOUR_MS)):
        watch = ProblemWatch([partial(process_findings, [one])], clock)
        yield Scrape(scraped(partial(problem_gauges, watch.current())))


async def reads_fail(path: Path) -> Story:
    clock = ManualClock()

    async def read() -> Outcome:
        return Corrupt("a batch is damaged")

    async with built_service(path, clock) as service:

        def shown() -> str:
            return service._listening._http._metrics().decode()

        first = shown()
        yield Scrape(first, first)
        assert isinstance(service._clients, OwnProxy)
        purgatory = service._clients.proxy.purgatory
        deadline_ms = clock.monotonic_ms() + MINUTE_MS
        await RemoteFetch(purgatory, read, deadline_ms, asyncio.Event()).complete()
        later = shown()
        yield Scrape(later, first)
        yield Scrape(shown(), later)


CAUSES: Mapping[str, Callable[[Path], Story]] = {
    "RlmNothingScraped": nothing_scraped,
    "RlmServiceAbsent": service_absent,
    "RlmRecordsLost": records_lost,
    "RlmNewHole": new_hole,
    "RlmLossNear": loss_near,
    "RlmPartitionFrozen": frozen,
    "RlmMetadataUntrusted": fault("the ledger cannot be relied on"),
    "RlmStoreUnavailable": store_away,
    "RlmStoreRefusesWrites": fault("the store takes nothing"),
    "RlmStoreSetup": store_setup,
    "RlmLogDirLow": log_dir_low,
    "RlmLogDirFills": log_dir_fills,
    "RlmCopyFailing": fault("the store takes nothing", 46 * MINUTE_MS),
    "RlmCopyBehind": fault("the store takes nothing", 31 * MINUTE_MS),
    "RlmCopyBacklog": copy_backlog,
    "RlmLagUnknown": fault("a file of the partition cannot be read"),
    "RlmOpenTransaction": open_transaction,
    "RlmTrimFailing": run_age(2),
    "RlmExpiryFailing": run_age(24),
    "RlmNotVerified": not_verified,
    "RlmMetadataBehind": metadata_behind,
    "RlmMetadataSilent": metadata_silent,
    "RlmClockSkew": clock_skew,
    "RlmPluginRestarts": plugin_restarts,
    "RlmProcessEnds": process_ends,
    "RlmEventLoopLag": loop_lag,
    "RlmThreadsHung": threads_hung,
    "RlmCertificateEnds": certificate_ends,
    "RlmRemoteReadsFail": reads_fail,
    "RlmOtherAlarm": after(
        lambda one: with_replica(one.rig, 2), lambda one: with_replica(one.rig, 1), MINUTE_MS
    ),
}


def test_every_alert_has_a_cause() -> None:
    assert CAUSES.keys() == {alert.name for alert in ALERTS}


@pytest.mark.parametrize("name", CAUSES)
async def test_an_alert_fires_while_its_fault_lasts(name: str, tmp_path: Path) -> None:
    firing = [scrape.is_firing(name) async for scrape in CAUSES[name](tmp_path)]
    assert firing == [False, True, False]
