"""Where an import ends early, no reader takes that for the end of the partition (H4)."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from kip405.contracts import RemoteStorageManager, StoredObject
from kip405.errors import Corrupt, Invalid, Unavailable
from kip405.ids import PartitionKey
from rlm.download.plan import PartitionPlan
from rlm.download.sources import StoreSource
from rlm.imports.run import BucketImport
from rlm.plans.attachment import Doubt
from rlm.plans.pinterest_import import derived_topic_id
from rlm.remote_log.attached import AttachedLog
from rlm.tasks.attachment import Attachment, Choices, Round
from rsm_plugins.layout.import_stops import ENDED_MEANWHILE, ImportStop, encode_stop, parse_stop
from rsm_plugins.layout.manifest import Manifest
from rsm_plugins.local.manager import LocalRemoteStorageManager
from rsm_plugins.pinterest.local_objects import LocalUploadedObjects
from rsm_plugins.pinterest.manager import ImportingRemoteStorageManager
from rsm_plugins.threads import FileThreads
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.pinterest import (
    CLUSTER,
    LAYOUT,
    PREFIX,
    TOPIC,
    ImportSite,
    TheirBucket,
    upload_all,
)
from tests.builders.store import STORE_ID
from tests.builders.threads import THREADS
from tests.kip405.batch_builder import batch, control_batch, log_of
from tests.rlm.api.attached_site import RECORD

FIRST, SECOND, THIRD = (log_of(base, [40, 60]) for base in (0, 100, 200))
OPEN = batch(100, 10, transactional=True, producer_id=7) + batch(110, 90)
ENDING = control_batch(200, 0, producer_id=7) + batch(201, 99)
Spoil = Callable[[TheirBucket], object]


def site_with(folder: Path, *logs: bytes) -> ImportSite:
    site = ImportSite(folder)
    upload_all(site.bucket, *logs)
    return site


def attachment_of(log: AttachedLog, *accepted: str) -> Attachment:
    return Attachment(
        cluster_id=CLUSTER_ID,
        log=log,
        choices=Choices(accepted=frozenset(accepted)),
        report=lambda _store_id, _progress: None,
    )


async def attached(
    site: ImportSite, *accepted: str, store: Any = None
) -> tuple[AttachedLog, Round]:
    """What an attached reader makes of our store."""
    log = AttachedLog()
    made = attachment_of(log, *accepted)
    return log, await made.read({STORE_ID: store or site.store()}, [RECORD])


async def doubts(site: ImportSite, partition: int = 0) -> tuple[Doubt, ...]:
    log, _ = await attached(site)
    return log.doubts(PartitionKey(derived_topic_id(CLUSTER, TOPIC), partition))


async def stored(site: ImportSite, *accepted: str) -> list[PartitionPlan]:
    """What `rlm download` and `rlm restore` make of it."""
    return list(await StoreSource(site.store(), threads=THREADS, accepted=accepted).plans(TOPIC, 0))


def growing(site: ImportSite) -> BucketImport:
    work = site.work()
    work._choices = replace(work._choices, is_growing=True)
    return work


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda bucket: bucket.file(100).write_bytes(SECOND[:-5]), "batch cut short"),
        (lambda bucket: bucket.put(100, log_of(100, [40])), "no log has the offsets 140 to 199"),
        (lambda bucket: bucket.put(100, OPEN + batch(200, 1)), "differ from offset 200 on: they"),
    ],
)
async def test_h04_what_follows_a_log_that_stopped_the_import_is_refused(
    tmp_path: Path, spoil: Spoil, why: str
) -> None:
    site = site_with(tmp_path, FIRST, SECOND, THIRD)
    spoil(site.bucket)
    await site.run()
    (doubt,) = await doubts(site)
    assert (doubt.start, "from 100 on are doubtful" in doubt.text) == (100, True)
    assert why in doubt.why
    with pytest.raises(Invalid, match=f"from 100 on are doubtful: .*{why}.*--accept-history"):
        await stored(site)
    (plan,) = await stored(site, f"{TOPIC}-0")
    assert [one.start_offset for one in plan.pieces] == [0]
    log, _ = await attached(site, f"{TOPIC}-0")
    assert not log.doubts(PartitionKey(derived_topic_id(CLUSTER, TOPIC), 0))
    site.bucket.put(100, SECOND)
    await site.run()
    assert await doubts(site) == ()
    (plan,) = await stored(site)
    assert plan.next_offset == 300
    whole = site_with(_folder(tmp_path, "whole"), FIRST, SECOND, THIRD)
    await whole.run()
    assert site.content() == whole.content()


def _folder(path: Path, name: str) -> Path:
    (path / name).mkdir()
    return path / name


async def test_h04_a_refused_partition_is_there_and_doubtful_from_its_first_offset_on(
    tmp_path: Path,
) -> None:
    site = site_with(tmp_path, SECOND)
    other = TheirBucket(site.bucket.root, partition=1)
    upload_all(other, SECOND, THIRD)
    (site.bucket.folder / "offset.wm").unlink()
    await site.run()
    (doubt,) = await doubts(site)
    assert "it has no offset.wm" in doubt.why
    assert await doubts(site, 1) == ()
    with pytest.raises(Invalid, match=r"it has no offset\.wm"):
        await stored(site)


async def test_h04_a_partition_that_is_refused_later_keeps_what_it_has(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST, SECOND)
    await site.run()
    upload_all(site.bucket, THIRD)
    site.bucket.put(100, log_of(100, [100, 1]))
    await site.run()
    (doubt,) = await doubts(site)
    assert (doubt.start, "it was replaced" in doubt.why) == (200, True)


async def test_a_log_that_overlaps_ours_refuses_nothing_that_was_imported(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST, SECOND)
    await site.run()
    site.bucket.put(50, log_of(50, [50]))
    await site.run()
    (doubt,) = await doubts(site)
    assert (doubt.start, "the logs at 0 and 50 differ from offset 50 on" in doubt.why) == (
        200,
        True,
    )


async def test_h04_segments_that_wait_for_their_transaction_are_no_end(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST, OPEN)
    (done,) = await site.run()
    assert done.held_back == 1
    (doubt,) = await doubts(site)
    assert doubt.start == 100
    assert "the transaction that began at 100" in doubt.why
    upload_all(site.bucket, ENDING)
    await site.run()
    assert await doubts(site) == ()


async def test_of_a_bucket_that_grows_the_end_of_what_is_there_is_an_end(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST, OPEN)
    (done,) = await site.run(growing(site))
    assert done.held_back == 1
    assert await doubts(site) == ()
    upload_all(site.bucket, ENDING)
    site.bucket.file(200).write_bytes(ENDING[:-1])
    await site.run(growing(site))
    (doubt,) = await doubts(site)
    assert (doubt.start, "cut short" in doubt.why) == (100, True)


class Killed(Exception):
    """Where an import was killed."""


async def test_h04_what_a_killed_import_has_left_out_is_refused(tmp_path: Path) -> None:
    site = site_with(tmp_path, FIRST, SECOND, THIRD)
    seen: list[tuple[Doubt, ...]] = []

    class Killing(LocalUploadedObjects):
        async def read_range(self, name: str, wanted: Any) -> bytes:
            if name.endswith("200.log"):
                seen.append(await doubts(site))
                raise Killed
            return await super().read_range(name, wanted)

    uploaded = Killing(site.bucket.root, PREFIX, FileThreads())
    with pytest.raises(Killed):
        await site.run(site.work(ImportingRemoteStorageManager(site.own(), LAYOUT, uploaded)))
    ((during,),) = seen
    assert (during.start, "is under way here, or was interrupted" in during.why) == (0, True)
    assert await doubts(site) == (during,)
    await site.run()
    assert await doubts(site) == ()


def _removed(site: ImportSite, base_offset: int) -> None:
    """What an operator does whose manifest of a segment is damaged: it is imported again then."""
    (manifest,) = site.root.rglob(f"{base_offset:020d}-*.rsm-manifest")
    for file in site.root.rglob(f"{manifest.name.removesuffix('.rsm-manifest')}.*"):
        file.unlink()


async def test_h04_a_stop_before_segments_of_ours_is_where_the_first_one_is_missing(
    tmp_path: Path,
) -> None:
    site = site_with(tmp_path, FIRST, SECOND, THIRD)
    await site.run()
    _removed(site, 100)
    site.bucket.file(100).write_bytes(SECOND[:-5])
    await site.run()
    (doubt,) = await doubts(site)
    assert (doubt.start, "batch cut short" in doubt.why) == (100, True)
    site.bucket.watermark(400)
    await site.run()
    (doubt,) = await doubts(site)
    assert (doubt.start, "offset.wm names 400" in doubt.why) == (100, True)
    site.bucket.watermark(200)
    site.bucket.put(100, SECOND)
    seen: list[tuple[Doubt, ...]] = []

    class Seeing(LocalUploadedObjects):
        async def read_range(self, name: str, wanted: Any) -> bytes:
            seen.append(await doubts(site))
            return await super().read_range(name, wanted)

    uploaded = Seeing(site.bucket.root, PREFIX, FileThreads())
    await site.run(site.work(ImportingRemoteStorageManager(site.own(), LAYOUT, uploaded)))
    assert {one.start for one in seen[0]} == {100}
    assert await doubts(site) == ()


async def test_h04_what_lies_above_their_watermark_is_no_end_unless_their_uploader_goes_on(
    tmp_path: Path,
) -> None:
    site = site_with(tmp_path, FIRST, SECOND)
    site.bucket.put(200, THIRD)
    (done,) = await site.run()
    assert (done.segments, done.stopped) == (2, None)
    (doubt,) = await doubts(site)
    assert (doubt.start, "above their offset.wm" in doubt.why) == (200, True)
    await site.run(growing(site))
    assert await doubts(site) == ()
    await site.run()
    assert [one.start for one in await doubts(site)] == [200]
    site.bucket.watermark(200)
    await site.run()
    assert await doubts(site) == ()


class Late:
    """Our store, as a listing shows it that was made before an import ended."""

    def __init__(self, own: LocalRemoteStorageManager, listed: list[StoredObject]) -> None:
        self._own = own
        self._listed = listed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    async def list_objects(self, *_: Any) -> AsyncIterator[StoredObject]:
        for one in self._listed:
            yield one


async def test_h04_a_stop_that_has_gone_since_it_was_listed_is_none_the_less_one(
    tmp_path: Path,
) -> None:
    """What was imported before it went may not be in the listing."""
    site = site_with(tmp_path, FIRST, SECOND)
    site.bucket.file(100).write_bytes(SECOND[:-1])
    await site.run()
    before = [one async for one in site.own().list_objects(CLUSTER_ID)]
    site.bucket.put(100, SECOND)
    await site.run()
    late = Late(site.own(), before)
    log, found = await attached(site, store=late)
    (doubt,) = log.doubts(PartitionKey(derived_topic_id(CLUSTER, TOPIC), 0))
    assert (doubt.start, doubt.why, found.unreadable) == (100, ENDED_MEANWHILE, 1)
    source = StoreSource(cast("RemoteStorageManager", late), threads=THREADS)
    with pytest.raises(Unavailable, match=ENDED_MEANWHILE):
        await source.plans(TOPIC, 0)


async def test_a_manifest_of_ours_that_cannot_be_used_refuses_its_partition_alone(
    tmp_path: Path,
) -> None:
    site = site_with(tmp_path, FIRST)
    other = TheirBucket(site.bucket.root, partition=1)
    upload_all(other, FIRST)
    await site.run()
    (damaged,) = (one for one in site.root.rglob("*.rsm-manifest") if one.parent.name == "0")
    whole = damaged.read_bytes()
    damaged.write_bytes(b"{}")
    for bucket in (site.bucket, other):
        upload_all(bucket, SECOND)
    (done,) = await site.run()
    assert (done.plan.partition.partition, done.segments) == (1, 1)
    refused = site.planned[-2].refused or ""
    assert damaged.name in refused and "have it back, or remove it" in refused
    assert await doubts(site, 1) == ()
    damaged.write_bytes(whole)
    mended, _ = await site.run()
    assert mended.segments == 1
    assert await doubts(site) == ()


@pytest.mark.parametrize(("listings", "taken"), [(1, 2), (2, 1)])
async def test_a_segment_that_is_uploaded_while_their_bucket_is_listed_refuses_nothing(
    tmp_path: Path, listings: int, taken: int
) -> None:
    """The watermark then names a segment that the listing does not have."""
    site = site_with(tmp_path, FIRST)
    made: list[str] = []

    class Growing(LocalUploadedObjects):
        async def listed(self, folder: str) -> AsyncIterator[StoredObject]:
            found = [one async for one in super().listed(folder)]
            made.append(folder)
            if len(made) == listings:
                upload_all(site.bucket, SECOND)
            for one in found:
                yield one

    uploaded = Growing(site.bucket.root, PREFIX, FileThreads())
    store = ImportingRemoteStorageManager(site.own(), LAYOUT, uploaded)
    work = site.work(store, topics=[TOPIC])
    work._choices = replace(work._choices, partition=0)
    (done,) = await site.run(work)
    assert (done.segments, done.stopped) == (taken, None)


def test_a_stop_is_no_manifest_of_a_segment() -> None:
    """So an earlier version, too, knows nothing of what follows."""
    stop = ImportStop(partition=PARTITION, start_offset=7, why="a reason")
    data = encode_stop(stop)
    assert data.decode() == (
        f'{{"v":1,"kind":"import-stop","topic":"{PARTITION.topic}",'
        f'"topic_id":"{PARTITION.topic_id}","partition":{PARTITION.partition},'
        '"start_offset":7,"why":"a reason"}'
    )
    assert stop.locator(CLUSTER_ID, STORE_ID).segment_id.id.raw[:8] == b"rlm-stop"
    assert parse_stop(data, "it") == stop
    with pytest.raises(Corrupt, match="not an object of kind 'segment'"):
        Manifest.parse(data)
    for other in (b"", b"[]", b"{}", b'{"v":1,"kind":"segment"}'):
        assert parse_stop(other, "it") is None
    for damaged in (data.replace(b'"v":1', b'"v":2'), data.replace(b'"why"', b'"how"')):
        with pytest.raises(Corrupt, match="it cannot be used"):
            parse_stop(damaged, "it")
