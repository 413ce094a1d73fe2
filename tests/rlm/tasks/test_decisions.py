"""What is remembered of decisions of tasks: changes alone, each with its reason, in bounds."""

import asyncio
from dataclasses import replace

import pytest

from kip405.errors import Unavailable
from kip405.ids import PartitionKey, Uuid
from rlm.plans.expiry import Held, NoExpiry
from rlm.tasks.copy import CopyStatus
from rlm.tasks.decisions import TaskDecision
from rlm.tasks.expiry import ExpiryStatus
from rlm.tasks.trim import TrimStatus
from tests.builders.clock import ManualClock
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.rlm.api.report_fakes import ApiTasks

KEY = PartitionKey(TOPIC_ID, 0)
COPIED = CopyStatus(
    topic=TOPIC,
    partition=0,
    leader_epoch=0,
    reason="waiting for the last stable offset",
    detail="segment ends at 20, last stable offset is 15",
    frozen=None,
    copied_next_offset=10,
    log_start_offset=0,
    last_stable_offset=15,
    high_watermark=30,
    pending_segments=0,
    pending_bytes=0,
    lag_segments=1,
    lag_bytes=1,
    measured_at_ms=0,
    behind_since_ms=None,
)
TRIMMED = TrimStatus(leader_epoch=0, reason="trim is off", detail="", local_log_start_offset=0)
EXPIRED = ExpiryStatus(held=Held(reason=NoExpiry.WITHIN_RETENTION))


@pytest.fixture
def tasks() -> ApiTasks:
    return ApiTasks()


def texts(tasks: ApiTasks) -> list[tuple[str, str]]:
    return [(one.task, one.text) for one in tasks.decisions.after(-1)]


def test_a_decision_has_its_reason_and_comes_once(tasks: ApiTasks) -> None:
    tasks.copied[KEY] = COPIED
    tasks.decisions.copy_ended(KEY)
    tasks.copied[KEY] = replace(COPIED, detail="segment ends at 20, last stable offset is 16")
    tasks.decisions.copy_ended(KEY)
    reason = "waiting for the last stable offset segment ends at 20, last stable offset is 15"
    assert texts(tasks) == [("copy", f"remote up to 10; {reason}")]
    [one] = tasks.decisions.after(-1)
    assert (one.topic, one.partition, one.failed) == (TOPIC, 0, False)
    assert one.at_ms == tasks.clock.now_ms()


def test_progress_and_a_new_reason_are_new_decisions(tasks: ApiTasks) -> None:
    for status in (
        COPIED,
        replace(COPIED, copied_next_offset=20),
        replace(COPIED, copied_next_offset=20, reason="all closed segments are remote", detail=""),
    ):
        tasks.copied[KEY] = status
        tasks.decisions.copy_ended(KEY)
    assert len(texts(tasks)) == 3
    assert texts(tasks)[-1] == ("copy", "remote up to 20; all closed segments are remote")


def test_trim_and_expiry_are_decisions_of_one_run(tasks: ApiTasks) -> None:
    tasks.trimmed[KEY], tasks.expired[KEY] = TRIMMED, EXPIRED
    tasks.decisions.cleanup_ended(KEY)
    tasks.trimmed[KEY] = replace(TRIMMED, reason="", trimmed_to=100)
    tasks.expired[KEY] = replace(EXPIRED, deleted_at_ms=5, deleted_segments=2, deleted_bytes=2048)
    tasks.decisions.cleanup_ended(KEY)
    within = "all is within total retention"
    assert texts(tasks) == [
        ("trim", "trim is off"),
        ("expiry", within),
        ("trim", "trimmed up to 100"),
        ("expiry", f"deleted 2 segments, 2.0 KiB; {within}"),
    ]


def test_what_needs_an_operator_is_a_failure(tasks: ApiTasks) -> None:
    tasks.trimmed[KEY] = replace(TRIMMED, alarm="an object is gone")
    tasks.decisions.cleanup_ended(KEY)
    [one] = tasks.decisions.after(-1)
    assert one.failed and one.text == "trim is off; an object is gone"


async def test_a_failure_is_a_decision_until_it_ends(tasks: ApiTasks) -> None:
    ended = asyncio.Event()

    def note(key: PartitionKey) -> None:
        tasks.decisions.cleanup_ended(key)
        ended.set()

    tasks.cleanup_pool.ended = note
    worker = asyncio.create_task(tasks.cleanup_pool.run())
    for error in (Unavailable("no answer"), Unavailable("no answer"), None, None):

        async def job(error: Exception | None = error) -> None:
            if error is not None:
                raise error

        tasks.clock.now += 3_600_000  # any back-off is over
        assert tasks.cleanup_pool.submit(KEY, job)
        await ended.wait()
        ended.clear()
    worker.cancel()
    assert texts(tasks) == [("cleanup", "Unavailable: no answer"), ("cleanup", "works again")]
    assert [one.failed for one in tasks.decisions.after(-1)] == [True, False]


def test_the_ring_is_bounded_and_says_what_it_lacks() -> None:
    tasks = ApiTasks(most=2)
    began = tasks.decisions.newest
    assert not tasks.decisions.has_gap(began)
    for offset in range(3):
        tasks.copied[KEY] = replace(COPIED, copied_next_offset=offset)
        tasks.decisions.copy_ended(KEY)
    numbers = [one.number for one in tasks.decisions.after(-1)]
    assert numbers == [began + 2, began + 3]
    assert tasks.decisions.has_gap(began) and not tasks.decisions.has_gap(began + 1)
    assert not tasks.decisions.has_gap(-1), "whoever asks for what there is misses nothing"
    assert tasks.decisions.after(began + 2) == tasks.decisions.after(-1)[1:]


def test_numbers_go_on_after_a_restart() -> None:
    def of(clock: ManualClock) -> TaskDecision:
        again = ApiTasks(clock=clock)
        again.copied[KEY] = COPIED
        again.decisions.copy_ended(KEY)
        return again.decisions.after(-1)[-1]

    clock = ManualClock()
    first = of(clock)
    clock.now += 1_000
    assert of(clock).number > first.number


def test_a_partition_that_is_led_again_is_decided_again(tasks: ApiTasks) -> None:
    tasks.copied[KEY] = COPIED
    tasks.decisions.copy_ended(KEY)
    tasks.decisions.forget(KEY)
    tasks.decisions.copy_ended(KEY)
    assert len(texts(tasks)) == 2


def test_a_partition_whose_topic_is_not_known_has_its_id(tasks: ApiTasks) -> None:
    other = PartitionKey(Uuid(b"y" * 16), 3)
    tasks.copied[other] = COPIED
    tasks.decisions.copy_ended(other)
    [one] = tasks.decisions.after(-1)
    assert (one.topic, one.partition) == (str(other.topic_id), 3)
