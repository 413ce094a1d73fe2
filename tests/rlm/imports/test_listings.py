"""A reader that lists our store while an import writes there finds nothing that is half there (H4).

The listings here have pages: what happens between two of them may be in neither.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from kip405.contracts import RemoteStorageManager, StoredObject
from kip405.errors import Unavailable
from kip405.ids import PartitionKey, Uuid
from rlm.download.sources import StoreSource
from rlm.imports.run import BucketImport
from rlm.plans.pinterest_import import derived_topic_id
from rlm.remote_log.attached import AttachedLog
from rlm.tasks.settled_listing import MOST_ADDED, UNSETTLED
from rsm_plugins.pinterest.local_objects import LocalUploadedObjects
from rsm_plugins.pinterest.manager import ImportingRemoteStorageManager
from rsm_plugins.threads import FileThreads
from tests.builders.pinterest import CLUSTER, LAYOUT, PREFIX, TOPIC, ImportSite, upload_all
from tests.builders.store import STORE_ID
from tests.builders.threads import THREADS
from tests.kip405.batch_builder import log_of
from tests.rlm.api.attached_site import RECORD
from tests.rlm.imports.test_stops import Killed, attached, attachment_of
from tests.rlm.imports.uploads import site_with

KEY = PartitionKey(derived_topic_id(CLUSTER, TOPIC), 0)
Step = tuple[Callable[[str], bool], Callable[[], Awaitable[Any]]]


class InPieces:
    """Our store, whose listings are read in two pieces, as pages of S3 and folders are: first the
    names that the step says, then something happens, then the others. Each listing has its step.
    """

    def __init__(self, site: ImportSite, steps: Iterable[Step]) -> None:
        self._own = site.own()
        self._steps = iter(steps)
        self.listings = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    async def list_objects(self, *given: Any) -> AsyncIterator[StoredObject]:
        self.listings += 1
        is_first, happens = next(self._steps, (is_any, nothing))
        async for one in self._own.list_objects(*given):
            if is_first(one.name.rpartition("/")[2]):
                yield one
        await happens()
        async for one in self._own.list_objects(*given):
            if not is_first(one.name.rpartition("/")[2]):
                yield one


def is_any(_file: str) -> bool:
    return True


def below(offset: int) -> Callable[[str], bool]:
    return lambda file: file < f"{offset:020d}"


def is_stop(file: str) -> bool:
    return f"-{Uuid(b'rlm-stop' + bytes(8))}"[:10] in file


async def nothing() -> None: ...


def overlapping(folder: Path) -> ImportSite:
    """Two segments are imported. A log that begins in the first one is next, and another one."""
    return site_with(folder, log_of(0, [50, 10]), log_of(60, [40]))


REACHING = log_of(50, [10, 40, 50])


def upload_one(site: ImportSite) -> None:
    upload_all(site.bucket, REACHING)
    site.bucket.watermark(60)


def upload_more(site: ImportSite) -> None:
    upload_all(site.bucket, REACHING, log_of(150, [50]))


def served(log: AttachedLog) -> tuple[list[int], list[str]]:
    """The segments that an attached reader has, and what it refuses."""
    ledger = log.state.ledgers[KEY]
    found = sorted(one.metadata.start_offset for one in ledger.entries.values())
    return found, [one.why for one in log.doubts(KEY)]


async def starts(site: ImportSite, store: Any) -> tuple[list[int], list[str]]:
    log, _ = await attached(site, store=store)
    return served(log)


async def test_h04_what_is_imported_behind_the_page_of_a_listing_is_not_passed_over(
    tmp_path: Path,
) -> None:
    """Its stop is gone too, and segments above it are there: readers would take it for a gap."""
    site = overlapping(tmp_path)
    await site.run()

    async def imported() -> None:
        upload_more(site)
        await site.run()

    assert await starts(site, InPieces(site, [(below(100), imported)])) == ([0, 50, 60, 150], [])


async def test_h04_a_download_has_it_too(tmp_path: Path) -> None:
    site = overlapping(tmp_path)
    await site.run()

    async def imported() -> None:
        upload_more(site)
        await site.run()

    store = cast("RemoteStorageManager", InPieces(site, [(below(100), imported)]))
    (plan,) = await StoreSource(store, threads=THREADS).plans(TOPIC, 0)
    found = [(one.start_offset, one.next_offset) for one in plan.pieces]
    assert found == [(0, 60), (60, 150), (150, 200)]


def _killed(site: ImportSite, base_offset: int, **choices: Any) -> BucketImport:
    """An import that ends when it is to read this log."""
    objects = Killing(site, base_offset)
    return site.work(ImportingRemoteStorageManager(site.own(), LAYOUT, objects), **choices)


class Killing(LocalUploadedObjects):
    def __init__(self, site: ImportSite, base_offset: int) -> None:
        super().__init__(site.bucket.root, PREFIX, FileThreads())
        self._last = f"{base_offset:020d}.log"

    async def read_range(self, name: str, wanted: Any) -> bytes:
        if name.endswith(self._last):
            raise Killed
        return await super().read_range(name, wanted)


async def test_h04_a_stop_that_comes_and_goes_behind_pages_hides_no_half_of_an_import(
    tmp_path: Path,
) -> None:
    """In the first listing it is not there yet, in the second one not any more."""
    site = overlapping(tmp_path)
    await site.run()

    async def begun() -> None:
        upload_more(site)
        with pytest.raises(Killed):
            await site.run(_killed(site, 150))

    steps: list[Step] = [(is_stop, begun), (lambda file: not is_stop(file), site.run)]
    assert await starts(site, InPieces(site, steps)) == ([0, 50, 60, 150], [])


async def test_h04_a_stop_that_has_gone_since_the_last_round_is_a_reason_to_list_again(
    tmp_path: Path,
) -> None:
    site = overlapping(tmp_path)
    await site.run()
    upload_one(site)
    with pytest.raises(Killed):
        await site.run(_killed(site, 50))
    log = AttachedLog()
    attachment = attachment_of(log)
    await attachment.read({STORE_ID: site.own()}, [RECORD])
    assert [one.start for one in log.doubts(KEY)] == [100]
    store = InPieces(site, [(below(100), site.run)])
    await attachment.read({STORE_ID: cast("RemoteStorageManager", store)}, [RECORD])
    assert served(log) == ([0, 50, 60], [])


async def test_h04_what_lies_below_a_new_stop_is_listed_again(tmp_path: Path) -> None:
    """Its own segments may have been missed, and below it readers would find a gap."""
    site = overlapping(tmp_path)
    await site.run()
    log = AttachedLog()
    attachment = attachment_of(log)
    await attachment.read({STORE_ID: site.own()}, [RECORD])

    async def imported() -> None:
        upload_more(site)
        upload_all(site.bucket, log_of(200, [50]))
        site.bucket.file(200).write_bytes(log_of(200, [50])[:-1])
        await site.run()

    store = cast("RemoteStorageManager", InPieces(site, [(below(200), imported)]))
    await attachment.read({STORE_ID: store}, [RECORD])
    (doubt,) = log.doubts(KEY)
    assert (served(log)[0], doubt.start) == ([0, 50, 60, 150], 200)


async def test_h04_what_a_round_that_failed_has_read_is_listed_again(tmp_path: Path) -> None:
    site = overlapping(tmp_path)
    await site.run()

    async def away() -> None:
        raise Unavailable("the store is away")

    async def imported() -> None:
        upload_one(site)
        await site.run()

    steps = [(is_any, nothing), (is_any, away), (below(100), imported)]
    store = cast("RemoteStorageManager", InPieces(site, steps))
    log = AttachedLog()
    attachment = attachment_of(log)
    with pytest.raises(Unavailable):
        await attachment.read({STORE_ID: store}, [RECORD])
    await attachment.read({STORE_ID: store}, [RECORD])
    assert served(log) == ([0, 50, 60], [])


async def test_h04_a_partition_to_which_imports_write_all_the_time_is_doubtful_from_its_end_on(
    tmp_path: Path,
) -> None:
    site = site_with(tmp_path, log_of(0, [10]))
    await site.run()
    ends = iter(range(10, 200, 10))

    async def imported() -> None:
        upload_all(site.bucket, log_of(next(ends), [10]))
        await site.run()

    busy = InPieces(site, [(below(0), imported)] * 12)
    log, found = await attached(site, store=busy)
    assert [(one.start, one.why) for one in log.doubts(KEY)] == [(70, UNSETTLED)]
    assert found.unreadable == 1  # so it is read again soon
    assert busy.listings == 1 + MOST_ADDED
    busy = InPieces(site, [(below(0), imported)] * 6)
    source = StoreSource(cast("RemoteStorageManager", busy), threads=THREADS)
    with pytest.raises(Unavailable, match=UNSETTLED):
        await source.plans(TOPIC, 0)


async def test_h04_a_partition_that_is_settled_is_not_listed_once_more(tmp_path: Path) -> None:
    """That listing could show half of an import whose stop it has missed."""
    site = site_with(tmp_path, log_of(0, [50]), log_of(100, [50]))
    await site.run(site.work(accepts_gaps=True))

    async def begun() -> None:
        upload_all(site.bucket, log_of(150, [50]), log_of(200, [50]))
        with pytest.raises(Killed):
            await site.run(_killed(site, 200, accepts_gaps=True))

    steps = [(is_any, nothing)] * 3 + [(is_stop, begun)]
    store = InPieces(site, steps)
    log, _ = await attached(site, store=store)
    assert served(log) == ([0, 100], [])
    assert store.listings == 3
    store = InPieces(site, steps)
    source = StoreSource(cast("RemoteStorageManager", store), threads=THREADS)
    (plan,) = await source.plans(TOPIC, 0)
    assert plan.pieces[-1].next_offset == 150
    assert store.listings == 3
