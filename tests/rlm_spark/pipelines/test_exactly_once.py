"""Every row once, whatever dies when: crashes and power loss at each step, twice-run attempts."""

import contextlib
import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_spark.pipelines.chunks import Chunk, ExportError
from tests.rlm_spark.pipelines.faults import Crash, FaultyFiles, Machine
from tests.rlm_spark.pipelines.world import DAY_MS, Exporter, Topics, exported, stray
from tiered_reads.values import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u.v", 0)


def small_topics() -> Topics:
    """Two days in one chunk, a day in two chunks, a late record, an empty partition."""
    return Topics(
        records={
            T0: [DAY_MS * day for day in (1, 1, 2, 3, 3, 3, 1)],
            T1: [],
            U0: [DAY_MS - 1, DAY_MS],
        }
    )


def crash(topics: Topics, root: Path, die_at: int) -> bool:
    """Whether the export died at that step."""
    machine = Machine(die_at=die_at)
    try:
        Exporter(topics=topics, root=root, files=FaultyFiles(machine)).run()
    except Crash:
        machine.lose_power()
        return True
    return False


def test_a_crash_at_every_step_and_a_second_run_give_every_row_once(tmp_path: Path) -> None:
    topics, step = small_topics(), 0
    while True:
        root = tmp_path / str(step)
        died = crash(topics, root, step)
        seen = exported(root)
        assert len(seen) == len(set(seen))
        assert set(seen) <= set(topics.rows())
        Exporter(topics=topics, root=root).run()
        assert exported(root) == topics.rows()
        assert stray(root) == []
        if not died:
            break
        step += 1
    assert step > 50


@given(steps=st.lists(st.integers(0, 90), max_size=6), grown=st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_crashes_of_crashed_runs_while_the_topic_grows(steps: list[int], grown: int) -> None:
    root = Path(tempfile.mkdtemp(prefix="export-"))
    topics = small_topics()
    try:
        for number, step in enumerate(steps):
            crash(topics, root / "x", step)
            topics.records[T1].extend([DAY_MS * number] * grown)
            seen = exported(root / "x")
            assert len(seen) == len(set(seen))
        Exporter(topics=topics, root=root / "x").run()
        assert exported(root / "x") == topics.rows()
        assert stray(root / "x") == []
    finally:
        shutil.rmtree(root)


@given(first=st.integers(0, 60), second=st.integers(0, 60))
@settings(max_examples=25, deadline=None)
def test_attempts_at_the_same_chunk_in_any_order_of_death_count_once(
    first: int, second: int
) -> None:
    root = Path(tempfile.mkdtemp(prefix="export-"))
    topics = small_topics()
    try:
        driver = Exporter(topics=topics, root=root / "x")
        lock = driver.book.open(driver.shape)
        chunks = driver.prepare()
        for die_at in (first, second):
            worker = driver.changed(files=FaultyFiles(Machine(die_at=die_at)))
            with contextlib.suppress(Crash):
                for chunk in chunks:
                    worker.work(chunk)
        for chunk in chunks:
            driver.work(chunk)
        lock.release()
        assert exported(root / "x") == topics.rows()
        driver.run()
        assert exported(root / "x") == topics.rows()
        assert stray(root / "x") == []
    finally:
        shutil.rmtree(root)


class Interrupted(Machine):
    """Another driver does a whole run before the step that is chosen."""

    def __init__(self, other: Exporter, at: int) -> None:
        super().__init__()
        self.other = other
        self.at = at
        self.came = False

    def step(self) -> None:
        self.done += 1
        if self.done == self.at + 1:
            self.came = True
            self.other.run()


def test_a_worker_of_a_dead_driver_that_commits_late_counts_once_or_not_at_all(
    tmp_path: Path,
) -> None:
    """The new driver's recovery comes in at each step of the old worker; both then go on."""
    topics, step = small_topics(), 0
    while True:
        root = tmp_path / str(step)
        driver = Exporter(topics=topics, root=root)
        lock = driver.book.open(driver.shape)
        chunks = driver.prepare()
        lock.release()

        machine = Interrupted(driver, step)
        files = FaultyFiles(machine)
        worker = driver.changed(files=files)
        for chunk in chunks:
            with contextlib.suppress(ExportError, FileNotFoundError):
                worker.work(chunk)
        driver.run()
        assert exported(root) == topics.rows(), step
        assert stray(root) == []
        if not machine.came:
            break
        step += 1
    assert step > 30


def test_two_exporters_at_once_are_one_and_a_refusal(tmp_path: Path) -> None:
    driver = Exporter(topics=small_topics(), root=tmp_path / "x")
    lock = driver.book.open(driver.shape)
    with pytest.raises(ExportError, match=r"another export .*process .* is at work"):
        driver.run()
    lock.release()
    driver.run()


class Paused(Machine):
    """Waits before one step until it may go on, and dies after so many more steps."""

    def __init__(self, at: int, more_steps: int) -> None:
        super().__init__(die_at=at + more_steps)
        self.at = at
        self.is_there = threading.Event()
        self.may_go_on = threading.Event()

    def step(self) -> None:
        if self.done == self.at:
            self.is_there.set()
            assert self.may_go_on.wait(60)
        super().step()


class Releasing(Machine):
    """Lets a paused worker go on to its end before one step."""

    def __init__(self, worker: threading.Thread, paused: Paused, at: int) -> None:
        super().__init__()
        self.worker = worker
        self.paused = paused
        self.at = at

    def step(self) -> None:
        if self.done == self.at:
            self.paused.may_go_on.set()
            self.worker.join(60)
        self.done += 1


@pytest.mark.parametrize(("pause", "more_steps"), [(10, 99), (10, 1), (10, 9), (11, 99), (18, 1)])
def test_a_worker_of_a_dead_driver_commits_at_any_step_of_the_next_driver(
    tmp_path: Path, pause: int, more_steps: int
) -> None:
    topics = Topics(records={T0: [DAY_MS, 2 * DAY_MS]})
    for step in range(60):
        root = tmp_path / str(step)
        driver = Exporter(topics=topics, root=root)
        lock = driver.book.open(driver.shape)
        (chunk,) = driver.prepare()
        lock.release()
        paused = Paused(pause, more_steps)
        worker = threading.Thread(target=_works, args=(driver, paused, chunk))
        worker.start()
        while not paused.is_there.wait(0.001) and worker.is_alive():
            pass
        releasing = Releasing(worker, paused, step)
        driver.changed(files=FaultyFiles(releasing)).run()
        paused.may_go_on.set()
        worker.join(60)
        driver.run()
        assert exported(root) == topics.rows(), step
        assert stray(root) == []
        if releasing.done <= step:
            break
    else:
        pytest.fail("the driver has more steps than were tried")


def _works(driver: Exporter, machine: Machine, chunk: Chunk) -> None:
    with contextlib.suppress(Crash, ExportError, FileNotFoundError):
        driver.changed(files=FaultyFiles(machine)).work(chunk)
