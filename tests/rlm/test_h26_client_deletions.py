"""The remote log start follows a client's DeleteRecords, or the client has to ask again (H26)."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from structlog.testing import capture_logs

from kip405.errors import Fenced, Unavailable
from kip405.ids import Uuid
from rlm.remote_log.client_deletions import ClientDeletions
from rlm.remote_log.tier import TierPartition
from rlmm.publisher import OutcomeUnknown
from rlmm.settings_records import FreezeRecord, StartRecord
from tests.builders.ledger import PARTITION
from tests.builders.rig import NODE_ID, Rig
from tests.rlm.tier_site import BY_NAME, Site, site

__all__ = ["site"]

KEY = PARTITION.key


class World:
    """The tier of [0, 250) remote, records up to 300, and a client's deletions."""

    def __init__(self, site: Site, tasks: asyncio.TaskGroup) -> None:
        self.site, self.rig = site, site.rig
        self.deletions = ClientDeletions(
            node_id=NODE_ID,
            settings=self.rig.settings,
            ledger=self.rig.ledger,
            leadership=site.snapshots,
            starts=self.rig.starts,
            tasks=tasks,
        )
        self.rig.settings.published.clear()

    async def view(self) -> TierPartition:
        found = await self.site.barrier()
        assert found is not None
        return found

    async def raise_to(self, offset: int) -> int:
        return await self.deletions.raise_start(await self.view(), offset)

    @property
    def start(self) -> int | None:
        return self.rig.settings.view.remote_log_start(KEY)


@pytest.fixture
async def world(site: Site) -> AsyncIterator[World]:
    await site.leadership.refresh()
    async with asyncio.TaskGroup() as tasks:
        yield World(site, tasks)


def freeze(rig: Rig, *stopped: str, topic_id: Uuid | None = PARTITION.topic_id) -> None:
    rig.settings.write(FreezeRecord(topic_id=topic_id, stopped=stopped, by="ops", why="audit"))


async def test_h26_the_start_moves_and_is_seen_at_once(world: World) -> None:
    assert await world.raise_to(120) == 120
    adopted = world.rig.settings.view.get(f"start/{KEY}")
    assert adopted is not None and isinstance(adopted.record, StartRecord)
    assert adopted.record.cause == "delete-records"
    assert adopted.record.decided_epoch == world.rig.broker.partition.leader_epoch
    seen = world.site.tier.partition(BY_NAME, 0)
    assert seen is not None and seen.remote_log_start_offset == 120


async def test_h26_the_same_again_changes_nothing(world: World) -> None:
    assert await world.raise_to(120) == 120
    written = world.rig.settings.view.next_offset
    assert await world.raise_to(120) == 120
    assert await world.raise_to(50) == 120
    assert world.rig.settings.view.next_offset == written


async def test_h10_a_raise_without_an_answer_is_finished_by_the_next(world: World) -> None:
    world.rig.settings.loses_acks = True
    with pytest.raises(OutcomeUnknown):
        await world.raise_to(120)
    assert world.start == 0
    world.rig.settings.loses_acks = False
    world.rig.settings.land()
    written = world.rig.settings.view.next_offset
    assert await world.raise_to(120) == 120
    assert world.rig.settings.view.next_offset == written


@pytest.mark.parametrize("topic_id", [None, PARTITION.topic_id], ids=["all topics", "the topic"])
async def test_h26_a_freeze_of_deletions_refuses(world: World, topic_id: Uuid | None) -> None:
    view = await world.view()
    freeze(world.rig, "trim", "sweep", topic_id=topic_id)
    assert world.deletions.refusal(view) is None
    freeze(world.rig, "delete", topic_id=topic_id)
    refused = world.deletions.refusal(view)
    assert refused is not None and refused == "frozen by command: ops: audit"


async def test_h26_a_freeze_of_another_topic_does_not_matter(world: World) -> None:
    freeze(world.rig, "delete", topic_id=Uuid(b"\x11" * 16))
    assert world.deletions.refusal(await world.view()) is None


async def test_h04_a_frozen_partition_refuses(world: World) -> None:
    """The log came back shorter than what was copied of it."""
    world.rig.broker.ends_at(200)
    refused = world.deletions.refusal(await world.view())
    assert refused is not None and "rlm status" in refused


@pytest.mark.parametrize("what", ["settings", "ledger"])
async def test_h06_what_stops_deletions_refuses(world: World, what: str) -> None:
    view = await world.view()
    log = world.rig.settings if what == "settings" else world.rig.ledger
    log.problem = "the topic was created again"
    assert world.deletions.refusal(view) == "the topic was created again"
    with pytest.raises(Fenced, match="created again"):
        await world.deletions.raise_start(view, 120)
    assert world.start == 0


async def test_h26_a_freeze_that_came_after_the_broker_had_deleted_is_obeyed(world: World) -> None:
    """It is known only once the settings were read past a barrier."""
    view = await world.view()
    world.rig.settings.lags = True
    freeze(world.rig, "delete")
    assert world.deletions.refusal(view) is None
    with pytest.raises(Fenced, match="frozen by command: ops"):
        await world.deletions.raise_start(view, 120)
    assert world.start == 0


def _elected_elsewhere(rig: Rig) -> None:
    rig.broker.elect(NODE_ID + 1, 1)


def _elected_again(rig: Rig) -> None:
    rig.broker.elect(NODE_ID, 2)


def _recreated(rig: Rig) -> None:
    rig.broker.topic_id = Uuid(b"\x22" * 16)


@pytest.mark.parametrize("change", [_elected_elsewhere, _elected_again, _recreated])
async def test_h05_under_another_leadership_nothing_moves(
    world: World, change: Callable[[Rig], None]
) -> None:
    view = await world.view()
    change(world.rig)
    with pytest.raises(Fenced):
        await world.deletions.raise_start(view, 120)
    assert world.start == 0


class Held:
    """The broker's next answer about leadership is on its way; `asked` is set each time."""

    def __init__(self, rig: Rig) -> None:
        self.release = rig.broker.held["topic"] = asyncio.Event()
        self.asked = asyncio.Event()
        self.count = 0
        rig.broker.after_answer = self._answered

    def _answered(self, question: str) -> None:
        if question == "topic":
            self.count += 1
            self.asked.set()


async def test_h26_a_client_that_goes_away_does_not_stop_a_raise(world: World) -> None:
    view = await world.view()
    held, published = Held(world.rig), asyncio.Event()
    world.rig.settings.after_publish = published.set
    client = asyncio.create_task(world.deletions.raise_start(view, 120))
    await held.asked.wait()
    client.cancel()
    with pytest.raises(asyncio.CancelledError):
        await client
    assert world.start == 0
    held.release.set()
    async with asyncio.timeout(60):
        await published.wait()
    assert world.start == 120


async def test_h02_one_raise_of_a_partition_at_a_time(world: World) -> None:
    """Of two at once the lower start could be the last record, which compaction keeps."""
    view = await world.view()
    held = Held(world.rig)
    higher = asyncio.create_task(world.deletions.raise_start(view, 150))
    await held.asked.wait()
    lower = asyncio.create_task(world.deletions.raise_start(view, 120))
    for _ in range(20):
        await asyncio.sleep(0)
    assert held.count == 1
    held.release.set()
    assert (await higher, await lower, world.start) == (150, 150, 150)
    starts = [one for one in world.rig.settings.published if isinstance(one, StartRecord)]
    assert [one.remote_log_start_offset for one in starts] == [150]


async def test_h26_a_raise_has_a_line_in_the_audit_log(world: World) -> None:
    await world.raise_to(120)
    audit = world.rig.audit
    assert (audit.starts, audit.start_causes) == ([120], ["delete-records"])


async def test_h26_a_bug_ends_one_request_and_not_the_service(world: World) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    view = await world.view()
    world.rig.settings.on_barrier = broken
    with capture_logs() as logs, pytest.raises(Exception, match="ZeroDivisionError"):
        await world.deletions.raise_start(view, 120)
    assert [one["log_level"] for one in logs] == ["error"]


async def test_unavailable_settings_are_an_error_of_the_call(world: World) -> None:
    def away() -> None:
        raise Unavailable("no barrier")

    view = await world.view()
    world.rig.settings.on_barrier = away
    with pytest.raises(Unavailable, match="no barrier"):
        await world.deletions.raise_start(view, 120)
