"""Which store is the cluster's: founded once, never another cluster's, then watched (H11)."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from kip405.contracts import StoreIdentity
from kip405.errors import Unavailable
from kip405.ids import Uuid
from rlm.store_link import StoreLink, StoreOrigin
from rlmm.fact_log import FactLog
from rlmm.facts import ClusterFact, Fact, StoreFact
from rlmm.settings import Settings
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from rsm_plugins.local import LocalRemoteStorageManager
from tests.builders.clock import ManualClock
from tests.builders.ledger import MemorySettings, uuids

ORIGIN = StoreOrigin(plugin="local", uri="file:///store", prefix="p")
LEDGER_ID, SETTINGS_ID = Uuid(b"\x01" * 16), Uuid(b"\x02" * 16)


class FactTopics:
    topic_ids = {LEDGER_TOPIC: LEDGER_ID, SETTINGS_TOPIC: SETTINGS_ID}  # noqa: RUF012


class PublishingSettings(MemorySettings):
    """As rlmm's Settings: the leader epoch may be left out."""

    async def publish(self, fact: Fact, leader_epoch: int = -1) -> None:
        await super().publish(fact, leader_epoch)


class PatientClock(ManualClock):
    """Gives up, as a cancelled service, after so many sleeps; `on_sleep` runs before each."""

    def __init__(self, sleeps: int = 20) -> None:
        super().__init__()
        self.sleeps = sleeps

    async def sleep_ms(self, duration_ms: float) -> None:
        self.sleeps -= 1
        if self.sleeps < 0:
            raise asyncio.CancelledError
        await asyncio.sleep(0)
        await super().sleep_ms(duration_ms)


class Site:
    """One cluster's settings and one store's directory; `link` is another service each time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.root.mkdir()
        self.store = LocalRemoteStorageManager(root)
        self.settings = PublishingSettings()
        self.new_uuid = uuids()
        self.origins: list[StoreOrigin | Unavailable] = [ORIGIN]

    async def describe(self) -> StoreOrigin:
        found = self.origins.pop() if len(self.origins) > 1 else self.origins[0]
        if isinstance(found, Unavailable):
            raise found
        return found

    def link(self, clock: ManualClock | None = None, cluster_id: str = "c1") -> StoreLink:
        return StoreLink(
            store=self.store,
            describe=self.describe,
            cluster_id=cluster_id,
            settings=cast(Settings, self.settings),
            facts=cast(FactLog, FactTopics()),
            clock=clock or PatientClock(),
            new_uuid=self.new_uuid,
        )


def cluster_fact(store_id: Uuid | None) -> ClusterFact:
    return ClusterFact(
        cluster_id="c1",
        ledger_topic_id=LEDGER_ID,
        settings_topic_id=SETTINGS_ID,
        default_store_id=store_id,
    )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "store")


async def test_the_first_service_founds_the_store_and_writes_it_down(site: Site) -> None:
    link = site.link()
    assert link.problem == "the store was not asked yet"
    store_id = await link.establish()
    assert not link.problem
    identity = await site.store.read_identity()
    assert identity is not None
    assert (identity.store_id, identity.cluster_id) == (store_id, "c1")
    assert site.settings.published == [
        cluster_fact(None),
        StoreFact(store_id=store_id, plugin="local", uri="file:///store", prefix="p"),
        cluster_fact(store_id),
    ]


async def test_h11_services_that_start_at_once_agree_on_one_identity(site: Site) -> None:
    links = [site.link() for _ in range(5)]
    ids = await asyncio.gather(*(link.establish() for link in links))
    assert len(set(ids)) == 1
    identity = await site.store.read_identity()
    assert identity is not None and identity.store_id == ids[0]


async def test_a_later_service_takes_what_the_settings_say(site: Site) -> None:
    store_id = await site.link().establish()
    published = len(site.settings.published)
    assert await site.link().establish() == store_id
    assert len(site.settings.published) == published


async def test_an_identity_that_is_there_already_is_taken(site: Site) -> None:
    there = StoreIdentity(store_id=Uuid(b"\x09" * 16), cluster_id="c1", created_ms=0)
    await site.store.create_identity(there)
    assert await site.link().establish() == there.store_id


async def test_h11_another_clusters_store_is_refused_and_left_alone(site: Site) -> None:
    there = StoreIdentity(store_id=Uuid(b"\x09" * 16), cluster_id="c2", created_ms=0)
    await site.store.create_identity(there)
    link = site.link(PatientClock(sleeps=3))
    with pytest.raises(asyncio.CancelledError):
        await link.establish()
    assert link.problem is not None and "belongs to cluster c2" in link.problem
    assert site.settings.published == [cluster_fact(None)]
    assert await site.store.read_identity() == there


async def test_settings_of_another_cluster_are_refused(site: Site) -> None:
    await site.link().establish()
    link = site.link(PatientClock(sleeps=3), cluster_id="c2")
    with pytest.raises(asyncio.CancelledError):
        await link.establish()
    assert link.problem == "the settings topic belongs to cluster c1"


async def test_it_waits_for_settings_and_plugin(site: Site) -> None:
    site.origins = [ORIGIN, Unavailable("no plugin"), Unavailable("no plugin")]
    site.settings.is_ready = False
    clock = PatientClock()
    link = site.link(clock)
    establishing = asyncio.ensure_future(link.establish())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert link.problem == "the settings were not read to their end yet"
    site.settings.is_ready = True
    await establishing
    assert not link.problem
    assert clock.sleeps < 18


async def test_h11_a_store_that_is_not_the_one_known_is_a_problem_from_the_start(
    site: Site,
) -> None:
    store_id = await site.link().establish()
    (site.root / "rlm-store.json").unlink()
    link = site.link()
    assert await link.establish() == store_id
    assert link.problem == f"the store has no identity, {store_id} was expected"


async def test_h11_a_store_that_changes_or_goes_is_noticed_and_so_is_its_return(
    site: Site,
) -> None:
    link = site.link(PatientClock(sleeps=1_000_000))
    store_id = await link.establish()
    watching = asyncio.ensure_future(link.watch(store_id, 1_000))
    path = site.root / "rlm-store.json"
    good = path.read_bytes()

    async def noticed(words: str) -> None:
        async with asyncio.timeout(5):
            while words not in (link.problem or "none"):  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.001)

    path.unlink()
    await noticed("has no identity")
    other = StoreIdentity(store_id=Uuid(b"\x09" * 16), cluster_id="c1", created_ms=0)
    await site.store.create_identity(other)
    await noticed(f"serves store {other.store_id}")
    path.write_bytes(b"{")
    await noticed("rlm-store.json")
    away = site.root.rename(site.root.with_suffix(".away"))
    await noticed("it is away")
    away.rename(site.root)
    path.write_bytes(good)
    await noticed("none")
    watching.cancel()
    await asyncio.wait([watching])


async def test_h11_a_lost_default_never_founds_a_second_store(site: Site, tmp_path: Path) -> None:
    """Two services start at once: the late `cluster` fact without a store hides the first one's."""
    first = await site.link().establish()
    await site.settings.publish(cluster_fact(None))
    elsewhere = LocalRemoteStorageManager(tmp_path / "other")
    (tmp_path / "other").mkdir()
    other = site.link(PatientClock(sleeps=3))
    other._store = elsewhere  # its plugin points somewhere else
    with pytest.raises(asyncio.CancelledError):
        await other.establish()
    assert other.problem is not None and str(first) in other.problem
    assert await elsewhere.read_identity() is None
    assert await site.link().establish() == first
