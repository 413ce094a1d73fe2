"""Stories of a service, its disks and its stores, in which something breaks and is mended.

Each yields three scrapes: all is well, something is broken, it is mended.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

from rlm.service.certificates import CertificatePath
from rlm.service.gauges import store_gauges
from tests.builders.certificates import Authority
from tests.builders.ledger import PARTITION
from tests.rlm import test_h38_planted_faults as planted
from tests.rlm.alert_values import Scrape, scraped
from tests.rlm.stores.test_routes import HOT
from tests.rlm.stores.test_service_stores import World
from tests.rlm.tasks.test_hole_watch import delete_up_to
from tests.rlm.test_partition_problems import _freeze, _lose_the_copies
from tests.rlm.watched import LIMITS, Watched

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
Story = AsyncIterator[Scrape]
Change = Callable[[Watched], None]


def of(service: Watched) -> Scrape:
    return Scrape(service.metrics().render().decode())


async def calm(path: Path) -> Watched:
    """A service that has copied what there is, past the grace of a start."""
    service = Watched(path)
    service.rig.clock.advance(LIMITS.start_ms + 1)
    service.rig.write_log(0, 100, 250, end=300)
    await service.run_tasks()
    return service


def after(plant: Change, mend: Change, after_ms: int = 0) -> Callable[[Path], Story]:
    """The story of a service in which something is broken for so long."""

    async def story(path: Path) -> Story:
        service = await calm(path)
        yield of(service)
        plant(service)
        await service.pass_time(after_ms)
        yield of(service)
        mend(service)
        await service.pass_time(MINUTE_MS)
        yield of(service)

    return story


def fault(name: str, after_ms: int | None = None) -> Callable[[Path], Story]:
    """One of the planted faults, with segments that are not copied yet."""
    found = planted.FAULTS[name]

    async def story(path: Path) -> Story:
        service = await calm(path)
        yield of(service)
        found.plant(service)
        service.rig.write_log(0, 100, 250, 300, 400, end=450)
        await service.pass_time(found.after_ms if after_ms is None else after_ms)
        yield of(service)
        found.mend(service)
        await service.pass_time(2 * MINUTE_MS)
        yield of(service)

    return story


async def new_hole(path: Path) -> Story:
    service = Watched(path)
    rig = service.rig
    rig.enable(mode="copy", trim=False)
    rig.broker.config["retention.ms"] = "5000"
    rig.write_log(0, 100, 200, 300, end=350)
    rig.remote_start(0)
    store = rig.shelf.stores.copy()
    rig.shelf.stores.clear()
    await service.run_tasks()
    await rig.hole_watch.run_on(await rig.snapshots.take(rig.led))
    whole = of(service).text
    yield Scrape(whole, whole)
    delete_up_to(rig, 200)
    await rig.hole_watch.run_on(await rig.snapshots.take(rig.led))
    yield Scrape(of(service).text, whole)
    rig.shelf.stores.update(store)
    yield Scrape(of(service).text, of(service).text)


async def loss_near(path: Path) -> Story:
    service = Watched(path)
    rig = service.rig
    rig.enable(mode="copy", trim=False)
    rig.broker.config["retention.ms"] = str(DAY_MS)
    rig.write_log(0, 100, 200, end=250)
    planted._refuse_writes(service)
    await service.run_tasks()
    yield of(service)
    rig.clock.advance(DAY_MS - HOUR_MS // 2)
    yield of(service)
    planted._take_writes(service)
    await service.run_tasks()
    yield of(service)


def _unfreeze(service: Watched) -> None:
    snapshots = service.snapshots._snapshots
    snapshots[PARTITION.key] = replace(snapshots[PARTITION.key], frozen=None)


async def frozen(path: Path) -> Story:
    service = await calm(path)
    yield of(service)
    _freeze(service)
    yield of(service)
    _unfreeze(service)
    yield of(service)


async def records_lost(path: Path) -> Story:
    service = await calm(path)
    yield of(service)
    _lose_the_copies(service)
    yield of(service)
    await service.run_tasks()
    yield of(service)


async def store_away(_path: Path) -> Story:
    world = World(["hot"])
    link = world.connections["hot"]

    def shown() -> Scrape:
        return Scrape(scraped(lambda: store_gauges(world.service_stores.statuses())))

    link.problem = None
    yield shown()
    link.problem = "the plugin does not answer"
    yield shown()
    link.problem = None
    yield shown()


async def store_setup(_path: Path) -> Story:
    world = World(["hot"])
    world.topic("orders", days=30)
    world.segment(1, HOT)
    for days in (60, 7, 60):
        world.expire("hot", days=days)
        await world.service_stores.inspect()
        yield Scrape(scraped(lambda: store_gauges(world.service_stores.statuses())))


async def log_dir_low(path: Path) -> Story:
    service = Watched(path, quota_bytes=1 << 20)
    other = service.rig.disk.path.parent / "other.log"
    for size_bytes in (0, 1 << 20, 0):
        other.write_bytes(b"1" * size_bytes)
        await service.disks.measure()
        yield of(service)


async def log_dir_fills(path: Path) -> Story:
    service = Watched(path, quota_bytes=64 << 20)
    other = service.rig.disk.path.parent / "other.log"
    await service.disks.measure()
    yield of(service)
    other.write_bytes(b"1" * (1 << 20))
    service.rig.clock.advance(11 * MINUTE_MS)
    await service.disks.measure()
    yield of(service)
    for _ in range(7):
        service.rig.clock.advance(11 * MINUTE_MS)
        await service.disks.measure()
    yield of(service)


async def certificate_ends(path: Path) -> Story:
    folder = path / "certificates"
    folder.mkdir()
    authority = Authority(folder)
    file = authority.issue("localhost").cert_file
    service = Watched(path, [CertificatePath(path=file, use="of HTTP", is_shown=True)])
    await service.certificates.check()
    yield of(service)
    renewed = file.read_text(encoding="ascii")
    authority.issue("localhost", is_expired=True)
    service.rig.clock.now = 1_700_000_000_000
    await service.certificates.check()
    yield of(service)
    file.write_text(renewed, encoding="ascii")
    await service.certificates.check()
    yield of(service)
