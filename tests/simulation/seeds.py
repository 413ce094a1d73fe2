"""Runs one seed: what tests call. Failure has the seed, the trace and the broken invariant."""

import asyncio
import contextlib
import gc
import random
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, MutableMapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import structlog

import rlm.clock
import rlmm.manager
import rlmm.settings_view
from rlmm.records import decode_record
from rlmm.settings_codec import decode_settings_record
from tests.simulation import invariants
from tests.simulation.loop import current_process
from tests.simulation.model_service import base_config
from tests.simulation.world import World

_TRACE_LINES = 400
_KEPT = 4_096
_YOUNGEST = 0
_SHARED_MEMORY = Path("/dev/shm")


class Failure(AssertionError):
    """A seed that breaks an invariant; the message has all that is needed to repeat it."""

    def __init__(self, seed: int, trace: Sequence[str], broken: BaseException) -> None:
        super().__init__("\n".join((f"seed {seed}", *trace, f"SEED={seed}: {broken!r}")))
        self.broken = str(broken)


def run_seed(seed: int) -> Counter[str]:
    """Run one seed; how often each event happened. Failure: an invariant is broken."""
    parent = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="rlm-simulation-", dir=parent))
    world = World(seed, folder, base_config())
    try:
        with _seeded(seed), _logging_to(world), _decoding_once(), _collecting_before():
            world.loop.run_until_complete(world.run())
    except Exception as error:  # noqa: BLE001 - raised with all that repeats it
        found = world.failure or _first(error)
        raise Failure(seed, world.trace[-_TRACE_LINES:], found) from found
    finally:
        _end(world)
        world.loop.close()
        shutil.rmtree(folder, ignore_errors=True)
    return world.counts


def _first(error: BaseException) -> BaseException:
    """The error inside the groups of TaskGroups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _end(world: World) -> None:
    """Cancel what still runs, as after a failure: no coroutine is left behind."""
    loop = world.loop
    for process in loop.processes:
        process.is_paused, process.callbacks_until_pause = False, -1
    for service in world.services.values():
        service.process.is_dead = True
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=60))


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Jitter and ids of rlm.clock, and nothing else, come from the seed meanwhile."""
    state, ids = random.getstate(), random.Random(seed)
    random.seed(seed)
    uuid4 = SimpleNamespace(uuid4=lambda: uuid.UUID(int=ids.getrandbits(128), version=4))
    try:
        with mock.patch.object(rlm.clock, "uuid", uuid4):
            yield
    finally:
        random.setstate(state)


@contextlib.contextmanager
def _decoding_once() -> Iterator[None]:
    """A record is decoded for the first who reads it, and the others get the same values, which
    nobody can change.
    """
    ledger, settings = lru_cache(_KEPT)(decode_record), lru_cache(_KEPT)(decode_settings_record)
    with (
        mock.patch.object(rlmm.manager, "decode_record", ledger),
        mock.patch.object(invariants, "decode_record", ledger),
        mock.patch.object(rlmm.settings_view, "decode_settings_record", settings),
    ):
        yield


@contextlib.contextmanager
def _collecting_before() -> Iterator[None]:
    """The garbage of a run is collected at once, when the next run begins."""
    was_enabled = gc.isenabled()
    gc.collect(_YOUNGEST)
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _logging_to(world: World) -> Iterator[None]:
    """The product's log lines become lines of the trace."""

    def keep(_: Any, level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        process = current_process()
        fields = " ".join(f"{key}={value}" for key, value in event.items() if key != "event")
        world.say(f"{process.name if process else '?'}: {event['event']} {fields}")
        raise structlog.DropEvent

    processors = structlog.get_config()["processors"]
    before = list(processors)
    processors[:] = [keep]
    try:
        yield
    finally:
        processors[:] = before
