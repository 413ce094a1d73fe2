"""The loop under the simulation: time jumps, a seed repeats, a paused process stands."""

import asyncio
import random

import pytest

from kip405.errors import Unavailable
from tests.simulation.loop import Process, Stuck, VirtualTimeLoop
from tests.simulation.network import Network


def new_loop(seed: int = 1) -> VirtualTimeLoop:
    return VirtualTimeLoop(random.Random(seed))


def test_a_day_passes_at_once_and_deadlines_end_by_virtual_time() -> None:
    loop = new_loop()

    async def a_day() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(86_400):
                await asyncio.Event().wait()
        return loop.time()

    assert loop.run_until_complete(a_day()) == 86_400
    loop.close()


def test_nothing_left_to_happen_is_an_error() -> None:
    loop = new_loop()
    with pytest.raises(Stuck):
        loop.run_until_complete(asyncio.Event().wait())
    loop.close()


def steps_of(seed: int) -> list[str]:
    """In which order three processes of equal length take their steps."""
    loop, steps = new_loop(seed), list[str]()

    async def work(name: str) -> None:
        for _ in range(4):
            steps.append(name)
            await asyncio.sleep(0)

    tasks = []
    for name in "abc":
        process = Process(name)
        loop.add(process)
        tasks.append(process.context.run(loop.create_task, work(name)))
    loop.run_until_complete(asyncio.wait(tasks))
    loop.close()
    return steps


def test_a_seed_repeats_its_order_and_another_seed_has_another() -> None:
    assert steps_of(1) == steps_of(1)
    assert len({tuple(steps_of(seed)) for seed in range(10)}) > 5


def test_a_paused_process_stands_at_its_await_and_goes_on_with_what_it_knew() -> None:
    loop, process = new_loop(), Process("zombie")
    loop.add(process)
    steps: list[tuple[str, float]] = []

    async def work() -> None:
        for name in ("one", "two", "three"):
            steps.append((name, loop.time()))
            await asyncio.sleep(1)

    def go_on() -> None:
        process.is_paused = False

    def paused() -> None:
        loop.call_later(60, go_on, context=loop.world.context)

    task = process.context.run(loop.create_task, work())
    process.pause_after(1, paused)
    loop.run_until_complete(task)
    loop.close()
    assert [name for name, _ in steps] == ["one", "two", "three"]
    assert steps[1][1] == 61 and steps[2][1] == 62


def test_a_request_is_executed_though_its_caller_was_killed() -> None:
    loop = new_loop()
    network = Network(loop, random.Random(1))
    caller, server = Process("caller"), Process("server")
    loop.add(caller)
    loop.add(server)
    executed: list[float] = []

    async def ask() -> None:
        await network.request(server, lambda: executed.append(loop.time()), "delete", delay_s=2.0)

    async def world() -> None:
        task = caller.context.run(loop.create_task, ask())
        await asyncio.sleep(1)
        loop.remove(caller)
        task.cancel()
        await asyncio.sleep(9)

    loop.run_until_complete(world())
    assert executed == [2.0]
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def test_a_server_that_is_down_or_paused_is_unavailable() -> None:
    loop = new_loop()
    network, server = Network(loop, random.Random(1)), Process("server")
    loop.add(server)
    server.is_paused = True

    async def ask() -> float:
        with pytest.raises(Unavailable, match="no answer"):
            await network.request(server, lambda: 1, "fetch")
        waited_s = loop.time()
        loop.remove(server)
        with pytest.raises(Unavailable, match="is down"):
            await network.request(server, lambda: 1, "fetch")
        return waited_s

    assert loop.run_until_complete(ask()) == 3.0
    loop.close()
