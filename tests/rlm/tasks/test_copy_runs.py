"""Copies that operators ask for: progress, joining, repeating, trimming, and an end without one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Busy, Corrupt, Fenced, RemoteStorageError, Unavailable
from kip405.ids import TopicPartition
from rlm.broker.leadership import LedPartition
from rlm.plans.copy import WhyNot
from rlm.plans.trim import NoTrim
from rlm.tasks.copy_request import CopyRequest
from rlm.tasks.copy_runs import CopyProgress, CopyReport, CopyRuns, CopyTarget, Doing
from rlm.tasks.pool import TaskPool
from rlmm.settings_records import OffloadThresholds
from tests.builders.clock import ManualClock
from tests.builders.ledger import PARTITION
from tests.builders.rig import DEAD_AFTER_MS, Rig

WANTED = frozenset({PARTITION.topic_partition})
ALL = CopyTarget(partitions=WANTED)


class SteppingClock(ManualClock):
    """Sleeping lets others work."""

    async def sleep_ms(self, duration_ms: float) -> None:
        await super().sleep_ms(duration_ms)
        await asyncio.sleep(0.001)


class Site:
    """A rig with three closed segments that wait for their copy, and runs over its tasks."""

    def __init__(self, path: Path) -> None:
        self.rig = Rig(path)
        record = self.rig.settings.view.topic(PARTITION.topic_id)
        assert record is not None
        waiting = OffloadThresholds(copy_lag_ms=-1, deletion_lag_ms=3_600_000)
        self.rig.settings.write(replace(record, local_retention_ms=-1, offload=waiting))
        self.rig.write_log(0, 100, 200, 300, end=350)
        self.clock = SteppingClock()
        self.copy_pool = self._pool("copy")
        self.cleanup_pool = self._pool("cleanup")
        self.errors: list[RemoteStorageError] = []
        self.hold: asyncio.Event | None = None
        self.copies = 0
        self.gives_way = False
        self.not_yet, self.unflushed = WhyNot.RECOVERY_POINT, 0
        self.trims = 0
        self.before_trim: Callable[[int], None] = lambda _times: None
        self.is_leaderless = False
        self.began, self.copied, self.trimmed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.is_led = True
        self.rival: RemoteStorageError | None = None
        self.runs = CopyRuns(
            led=lambda: [self.rig.led] if self.is_led else [],
            has_no_leader=lambda _: self.is_leaderless,
            copy=self.copy,
            trim=self.trim,
            copied=self.rig.copy.statuses,
            trimmed=self.rig.trim.statuses,
            copy_pool=self.copy_pool,
            cleanup_pool=self.cleanup_pool,
            refuse=self.refuse,
            clock=self.clock,
        )

    def _pool(self, name: str) -> TaskPool:
        return TaskPool(name, self.clock, size=2, queue_limit=9, backoff=lambda _: 1.0)

    def refuse(self) -> None:
        if self.rival is not None:
            raise self.rival

    async def copy(self, led: LedPartition, request: CopyRequest) -> None:
        self.copies += 1
        self.began.set()
        if self.hold is not None:
            await self.hold.wait()
        if self.errors:
            raise self.errors.pop(0)
        if self.unflushed:
            self.unflushed -= 1
            request.reason = self.not_yet
            return
        if not self.gives_way:
            await self.rig.copy.run(led, request)
            self.copied.set()
            return
        part = CopyRequest(up_to_offset=request.segments * 100 + 1)
        await self.rig.copy.run(led, part)
        request.segments_total = 3
        request.segments += part.segments
        request.reason = part.reason

    async def trim(self, led: LedPartition, keep_local_bytes: int) -> None:
        self.trims += 1
        self.before_trim(self.trims)
        await self.rig.trim.run(led, keep_local_bytes)
        self.trimmed.set()

    async def ask(self, target: CopyTarget = ALL) -> list[CopyProgress | CopyReport]:
        self.rig.heartbeat()
        return [event async for event in self.runs.run(target)]

    async def report(self, target: CopyTarget = ALL) -> CopyReport:
        last = (await self.ask(target))[-1]
        assert isinstance(last, CopyReport)
        return last


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path)
    pools = [asyncio.create_task(pool.run()) for pool in (made.copy_pool, made.cleanup_pool)]
    yield made
    for pool in pools:
        pool.cancel()
    await asyncio.wait(pools)


async def test_closed_segments_are_copied_whatever_their_thresholds(site: Site) -> None:
    await site.rig.copy.run(site.rig.led)
    assert site.rig.copy.statuses[PARTITION.key].reason == "waiting for the copy lag"
    *progress, last = await site.ask()
    assert isinstance(last, CopyReport)
    assert (last.is_complete, last.why, last.segments) == (True, "", 3)
    assert (last.first_uncopied_offset, last.local_log_start_offset) == (300, 0)
    assert progress[0] == CopyProgress(
        partition=PARTITION.topic_partition,
        doing=Doing.WAITING,
        segments=0,
        segments_total=0,
        size_bytes=0,
        size_total_bytes=0,
    )
    end = progress[-1]
    assert isinstance(end, CopyProgress)
    assert (end.doing, end.segments, end.segments_total) == (Doing.DONE, 3, 3)
    assert end.size_bytes == end.size_total_bytes == last.size_bytes > 0
    assert site.rig.broker.deleted == [], "nobody asked for a trim"
    again = await site.report()
    assert (again.is_complete, again.segments) == (True, 0)


@pytest.mark.parametrize(
    "why", [WhyNot.RECOVERY_POINT, WhyNot.SNAPSHOT_MISSING, WhyNot.LAST_STABLE_OFFSET]
)
async def test_a_run_waits_until_the_broker_has_flushed(site: Site, why: WhyNot) -> None:
    """Right after records were produced: it says so within a minute."""
    site.unflushed, site.not_yet = 3, why
    found = await site.report()
    assert (found.is_complete, found.segments, site.copies) == (True, 3, 4)


async def test_a_run_ends_where_the_broker_does_not_flush(site: Site) -> None:
    site.unflushed, began_ms = 1 << 20, site.clock.monotonic_ms()
    found = await site.report()
    assert not found.is_complete and "waiting for the recovery point" in found.why
    assert 80_000 < site.clock.monotonic_ms() - began_ms < 120_000
    assert site.copies < 40, "each takes a snapshot"


async def test_a_run_that_gives_way_to_others_comes_again_until_all_is_copied(site: Site) -> None:
    site.gives_way = True
    found = await site.report()
    assert (found.is_complete, found.segments, site.copies) == (True, 3, 3)


async def test_up_to_an_offset_is_complete_although_more_is_closed(site: Site) -> None:
    found = await site.report(CopyTarget(partitions=WANTED, up_to_offset=150))
    assert (found.is_complete, found.segments, found.first_uncopied_offset) == (True, 2, 200)


async def test_what_cannot_be_copied_yet_is_named(site: Site) -> None:
    site.rig.broker.last_stable_offset = 250
    found = await site.report()
    assert (found.is_complete, found.segments) == (False, 2)
    assert "not all is copied: waiting for the last stable offset" in found.why


async def test_g1_the_local_log_is_trimmed_to_what_was_asked_for_and_no_further(
    site: Site,
) -> None:
    """By the plan of every trim: whole segments, and at least so much stays."""
    size = site.rig.log_dirs.scan(PARTITION.topic, PARTITION.partition).size_bytes
    segment = site.rig.disk.path.joinpath(f"{0:020d}.log").stat().st_size
    keep = CopyTarget(partitions=WANTED, keep_local_bytes=size - segment - 1)
    found = await site.report(keep)
    assert (found.is_complete, found.local_log_start_offset) == (True, 100)
    assert site.rig.broker.deleted == [100]
    found = await site.report(replace(keep, keep_local_bytes=0))
    assert found.is_complete
    assert site.rig.broker.deleted == [100, 300]


TRIMMED = CopyTarget(partitions=WANTED, keep_local_bytes=0)


async def test_a_run_waits_where_a_trim_is_held_by_a_heartbeat_that_is_late(site: Site) -> None:
    def late(times: int) -> None:
        if times == 1:
            site.rig.clock.advance(DEAD_AFTER_MS + 1)
        elif times == 3:
            site.rig.heartbeat()

    site.before_trim = late
    *progress, last = await site.ask(TRIMMED)
    assert isinstance(last, CopyReport)
    assert (last.is_complete, last.why, site.trims) == (True, "", 3)
    assert site.rig.broker.deleted == [300]
    errors = {one.error for one in progress if isinstance(one, CopyProgress)}
    held = f"not trimmed: {NoTrim.NO_LIVE_SERVICE.value} beside broker 1"
    assert errors == {"", held}, "who watches is shown what it waits for"


async def test_a_run_waits_until_a_leader_confirms_what_was_read_of_the_ledger(site: Site) -> None:
    def unconfirmed(times: int) -> None:
        site.rig.ledger.problem = "no leader confirms what was read" if times < 3 else None

    site.before_trim = unconfirmed
    found = await site.report(TRIMMED)
    assert (found.is_complete, found.why, site.trims) == (True, "", 3)


async def test_a_run_waits_for_brokers_that_did_not_say_what_they_retain(site: Site) -> None:
    def unknown(times: int) -> None:
        site.rig.retention.error = Unavailable("no answer") if times < 3 else None

    site.before_trim = unknown
    found = await site.report(TRIMMED)
    assert (found.is_complete, found.why, site.trims) == (True, "", 3)


async def test_what_was_asked_for_is_trimmed_behind_what_retention_has_ended(site: Site) -> None:
    await site.report()
    site.rig.remote_start(150)
    found = await site.report(TRIMMED)
    assert (found.is_complete, found.local_log_start_offset) == (True, 300)
    assert site.rig.broker.deleted == [150, 300]


async def test_a_plan_that_was_dropped_is_made_again(site: Site) -> None:
    def dropped(times: int) -> None:
        if times < 3:
            raise Fenced("leader epochs changed since the plan")

    site.before_trim = dropped
    found = await site.report(TRIMMED)
    assert (found.is_complete, found.why, site.trims) == (True, "", 3)

    def always(_times: int) -> None:
        raise Fenced("leader epochs changed since the plan")

    site.before_trim, site.trims = always, 0
    found = await site.report(TRIMMED)
    assert (found.is_complete, site.trims) == (False, 5)
    assert found.why == "leader epochs changed since the plan"


async def test_a_trim_that_stays_held_ends_the_run_with_the_reason(site: Site) -> None:
    site.before_trim = lambda _: site.rig.clock.advance(DEAD_AFTER_MS + 1)
    began_ms = site.clock.monotonic_ms()
    found = await site.report(TRIMMED)
    assert (found.is_complete, found.segments) == (False, 3)
    assert found.why == f"not trimmed: {NoTrim.NO_LIVE_SERVICE.value} beside broker 1"
    assert 60_000 <= site.clock.monotonic_ms() - began_ms < 90_000
    assert site.rig.broker.deleted == []


async def test_a_partition_without_a_leader_for_a_moment_is_waited_for(site: Site) -> None:
    """A broker whose machine is busy seems dead, and leads again as soon as it is heard."""
    events = site.runs.run(TRIMMED)
    site.rig.heartbeat()
    site.hold = asyncio.Event()
    await anext(events)
    site.is_led, site.is_leaderless = False, True
    assert isinstance(await anext(events), CopyProgress)
    site.is_led, site.is_leaderless = True, False
    site.hold.set()
    last = [event async for event in events][-1]
    assert isinstance(last, CopyReport)
    assert (last.is_complete, last.why) == (True, "")


async def test_a_partition_that_stays_without_a_leader_ends_its_run(site: Site) -> None:
    site.errors = [Unavailable("fenced")]
    events, began_ms = site.runs.run(ALL), site.clock.monotonic_ms()
    await anext(events)
    site.is_led, site.is_leaderless = False, True
    last = [event async for event in events][-1]
    assert isinstance(last, CopyReport)
    assert "not led here any more" in last.why
    assert 60_000 <= site.clock.monotonic_ms() - began_ms < 90_000


async def test_g1_a_trim_that_is_not_safe_is_not_made_and_is_named(site: Site) -> None:
    site.rig.enable(trim=False)
    found = await site.report(CopyTarget(partitions=WANTED, keep_local_bytes=0))
    assert (found.is_complete, found.segments) == (False, 3)
    assert found.why == "not trimmed: trim is off"
    assert site.rig.broker.deleted == []


async def test_a_failure_is_shown_and_the_run_is_repeated(site: Site) -> None:
    site.errors = [Unavailable("the store is away")] * 4
    *progress, last = await site.ask()
    errors = {one.error for one in progress if isinstance(one, CopyProgress)}
    assert errors == {"", "the store is away"}
    assert isinstance(last, CopyReport)
    assert last.is_complete
    assert site.copies == 5


@pytest.mark.parametrize("kind", [Unavailable, Corrupt])
async def test_what_fails_for_good_ends_the_run(site: Site, kind: type[RemoteStorageError]) -> None:
    site.errors, began_ms = [kind("broken")] * 999, site.clock.monotonic_ms()
    found = await site.report()
    assert (found.is_complete, found.why) == (False, "broken")
    if kind is Unavailable:
        assert 60_000 <= site.clock.monotonic_ms() - began_ms < 90_000
    else:
        assert site.copies == 1
    site.errors = []
    assert (await site.report()).is_complete


async def test_h13_beside_a_second_service_of_the_node_nothing_is_copied(site: Site) -> None:
    site.rival = Unavailable("a second service of this node is alive")
    assert "second service" in (await site.report()).why
    assert site.copies == 0


async def test_a_request_for_the_same_joins_the_run_and_another_one_is_refused(site: Site) -> None:
    site.hold = asyncio.Event()
    first = asyncio.create_task(site.report())
    await site.began.wait()
    second = asyncio.create_task(site.report())
    await turns()
    with pytest.raises(Busy, match="other options"):
        await site.report(replace(ALL, keep_local_bytes=0))
    site.hold.set()
    assert (await first) == (await second)
    assert site.copies == 1


async def test_without_a_watcher_the_run_that_was_begun_is_finished(site: Site) -> None:
    site.hold = asyncio.Event()
    watcher = asyncio.create_task(site.report(replace(ALL, keep_local_bytes=0)))
    await site.began.wait()
    watcher.cancel()
    await asyncio.wait([watcher])
    again = asyncio.create_task(site.report(replace(ALL, keep_local_bytes=0)))
    await turns()
    again.cancel()
    await asyncio.wait([again])
    site.hold.set()
    await site.trimmed.wait()
    assert site.copies == 1, "the second watcher joined the run that went on"
    assert site.rig.broker.deleted == [300]


class Taken:
    """A place in a pool: the partition's other jobs, until they are let go."""

    def __init__(self, pool: TaskPool) -> None:
        self.began, self.let_go = asyncio.Event(), asyncio.Event()
        pool.submit(PARTITION.key, self._job)

    async def _job(self) -> None:
        self.began.set()
        await self.let_go.wait()


async def turns() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


async def abandoned(site: Site, target: CopyTarget) -> None:
    """Somebody asks for it, and goes away when its first job was queued."""
    watcher = asyncio.create_task(site.report(target))
    await turns()
    watcher.cancel()
    await asyncio.wait([watcher])


async def test_without_a_watcher_a_trim_that_finds_its_queue_taken_is_made_later(
    site: Site,
) -> None:
    """The partition's cleanup runs, and the next one waits, just when all is copied."""
    site.hold = asyncio.Event()
    await abandoned(site, replace(ALL, keep_local_bytes=0))
    runs = Taken(site.cleanup_pool)
    await runs.began.wait()
    waits = Taken(site.cleanup_pool)
    site.hold.set()
    await site.copied.wait()
    for one in (runs, waits):
        one.let_go.set()
    background = asyncio.create_task(site.runs.run_unwatched())
    async with asyncio.timeout(60):
        await site.trimmed.wait()
    assert site.rig.broker.deleted == [300]
    assert (await site.report()).is_complete, "another request is not refused any more"
    background.cancel()
    await asyncio.wait([background])


async def test_without_a_watcher_a_run_whose_job_was_dropped_ends(site: Site) -> None:
    """The partition was led elsewhere while the job waited."""
    runs = Taken(site.copy_pool)
    await runs.began.wait()
    await abandoned(site, replace(ALL, keep_local_bytes=0))
    assert site.copy_pool.is_waiting(PARTITION.key)
    site.is_led = False
    site.copy_pool.forget(PARTITION.key)
    background = asyncio.create_task(site.runs.run_unwatched())
    await turns()
    runs.let_go.set()
    site.is_led = True
    assert (await site.report()).is_complete
    background.cancel()
    await asyncio.wait([background])


async def test_a_partition_that_is_led_elsewhere_now_ends_its_run(site: Site) -> None:
    site.errors = [Unavailable("fenced")]
    events = site.runs.run(ALL)
    await anext(events)
    site.is_led = False
    last = [event async for event in events][-1]
    assert isinstance(last, CopyReport)
    assert "not led here any more" in last.why


async def test_partitions_that_are_not_led_here_are_not_reported(site: Site) -> None:
    other = frozenset({TopicPartition(PARTITION.topic, 7)})
    assert await site.ask(CopyTarget(partitions=other)) == []


@pytest.mark.parametrize("why", [WhyNot.RECOVERY_POINT, WhyNot.LAST_STABLE_OFFSET])
async def test_a_run_ends_where_segments_are_closed_faster_than_they_may_be_copied(
    site: Site, why: WhyNot
) -> None:
    """Each time one more was copied, and the next one waits for the broker: it is producing."""

    async def produced(_led: LedPartition, request: CopyRequest) -> None:
        site.copies += 1
        assert site.copies < 60, "the run never ends"
        request.segments += 1
        request.segments_total, request.reason = request.segments, why

    site.runs._copy = produced
    began_ms = site.clock.monotonic_ms()
    found = await site.report()
    assert not found.is_complete and why.value in found.why
    assert 80_000 < site.clock.monotonic_ms() - began_ms < 120_000
