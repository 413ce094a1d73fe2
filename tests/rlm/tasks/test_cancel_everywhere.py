"""Cancel copy, sweep and trim once at every step: no orphans, no FINISHED without its objects."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

import pytest

from kip405.errors import Unavailable
from kip405.segments import RemoteLogSegmentState
from rlm.tasks.copy_request import CopyRequest
from rsm_plugins.layout.keys import parse_name
from tests.builders.checkpoints import Checkpoints
from tests.builders.ledger import PARTITION
from tests.builders.rig import DRAIN_MS, Rig

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
MOST_STEPS = 200


async def cancelled_at(
    checkpoints: Checkpoints, step: int, work: Coroutine[None, None, None]
) -> bool:
    """Run the work, cancelled that many steps from now; whether it got that far."""
    checkpoints.count = 0
    checkpoints.cancel_at = step
    try:
        checkpoints.task = asyncio.ensure_future(work)
        await checkpoints.task
    except asyncio.CancelledError:
        return True
    finally:
        checkpoints.cancel_at = None
    return False


def check_store(rig: Rig) -> None:
    """Every object has its entry; every FINISHED entry has its three objects."""
    kinds = Counter(parse_name(name).segment_id for name in rig.store.objects)
    entries = rig.ledger.view.entries
    assert set(kinds) <= set(entries)
    for entry in rig.ledger.view.in_state(FINISHED):
        assert kinds[entry.metadata.segment_id.id] == 3
    assert not rig.live


def check_done(rig: Rig) -> None:
    """Both closed segments are there once, and nothing else."""
    states = [entry.state for entry in rig.ledger.view.entries.values()]
    assert states == [FINISHED, FINISHED]
    assert len(rig.store.objects) == 6
    assert [one.metadata.start_offset for one in rig.ledger.view.in_state(FINISHED)] == [0, 100]


async def every_step(
    path: Path,
    prepare: Callable[[Rig], Awaitable[None]],
    work: Callable[[Rig], Coroutine[None, None, None]],
    check: Callable[[Rig], Awaitable[None]],
) -> int:
    """Run the scenario once per step of `work`; how many steps there were."""
    for step in range(1, MOST_STEPS):
        checkpoints = Checkpoints()
        rig = Rig(path / str(step), checkpoints=checkpoints)
        rig.write_log(0, 100, 200, end=250)
        await prepare(rig)
        was_cancelled = await cancelled_at(checkpoints, step, work(rig))
        await check(rig)
        if not was_cancelled:
            return step
    pytest.fail("the work never came to its end")


async def nothing(rig: Rig) -> None:
    return None


async def test_copy_cancelled_at_every_step_is_mended_by_the_next_runs(tmp_path: Path) -> None:
    async def check(rig: Rig) -> None:
        check_store(rig)
        await rig.cleanup.run(rig.led)
        check_store(rig)
        await rig.copy.run(rig.led)
        check_done(rig)

    steps = await every_step(tmp_path, nothing, lambda rig: rig.copy.run(rig.led), check)
    assert steps > 40


async def test_sweep_cancelled_at_every_step_is_finished_by_the_next_one(tmp_path: Path) -> None:
    async def break_two_copies(rig: Rig) -> None:
        def die(operation: str) -> None:
            if operation == "manifest":
                raise ConnectionError

        rig.store.before = die
        for _ in range(2):
            with pytest.raises(ConnectionError):
                await rig.copy.run(rig.led, CopyRequest(up_to_offset=100))
        rig.store.before = lambda _: None
        states = [entry.state for entry in rig.ledger.view.entries.values()]
        assert states == [STARTED, STARTED]

    async def check(rig: Rig) -> None:
        check_store(rig)
        await rig.cleanup.run(rig.led)
        assert not rig.store.objects
        assert not rig.ledger.view.entries
        await rig.copy.run(rig.led)
        check_done(rig)

    steps = await every_step(
        tmp_path, break_two_copies, lambda rig: rig.cleanup.run(rig.led), check
    )
    assert steps > 30


async def drain(rig: Rig) -> None:
    """Until it is known that nothing which was given up will be executed (H41)."""
    for _ in range(2):
        with contextlib.suppress(Unavailable):
            await rig.trim.settle(rig.led)
        rig.clock.advance(DRAIN_MS)
    rig.heartbeat()


async def test_trim_cancelled_at_every_step_never_passes_its_intent(tmp_path: Path) -> None:
    async def check(rig: Rig) -> None:
        intent = rig.settings.view.trim(PARTITION.key)
        assert rig.broker.log_start_offset <= (intent.bound if intent else 0) <= 200
        await drain(rig)
        await rig.trim.run(rig.led)
        assert rig.broker.log_start_offset == 200
        assert rig.trim.statuses[PARTITION.key].foreign_log_start is None

    steps = await every_step(
        tmp_path, lambda rig: rig.copy.run(rig.led), lambda rig: rig.trim.run(rig.led), check
    )
    assert steps > 30
