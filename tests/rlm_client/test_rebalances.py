"""A new assignment begins where its group has committed, whatever was read or asked for before."""

import asyncio
import threading

import pytest

from rlm_client.errors import RemoteTierError
from tests.rlm_client.test_border import TIERED, written
from tests.rlm_client.world import PARTITION, Reader, World, answer_commits, reading
from tiered_reads.values import ReadMode

_END = 21


async def _reassigned(reader: Reader, world: World, committed: int) -> list[int]:
    """Has the partition again; what is given until the end, from its commit on."""
    subscription = reader.subscription
    subscription.unsubscribe()
    subscription.assign_from_user([PARTITION])
    answering = asyncio.create_task(answer_commits(subscription, committed))
    reader.got.clear()
    await reader.take_until(_END)
    answering.cancel()
    return [offset for offset in world.given if committed <= offset <= reader.got[-1]]


@pytest.mark.parametrize("committed", [0, 3, 9, 15])
@pytest.mark.parametrize("read_to", [3, 9, 15])
@pytest.mark.parametrize("mode", TIERED)
async def test_h37_an_assignment_begins_at_its_commit(
    mode: ReadMode, read_to: int, committed: int
) -> None:
    world = written(kafka_start=15, remote_end=_END)
    async with reading(world, mode) as reader:
        await reader.take_until(read_to)
        assert reader.got == [offset for offset in world.given if offset <= reader.got[-1]]
        assert await _reassigned(reader, world, committed) == reader.got
        assert reader.counters.offsets_missed == 0


@pytest.mark.parametrize("mode", TIERED)
async def test_h37_what_a_lost_assignment_was_asking_moves_no_other(mode: ReadMode) -> None:
    """Nobody could answer it for a while; then the border was another one."""
    world = written(kafka_start=15, remote_end=_END)
    async with reading(world, mode) as reader:
        await reader.take_until(9)
        world.away = world.leader_away = 4
        await reader.take(0.01)
        subscription = reader.subscription
        subscription.unsubscribe()
        await asyncio.sleep(0)
        world.trim(_END)
        assert await _reassigned(reader, world, 3) == reader.got
        assert reader.counters.offsets_missed == 0


@pytest.mark.parametrize("mode", TIERED)
async def test_a_refusal_of_what_is_not_read_any_more_is_raised_in_no_call(mode: ReadMode) -> None:
    world = written(kafka_start=15, remote_end=_END)
    async with reading(world, mode) as reader:
        refusal = world.refusal = threading.Event()
        async with asyncio.timeout(60):
            while world.refusal is refusal:
                await reader.take(0.01)
        reader.subscription.unsubscribe()
        refusal.set()
        assert await _reassigned(reader, world, 0) == reader.got


@pytest.mark.parametrize("mode", TIERED)
async def test_a_refusal_is_raised_in_the_call(mode: ReadMode) -> None:
    world = written(kafka_start=15, remote_end=_END)
    world.refusal = threading.Event()
    world.refusal.set()
    async with reading(world, mode) as reader:
        with pytest.raises(RemoteTierError, match="no right"):
            await reader.take_until(_END)
        await reader.take_until(_END)
        assert reader.got == [offset for offset in world.given if offset <= reader.got[-1]]
