"""Gauges by which an operator notices that data is not safe any more."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Unavailable
from kip405.ids import PartitionKey
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.broker.leadership import LedPartition
from rlm.config.loader import reader_from_mapping
from rlm.plans.open_transactions import PinnedOffset
from rlm.plans.problem_rules import CertificateFile
from rlm.service.loop_watch import LoopWatch
from rlm.service.reader_service import ReaderService
from rlm.service.safety_gauges import (
    RunAges,
    certificate_gauges,
    loop_gauges,
    metadata_gauges,
    service_gauges,
)
from rlm.tasks.good_runs import GoodRun, GoodRuns
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from tests.builders.clock import ManualClock
from tests.builders.ledger import PARTITION
from tests.builders.rig import NODE_ID, Rig
from tests.builders.service import NOBODY, built_service, common_settings
from tests.builders.threads import all_of, some_threads
from tests.rlm.service.test_scrape import samples, scraped
from tests.rlm.tasks.test_expiration import expiration_of

DAY_MS = 86_400_000
HEARTBEAT_MS = 10_000


class Led:
    """Partitions led since a time."""

    def __init__(self, rows: Sequence[LedPartition], since_ms: int) -> None:
        self.rows, self.since_ms = rows, since_ms

    def led(self) -> Sequence[LedPartition]:
        return self.rows

    def led_since_ms(self, row: LedPartition) -> int:
        return self.since_ms


def ages(
    rig: Rig, led: Led, verified_ms: Mapping[PartitionKey, int] | None = None
) -> dict[str, float]:
    """By task, of the rig's topic."""
    found = RunAges(
        partitions=led,
        good_runs=rig.good_runs,
        verified_ms=None if verified_ms is None else lambda: verified_ms,
        clock=rig.clock,
    ).gauges()
    assert found["rlm_partitions_led"] == {(): len(led.rows)}
    rows = found["rlm_task_good_run_age_seconds"]
    return {task: age for (task, topic), age in rows.items() if topic == PARTITION.topic}


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path)
    made.write_log(0, 100, 200, end=250)
    return made


async def test_a_task_that_ends_well_is_young_and_one_that_fails_grows_old(rig: Rig) -> None:
    led = Led([rig.led], rig.clock.now)
    rig.clock.advance(70_000)
    assert ages(rig, led) == {"copy": 70, "trim": 70, "expiry": 70}, "since it is led"
    await rig.copy.run(rig.led)
    await expiration_of(rig).run(rig.led)
    assert ages(rig, led) == {"copy": 0, "trim": 0, "expiry": 0}
    rig.clock.advance(30_000)

    def away(_operation: str) -> None:
        raise Unavailable("the store is away")

    rig.write_log(0, 100, 200, 300, end=350)
    rig.store.before = away
    with pytest.raises(Unavailable):
        await rig.copy.run(rig.led)
    assert ages(rig, led)["copy"] == 30
    rig.store.before = lambda _operation: None
    await rig.copy.run(rig.led)
    assert ages(rig, led)["copy"] == 0


async def test_a_run_with_a_backlog_is_young_since_its_last_segment(rig: Rig) -> None:
    led, seen = Led([rig.led], rig.clock.now), dict[int, float]()
    finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED

    def a_while(one: RemoteLogSegmentMetadata) -> None:
        if one.state is finished:
            rig.clock.advance(20_000)
            seen[one.start_offset] = ages(rig, led)["copy"]

    rig.ledger.before_publish = a_while
    await rig.copy.run(rig.led)
    assert seen == {0: 20, 100: 20}


async def test_an_idle_partition_whose_copies_are_skipped_is_young(rig: Rig) -> None:
    led = Led([rig.led], rig.clock.now)
    await rig.copy.run(rig.led)
    rig.clock.advance(40_000)
    assert not rig.copy.is_due(await rig.snapshots.take(rig.led))
    assert ages(rig, led)["copy"] == 0
    rig.copy.forget(rig.led.key)
    assert ages(rig, led)["copy"] == 40, "led by another meanwhile"


def test_a_topic_is_as_old_as_its_oldest_partition(rig: Rig) -> None:
    other = replace(rig.led, topic_id_partition=replace(PARTITION, partition=5))
    led = Led([rig.led, other], rig.clock.now)
    rig.clock.advance(50_000)
    rig.good_runs.note(GoodRun.COPY, rig.led.key)
    assert ages(rig, led)["copy"] == 50
    rig.good_runs.note(GoodRun.COPY, other.key)
    assert ages(rig, led)["copy"] == 0


def test_verifications_are_shown_where_there_are_any(rig: Rig) -> None:
    led = Led([rig.led], rig.clock.now)
    assert "verify" not in ages(rig, led)
    rig.clock.advance(20_000)
    assert ages(rig, led, {rig.led.key: rig.clock.now - 5_000})["verify"] == 5


def test_runs_are_forgotten_by_task(rig: Rig) -> None:
    runs = GoodRuns(rig.clock)
    for task in GoodRun:
        runs.note(task, rig.led.key)
    runs.forget(GoodRun.TRIM, rig.led.key)
    assert [bool(runs.ended_ms(task)) for task in GoodRun] == [True, False, True]


def test_heartbeats_age_and_clocks_that_go_wrong_are_shown(rig: Rig) -> None:
    clock, settings = rig.clock, rig.settings

    def shown() -> dict[str, Mapping[tuple[str, ...], float]]:
        return service_gauges(settings.view, clock.monotonic_ms(), HEARTBEAT_MS)

    rig.heartbeat(2)
    clock.advance(7_000)
    rig.heartbeat()
    found = shown()
    assert found["rlm_heartbeat_age_seconds"] == {(str(NODE_ID),): 0, ("2",): 7}
    assert set(found["rlm_clock_skew_seconds"].values()) == {0}
    clock.advance(4 * HEARTBEAT_MS)
    found = shown()
    assert found["rlm_heartbeat_age_seconds"]["2",] == 47
    assert found["rlm_clock_skew_seconds"] == {}, "nobody was heard for three heartbeats"


def test_a_certificate_counts_down_and_the_first_end_of_a_file_counts() -> None:
    def file(path: str, ends_at_ms: int | None) -> CertificateFile:
        return CertificateFile(path=path, use="u", ends_at_ms=ends_at_ms, error=None)

    files = [file("a", 10 * DAY_MS), file("a", 3 * DAY_MS), file("b", DAY_MS), file("c", None)]
    left = certificate_gauges(files, 2 * DAY_MS)["rlm_certificate_left_seconds"]
    assert left == {("a",): 86_400, ("b",): -86_400}


class Reads:
    """How far both topics are read."""

    def __init__(self) -> None:
        self.unread: dict[str, int] = {}
        self.answered_at_ms: int | None = None

    def unread_records(self, topic: str) -> int | None:
        return self.unread.get(topic)


def test_how_far_the_metadata_is_read() -> None:
    reads = Reads()
    assert metadata_gauges(reads, 9_000) == {"rlm_metadata_unread_records": {}}
    reads.unread, reads.answered_at_ms = {LEDGER_TOPIC: 4, SETTINGS_TOPIC: 0}, 2_000
    assert metadata_gauges(reads, 9_000) == {
        "rlm_metadata_unread_records": {(LEDGER_TOPIC,): 4, (SETTINGS_TOPIC,): 0},
        "rlm_metadata_answer_age_seconds": {(): 7},
    }


class LateClock(ManualClock):
    """A sleep ends so much later than it should."""

    def __init__(self, late_ms: Sequence[int]) -> None:
        super().__init__()
        self._late_ms = list(late_ms)

    async def sleep_ms(self, duration_ms: float) -> None:
        if not self._late_ms:
            raise EOFError
        self.advance(int(duration_ms) + self._late_ms.pop(0))


async def test_the_worst_lag_of_the_event_loop_is_shown_for_a_minute() -> None:
    clock = LateClock([0, 900, 20])
    watch = LoopWatch(clock)
    assert loop_gauges(watch.worst_ms()) == {"rlm_event_loop_lag_seconds": {}}
    with pytest.raises(EOFError):
        await watch.run()
    assert loop_gauges(watch.worst_ms()) == {"rlm_event_loop_lag_seconds": {(): 0.9}}
    clock.advance(59_800)
    assert watch.worst_ms() == 20, "that of 900 ms is older than a minute"
    clock.advance(60_000)
    assert watch.worst_ms() is None


async def test_a_service_shows_them(tmp_path: Path) -> None:
    clock = ManualClock()
    async with built_service(tmp_path, clock) as service:
        service._loop_watch._note(1_500)
        service._tasks.good_runs.note(GoodRun.COPY, PARTITION.key)
        service._tasks.partition_tasks.copy._copier._ended("orders", failed=False)
        service._tasks.partition_tasks.copy._copier._ended("orders", failed=True)
        service._tasks.partition_tasks.expiry._failed("orders")
        found = scraped(service)
    assert found["rlm_event_loop_lag_seconds"] == {(): 1.5}
    assert found["rlm_partitions_led"] == {(): 0}
    assert found["rlm_remote_copy_requests_total"] == {("orders",): 2}
    assert found["rlm_remote_copy_errors_total"] == {("orders",): 1}
    assert found["rlm_remote_delete_errors_total"] == {("orders",): 1}
    assert found["rlm_tasks_slots"] == {("copy",): 10, ("cleanup",): 10}


async def test_a_reader_shows_what_every_role_has(tmp_path: Path) -> None:
    config = reader_from_mapping(common_settings(tmp_path, NOBODY))
    with some_threads(1) as threads:
        async with asyncio.TaskGroup() as tasks:
            reader = ReaderService(config, ManualClock(), tasks, all_of(threads), lambda: config)
            reader._loop_watch._note(1_500)
            found = samples(reader._listening._http._metrics().decode())
            await reader.close()
    assert found["rlm_event_loop_lag_seconds"] == {(): 1.5}
    assert "rlm_partitions_led" not in found


async def test_restarts_of_a_plugin_that_we_run_are_shown(tmp_path: Path) -> None:
    settings = {**common_settings(tmp_path, NOBODY), "plugin.address": None}
    settings |= {"plugin": "local", "rsm.config.root": str(tmp_path)}
    config = reader_from_mapping(settings)
    with some_threads(1) as threads:
        async with asyncio.TaskGroup() as tasks:
            reader = ReaderService(config, ManualClock(), tasks, all_of(threads), lambda: config)
            (plugin,) = reader._stores.plugins
            assert plugin.process is not None
            plugin.process.restarts = 3
            found = samples(reader._listening._http._metrics().decode())
            await reader.close()
    assert found["rlm_plugin_restarts_total"] == {("default",): 3}


@pytest.mark.parametrize(("detail", "labels"), [("on", ("0", "orders")), ("off", ("orders",))])
async def test_a_service_shows_partitions_as_its_setting_says(
    tmp_path: Path, detail: str, labels: tuple[str, ...]
) -> None:
    async with built_service(tmp_path, ManualClock(), {"metrics.per.partition": detail}) as service:
        pinned = PinnedOffset(
            partition=PARTITION.topic_partition, last_stable_offset=5, since_ms=ManualClock().now
        )
        service._tasks.transactions._pinned[PARTITION.key] = pinned
        found = scraped(service)
    assert found["rlm_last_stable_offset_pinned_seconds"] == {labels: 0}
