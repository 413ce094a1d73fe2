"""Which store is the cluster's: founded once, never another cluster's, then watched (H11)."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.contracts import RemoteStorageManager, StoreIdentity
from kip405.errors import Unavailable
from kip405.ids import Uuid
from kip405.segments import Layout
from rlm.stores.connection import Memory, StoreConnection, StoreOrigin
from rlmm.settings_records import ClusterRecord, SettingsRecord, StoreRecord
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC
from rsm_plugins.local.manager import LocalRemoteStorageManager
from tests.builders.clock import ManualClock
from tests.builders.ledger import MemorySettings, uuids

ORIGIN = StoreOrigin(plugin="local", uri="file:///store", prefix="p")
_INTERVAL_MS = 3_600_000
LEDGER_ID, SETTINGS_ID = Uuid(b"\x01" * 16), Uuid(b"\x02" * 16)


class MetadataTopics:
    topic_ids = {LEDGER_TOPIC: LEDGER_ID, SETTINGS_TOPIC: SETTINGS_ID}  # noqa: RUF012

    def __init__(self) -> None:
        self.are_read = asyncio.Event()

    async def wait_ready(self) -> None:
        await self.are_read.wait()


class PublishingSettings(MemorySettings):
    """As rlmm's Settings: the leader epoch may be left out."""

    async def publish(self, record: SettingsRecord, leader_epoch: int = -1) -> None:
        await super().publish(record, leader_epoch)


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
        self.topics = MetadataTopics()
        self.new_uuid = uuids()
        self.origins: list[StoreOrigin | Unavailable] = [ORIGIN]

    async def describe(self) -> StoreOrigin:
        found = self.origins.pop() if len(self.origins) > 1 else self.origins[0]
        if isinstance(found, Unavailable):
            raise found
        return found

    async def ask_layouts(self) -> frozenset[Layout]:
        return frozenset({Layout.KAFKA, Layout.BLOCKS})

    def connection(
        self,
        clock: ManualClock | None = None,
        cluster_id: str = "c1",
        *,
        name: str = "default",
        store: RemoteStorageManager | None = None,
        is_first: bool = True,
        may_write: bool = True,
    ) -> StoreConnection:
        return StoreConnection(
            name,
            store or self.store,
            describe=self.describe,
            ask_layouts=self.ask_layouts,
            memory=Memory(
                cluster_id=cluster_id,
                settings=self.settings,
                metadata=self.topics,
                clock=clock or PatientClock(),
                new_uuid=self.new_uuid,
                may_write=may_write,
            ),
            is_first=is_first,
        )


def cluster_record(store_id: Uuid | None) -> ClusterRecord:
    return ClusterRecord(
        cluster_id="c1",
        ledger_topic_id=LEDGER_ID,
        settings_topic_id=SETTINGS_ID,
        default_store_id=store_id,
    )


def stored(store_id: Uuid, *names: str) -> StoreRecord:
    return StoreRecord(
        store_id=store_id, plugin="local", uri="file:///store", prefix="p", names=names
    )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "store")


async def test_the_first_service_founds_the_store_and_writes_it_down(site: Site) -> None:
    connection = site.connection()
    assert connection.problem == "the store was not asked yet"
    store_id = await connection.establish()
    assert not connection.problem
    identity = await site.store.read_identity()
    assert identity is not None
    assert (identity.store_id, identity.cluster_id) == (store_id, "c1")
    assert site.settings.published == [
        cluster_record(None),
        stored(store_id, "default"),
        cluster_record(store_id),
    ]


async def test_h11_services_that_start_at_once_agree_on_one_identity(site: Site) -> None:
    connections = [site.connection() for _ in range(5)]
    ids = await asyncio.gather(*(connection.establish() for connection in connections))
    assert len(set(ids)) == 1
    identity = await site.store.read_identity()
    assert identity is not None and identity.store_id == ids[0]


async def test_a_later_service_takes_what_the_settings_say(site: Site) -> None:
    store_id = await site.connection().establish()
    published = len(site.settings.published)
    assert await site.connection().establish() == store_id
    assert len(site.settings.published) == published


async def test_an_identity_that_is_there_already_is_taken(site: Site) -> None:
    there = StoreIdentity(store_id=Uuid(b"\x09" * 16), cluster_id="c1", created_ms=0)
    await site.store.create_identity(there)
    assert await site.connection().establish() == there.store_id


async def test_h11_another_clusters_store_is_refused_and_left_alone(site: Site) -> None:
    there = StoreIdentity(store_id=Uuid(b"\x09" * 16), cluster_id="c2", created_ms=0)
    await site.store.create_identity(there)
    connection = site.connection(PatientClock(sleeps=3))
    with pytest.raises(asyncio.CancelledError):
        await connection.establish()
    assert connection.problem is not None and "belongs to cluster c2" in connection.problem
    assert site.settings.published == [cluster_record(None)]
    assert await site.store.read_identity() == there


async def test_settings_of_another_cluster_are_refused(site: Site) -> None:
    await site.connection().establish()
    connection = site.connection(PatientClock(sleeps=3), cluster_id="c2")
    with pytest.raises(asyncio.CancelledError):
        await connection.establish()
    assert connection.problem == "the settings topic belongs to cluster c1"


async def test_it_waits_for_settings_and_plugin(site: Site) -> None:
    site.origins = [ORIGIN, Unavailable("no plugin"), Unavailable("no plugin")]
    site.settings.is_ready = False
    clock = PatientClock()
    connection = site.connection(clock)
    establishing = asyncio.ensure_future(connection.establish())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert connection.problem == "the settings were not read to their end yet"
    assert clock.sleeps == 20
    site.settings.is_ready = True
    site.topics.are_read.set()
    await establishing
    assert not connection.problem
    assert clock.sleeps == 18


async def test_h11_a_store_that_is_not_the_one_known_is_a_problem_from_the_start(
    site: Site,
) -> None:
    store_id = await site.connection().establish()
    (site.root / "rlm-store.json").unlink()
    connection = site.connection()
    assert await connection.establish() == store_id
    assert connection.problem == (
        f"the store has no identity, {store_id} was expected; 'default' is the name of that one "
        "at file:///store: bring it back, or give another store a new name"
    )


async def test_h11_a_store_that_changes_or_goes_is_noticed_and_so_is_its_return(
    site: Site,
) -> None:
    connection = site.connection(PatientClock(sleeps=1_000_000))
    await connection.establish()
    watching = asyncio.ensure_future(connection.watch(1_000))
    path = site.root / "rlm-store.json"
    good = path.read_bytes()

    async def noticed(words: str) -> None:
        async with asyncio.timeout(60):
            while words not in (connection.problem or "none"):  # noqa: ASYNC110 - it has no event
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


async def test_a_store_that_came_back_is_noticed_before_the_next_interval(site: Site) -> None:
    """Its clock gives up at the first wait of a whole interval."""
    slept: list[float] = []

    class UntilTheInterval(PatientClock):
        async def sleep_ms(self, duration_ms: float) -> None:
            slept.append(duration_ms)
            if len(slept) == 10:
                away.rename(site.root)
            if duration_ms == _INTERVAL_MS:
                raise asyncio.CancelledError
            await super().sleep_ms(duration_ms)

    connection = site.connection(UntilTheInterval())
    await connection.establish()
    away = site.root.rename(site.root.with_suffix(".away"))
    with pytest.raises(asyncio.CancelledError):
        await connection.watch(_INTERVAL_MS)
    assert not connection.problem
    assert len(slept) == 11
    assert slept[0] < slept[4] and max(slept[:10]) <= 1_200


async def test_h11_a_lost_default_never_founds_a_second_store(site: Site, tmp_path: Path) -> None:
    """Two services start at once: the late `cluster` fact without a store hides the first one's."""
    first = await site.connection().establish()
    await site.settings.publish(cluster_record(None))
    (tmp_path / "other").mkdir()
    elsewhere = LocalRemoteStorageManager(tmp_path / "other")
    other = site.connection(store=elsewhere)  # its plugin points somewhere else
    assert await other.establish() == first
    assert other.is_other
    assert str(other.problem).startswith(f"the store has no identity, {first} was expected")
    assert await elsewhere.read_identity() is None
    assert site.settings.view.cluster == cluster_record(first)


async def test_h06_naming_the_default_store_does_not_name_another_ledger(site: Site) -> None:
    """The ledger was created again by somebody: only a rebuild puts it into the cluster record."""
    site.settings.write(replace(cluster_record(None), ledger_topic_id=Uuid(b"\x99" * 16)))
    await site.connection().establish()
    cluster = site.settings.view.cluster
    assert cluster is not None
    assert cluster.default_store_id is not None
    assert cluster.ledger_topic_id == Uuid(b"\x99" * 16)


async def test_a_new_name_founds_a_store_of_its_own(site: Site, tmp_path: Path) -> None:
    first = await site.connection().establish()
    (tmp_path / "cold").mkdir()
    site.origins = [StoreOrigin(plugin="local", uri="file:///cold", prefix="")]
    cold = site.connection(
        name="cold", store=LocalRemoteStorageManager(tmp_path / "cold"), is_first=False
    )
    second = await cold.establish()
    assert second != first
    assert cold.record is not None and cold.record.names == ("cold",)
    assert site.settings.view.cluster == cluster_record(first)


async def test_another_store_than_the_first_waits_for_the_clusters_record(site: Site) -> None:
    connection = site.connection(PatientClock(sleeps=3), is_first=False)
    with pytest.raises(asyncio.CancelledError):
        await connection.establish()
    assert connection.problem == "the settings do not know the cluster yet"
    assert await site.store.read_identity() is None


async def test_a_renamed_store_is_the_same_and_keeps_its_old_name(site: Site) -> None:
    store_id = await site.connection().establish()
    assert await site.connection(name="hot").establish() == store_id
    assert site.settings.view.stores() == (stored(store_id, "default", "hot"),)
    assert await site.connection().establish() == store_id


async def test_a_store_recorded_before_there_were_names_is_the_default(site: Site) -> None:
    store_id = await site.connection().establish()
    await site.settings.publish(stored(store_id))
    assert await site.connection().establish() == store_id
    assert await site.connection(name="hot").establish() == store_id
    assert site.settings.view.stores() == (stored(store_id, "default", "hot"),)


async def test_h11_an_emptied_store_is_not_founded_again_under_a_new_name(site: Site) -> None:
    store_id = await site.connection().establish()
    (site.root / "rlm-store.json").unlink()
    connection = site.connection(PatientClock(sleeps=3), name="hot")
    with pytest.raises(asyncio.CancelledError):
        await connection.establish()
    assert connection.problem is not None and f"knows it as {store_id}" in connection.problem
    assert await site.store.read_identity() is None


async def test_h11_a_name_given_to_another_store_meanwhile_is_refused(
    site: Site, tmp_path: Path
) -> None:
    """Two services with differing settings found under one name at once: the first one counts."""
    (tmp_path / "other").mkdir()
    elsewhere = LocalRemoteStorageManager(tmp_path / "other")
    await site.settings.publish(cluster_record(None))
    plain = elsewhere.create_identity

    async def overtaken(identity: StoreIdentity) -> StoreIdentity:
        await site.connection().establish()
        return await plain(identity)

    elsewhere.create_identity = overtaken  # type: ignore[method-assign]
    connection = site.connection(store=elsewhere)
    first = await connection.establish()
    assert first == (await site.connection().establish())
    assert connection.is_other


async def test_what_the_plugins_process_says_goes_first(site: Site) -> None:
    said = ["plugin default: it ended with status 2"]
    connection = site.connection()
    connection._plugin_problem = lambda: said[0] if said else None
    await connection.establish()
    assert connection.problem == said[0]
    said.clear()
    assert connection.problem is None


async def test_who_may_not_write_waits_for_a_store_that_others_have_made_known(site: Site) -> None:
    reader = site.connection(may_write=False)
    with pytest.raises(asyncio.CancelledError):
        await reader.establish()
    assert reader.problem == "the settings do not know the cluster yet"
    site.settings.write(cluster_record(None))
    reader = site.connection(may_write=False)
    with pytest.raises(asyncio.CancelledError):
        await reader.establish()
    assert reader.problem and "know no store called 'default' (yet)" in reader.problem
    assert await site.store.read_identity() is None
    assert site.settings.published == []
    store_id = await site.connection().establish()
    published = len(site.settings.published)
    reader = site.connection(may_write=False)
    assert await reader.establish() == store_id
    assert not reader.problem
    assert len(site.settings.published) == published
