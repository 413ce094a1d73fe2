"""Logs that overlap are taken where their bytes are the same, and each record is read once."""

import asyncio
import os
import random
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kip405.batches import BatchHeader, batch_headers
from kip405.contracts import IndexType
from kip405.indexes import AbortedTransaction, transaction_index
from kip405.segments import EpochEntry
from rlm.api.server import ApiServer
from rlm.imports import overlaps, scanned
from rlm.v1 import fetch_pb2 as pb
from tests.builders.clock import ManualClock
from tests.builders.pinterest import TOPIC, UPLOADED_S, ImportSite, upload_all
from tests.builders.threads import THREADS
from tests.kip405.batch_builder import batch, control_batch, log_of
from tests.rlm.api.attached_site import AttachedSite
from tests.rlm.api.remote_site import WHO, Site, fetch
from tests.rlm.imports.test_import import aborted_of, check, download, indexes, segments
from tests.rlm.imports.test_stops import doubts
from tests.rlm.imports.uploads import assert_ends_the_same, fresh, site_with

ABORT, COMMIT = 0, 1


def _data(offset: int, count: int, producer_id: int, epoch: int = 0) -> bytes:
    return batch(offset, count, epoch=epoch, transactional=True, producer_id=producer_id)


BATCHES = (
    _data(0, 10, 7),
    batch(10, 10),
    _data(20, 20, 10),
    _data(40, 20, 9),
    _data(60, 20, 8),  # where the second log begins
    _data(80, 10, 7, epoch=2),
    control_batch(90, ABORT, producer_id=7, epoch=2),
    batch(91, 9, epoch=2),  # where the first one ends
    batch(100, 10, epoch=2),
    control_batch(110, ABORT, producer_id=8, epoch=2),
    _data(111, 19, 9, epoch=2),
    control_batch(130, COMMIT, producer_id=9, epoch=2),
    batch(131, 19, epoch=2),
    batch(150, 40, epoch=3),
    control_batch(190, ABORT, producer_id=10, epoch=3),
    batch(191, 9, epoch=3),
)
SEVEN, EIGHT, TEN = (
    AbortedTransaction(7, 0, 90),
    AbortedTransaction(8, 60, 110),
    AbortedTransaction(10, 20, 190),
)
MARKERS = {90, 110, 130, 190}
ALL = [one for one in range(200) if one not in MARKERS]
COMMITTED = [
    *range(10, 20),
    *range(40, 60),
    *range(91, 110),
    *range(111, 130),
    *range(131, 190),
    *range(191, 200),
]


def part(start: int, end: int) -> bytes:
    """The log with the batches from one offset to another."""
    return b"".join(
        one for one in BATCHES if start <= next(batch_headers(one))[1].base_offset < end
    )


LOGS = (part(0, 100), part(60, 150), part(131, 200))


def offsets_given(answers: Iterable[pb.FetchResponse], *, is_committed: bool) -> list[int]:
    """The offsets of the records that a client takes of the answers."""
    taken: list[int] = []
    for answer in answers:
        left = sorted((one.first_offset, one.producer_id) for one in answer.aborted_transactions)
        aborted = set[int]()
        for _, header in batch_headers(answer.batches):
            while left and left[0][0] <= header.base_offset:
                aborted.add(left.pop(0)[1])
            if header.is_control:
                aborted.discard(header.producer_id)
            elif not (is_committed and _is_of(header, aborted)):
                taken += range(header.base_offset, header.last_offset + 1)
    return taken


def _is_of(header: BatchHeader, aborted: set[int]) -> bool:
    return header.is_transactional and header.producer_id in aborted


async def read(site: ImportSite, start_offset: int, *, is_committed: bool) -> list[int]:
    """What an attached reader serves from an offset on."""
    made = cast("Any", SimpleNamespace(store=site.store(), clock=ManualClock()))
    level = pb.READ_COMMITTED if is_committed else pb.READ_UNCOMMITTED
    async with asyncio.TaskGroup() as tasks:
        reader = AttachedSite(made, tasks, THREADS)
        await reader.read()
        server = ApiServer(admin=None, fetch=reader.service, listen="127.0.0.1:0")
        address = await server.start()
        try:
            asked = fetch(start_offset, topic=pb.TopicRef(name=TOPIC), isolation_level=level)
            async with _stub(address) as stub:
                answers = [one async for one in stub.Fetch(asked, metadata=WHO)]
        finally:
            await server.stop()
    assert not any(one.missing for one in answers)
    return offsets_given(answers, is_committed=is_committed)


def _stub(address: str) -> Any:
    site = Site.__new__(Site)
    site.address = address
    return site.stub()


async def test_a_log_that_repeats_the_end_of_the_one_before_is_taken(tmp_path: Path) -> None:
    site = site_with(tmp_path, log_of(0, [40, 40, 20]), log_of(80, [20, 50]), log_of(150, [50]))
    before = site.bucket.content()
    (done,) = await site.run()
    assert (done.segments, done.stopped, done.warnings) == (3, None, ())
    assert await doubts(site) == ()
    assert await read(site, 0, is_committed=False) == list(range(200))
    assert site.bucket.content() == before
    (again,) = await site.run()
    assert (again.segments, again.plan.new) == (0, ())


async def test_h09_transactions_across_an_overlap_are_known_in_both_segments(
    tmp_path: Path,
) -> None:
    site = site_with(tmp_path, *LOGS)
    (done,) = await site.run()
    assert (done.segments, done.held_back, done.stopped) == (3, 0, None)
    found = await segments(site)
    assert [await aborted_of(site, one) for one in found] == [
        (SEVEN, EIGHT, TEN),
        (SEVEN, EIGHT, TEN),
        (TEN,),
    ]
    own = []
    for one in found:
        assert (await check(site, one)).flaws == []
        section = (await indexes(site, one)).section(IndexType.TRANSACTION)
        own.append([entry.aborted for entry in transaction_index(section or b"")])
    assert own == [[SEVEN], [SEVEN, EIGHT], [TEN]]
    assert [one.segment_leader_epochs for one in found] == [
        (EpochEntry(epoch=0, start_offset=0), EpochEntry(epoch=2, start_offset=80)),
        (EpochEntry(epoch=0, start_offset=60), EpochEntry(epoch=2, start_offset=80)),
        (EpochEntry(epoch=2, start_offset=131), EpochEntry(epoch=3, start_offset=150)),
    ]


@pytest.mark.parametrize("start", [0, 60, 80, 91, 100, 131, 150])
async def test_h09_each_record_across_an_overlap_is_read_once(tmp_path: Path, start: int) -> None:
    site = site_with(tmp_path, *LOGS)
    await site.run()
    plain = await read(site, start, is_committed=False)
    assert plain == [one for one in ALL if one >= start]
    committed = await read(site, start, is_committed=True)
    assert committed == [one for one in COMMITTED if one >= start]


async def test_a_download_of_an_overlap_has_each_batch_once(tmp_path: Path) -> None:
    site = site_with(tmp_path, *LOGS)
    await site.run()
    found = await download(site, tmp_path / "out")
    logs = [found[name] for name in sorted(found) if name.endswith(".log")]
    assert b"".join(logs) == b"".join(BATCHES)
    index = [found[name] for name in sorted(found) if name.endswith(".txnindex")]
    assert [entry.aborted for entry in transaction_index(b"".join(index))] == [SEVEN, EIGHT, TEN]


@pytest.mark.parametrize("end", [80, 100])
async def test_a_log_within_the_one_before_is_passed_over(tmp_path: Path, end: int) -> None:
    site = site_with(tmp_path, LOGS[0], part(60, end), part(80, 200))
    os.utime(site.bucket.file(80), (UPLOADED_S + 3_601, UPLOADED_S + 3_601))
    (done,) = await site.run()
    assert (done.segments, done.stopped) == (2, None)
    assert done.warnings == ("60: a copy of what the log at 0 has: passed over",)
    assert [one.start_offset for one in await segments(site)] == [0, 80]
    assert await read(site, 0, is_committed=True) == COMMITTED
    (again,) = await site.run()
    assert (again.segments, again.plan.new, again.plan.refused) == (0, (), None)


async def test_a_copy_that_is_the_last_log_is_no_end_for_later_ones(tmp_path: Path) -> None:
    site = site_with(tmp_path, log_of(0, [40, 40, 20]), log_of(40, [40]))
    for _ in range(2):
        (done,) = await site.run()
        assert (done.stopped, len(done.warnings)) == (None, 1)
        assert await doubts(site) == ()
    upload_all(site.bucket, log_of(80, [20, 100]))
    (done,) = await site.run()
    assert (done.segments, done.stopped) == (1, None)
    assert await read(site, 0, is_committed=False) == list(range(200))


async def test_h04_a_log_that_was_put_there_after_later_ones_is_compared(tmp_path: Path) -> None:
    """What was passed over before is not read again, but what is newer than the import is."""
    site = site_with(tmp_path, log_of(0, [40, 40, 20]), log_of(40, [40]), log_of(100, [100]))
    os.utime(site.bucket.file(100), (UPLOADED_S + 3_601, UPLOADED_S + 3_601))
    await site.run()
    assert (await site.run())[0].plan.new == ()
    site.bucket.put(40, batch(40, 40, value=b"of another history"))
    for suffix in ("log", "index", "timeindex"):
        os.utime(site.bucket.file(40, suffix), (UPLOADED_S + 9_000, UPLOADED_S + 9_000))
    (done,) = await site.run()
    assert "differ from offset 40 on" in (done.stopped or "")
    (doubt,) = await doubts(site)
    assert doubt.start == 200


OTHER = b"of another history"


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (batch(60, 40, value=OTHER) + batch(100, 50), "differ from offset 60 on: they are of two"),
        (
            log_of(60, [20]) + batch(80, 20, value=OTHER),
            "differ from offset 80 on: they are of two",
        ),
        (log_of(60, [20, 20], epoch=1) + batch(100, 1, epoch=1), "differ from offset 60 on: they"),
        (log_of(60, [20, 30]), "differ from offset 80 on: they are of two histories"),
        (log_of(70, [30, 50]), "differ from offset 70 on: no batch of the first one begins there"),
    ],
    ids=["first batch", "second batch", "epoch", "longer batch", "no batch"],
)
async def test_h04_logs_that_differ_where_they_overlap_stop_the_import(
    tmp_path: Path, second: bytes, why: str
) -> None:
    first = log_of(0, [40, 20]) + log_of(60, [20]) + log_of(80, [20])
    site = site_with(tmp_path, first, second)
    (stopped,) = await site.run()
    assert why in (stopped.stopped or "")
    assert stopped.segments == 0, "either of the two may be of the history that counts"
    (doubt,) = await doubts(site)
    assert (doubt.start, why in doubt.why) == (0, True)


async def test_h04_a_second_log_that_differs_later_keeps_what_was_imported(
    tmp_path: Path,
) -> None:
    site = site_with(tmp_path, log_of(0, [40, 40, 20]))
    await site.run()
    upload_all(site.bucket, batch(80, 40, value=OTHER))
    (stopped,) = await site.run()
    assert "differ from offset 80 on" in (stopped.stopped or "")
    (doubt,) = await doubts(site)
    assert doubt.start == 100


async def test_what_differs_is_found_in_every_piece_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (scanned, overlaps):
        monkeypatch.setattr(module, "READ_BYTES", 100)
    batches = [batch(at, 1) for at in range(40)]
    site = site_with(tmp_path, b"".join(batches), b"".join([*batches[20:], batch(40, 1)]))
    (done,) = await site.run()
    assert (done.segments, done.stopped) == (2, None)
    for at in range(20, 40):
        other = ImportSite(fresh(tmp_path, str(at)))
        changed = [*batches[20:], batch(40, 1)]
        changed[at - 20] = batch(at, 1, value=b"valuf")
        upload_all(other.bucket, b"".join(batches), b"".join(changed))
        (stopped,) = await other.run()
        assert f"differ from offset {at} on: they" in (stopped.stopped or "")


async def test_h04_a_copy_that_is_cut_short_may_be_more_than_one(tmp_path: Path) -> None:
    site = site_with(tmp_path, log_of(0, [40, 40, 20]), log_of(40, [40, 20]))
    site.bucket.file(40).write_bytes(log_of(40, [40, 20])[:-1])
    (stopped,) = await site.run()
    assert "00000000000000000040.log" in (stopped.stopped or "")
    assert "batch cut short" in (stopped.stopped or "")
    assert stopped.segments == 0


async def test_their_retention_may_delete_the_first_of_two_that_overlap(tmp_path: Path) -> None:
    site = site_with(tmp_path, *LOGS)
    await site.run()
    for suffix in ("log", "index", "timeindex"):
        site.bucket.file(0, suffix).unlink()
    later = _data(200, 10, 7, epoch=3) + control_batch(210, ABORT, producer_id=7, epoch=3)
    upload_all(site.bucket, later)
    (done,) = await site.run()
    assert (done.plan.refused, done.stopped, done.segments) == (None, None, 1)
    assert await doubts(site) == ()
    found = (await segments(site))[-1]
    assert await aborted_of(site, found) == (AbortedTransaction(7, 200, 210),)


async def test_h04_what_cannot_be_compared_any_more_is_refused(tmp_path: Path) -> None:
    site = site_with(tmp_path, log_of(0, [40, 40, 20]))
    await site.run()
    for suffix in ("log", "index", "timeindex"):
        site.bucket.file(0, suffix).unlink()
    upload_all(site.bucket, log_of(80, [20, 50]))
    assert await site.run() == []
    assert "whose log is not there to compare the two" in (site.planned[-1].refused or "")


@pytest.mark.parametrize(
    ("late", "start", "why"),
    [
        ([log_of(80, [40])], 100, "the log at 80 overlaps what is imported up to 99, whose log"),
        ([log_of(20, [60]), log_of(100, [9])], 20, "the log at 20 overlaps the imported 40, whose"),
    ],
)
async def test_h04_what_has_gone_between_others_cannot_be_compared_either(
    tmp_path: Path, late: list[bytes], start: int, why: str
) -> None:
    """Also where gaps are accepted."""
    site = site_with(tmp_path, log_of(0, [20]), log_of(40, [40, 20]))
    await site.run(site.work(accepts_gaps=True))
    for suffix in ("log", "index", "timeindex"):
        site.bucket.file(40, suffix).unlink()
    upload_all(site.bucket, *late)
    (done,) = await site.run(site.work(accepts_gaps=True))
    assert why in (done.stopped or "")
    (doubt,) = await doubts(site)
    assert (doubt.start, done.segments) == (start, 0)


async def test_an_overlap_above_the_watermark_waits_for_it(tmp_path: Path) -> None:
    site = site_with(tmp_path, log_of(0, [40, 40, 20]))
    site.bucket.put(80, log_of(80, [20, 50]))
    (stopped,) = await site.run()
    assert "expected within" in (stopped.stopped or "")
    site.bucket.watermark(80)
    (done,) = await site.run()
    assert (done.segments, done.stopped) == (2, None)


@pytest.mark.parametrize("writes", range(9))
async def test_killed_anywhere_in_an_overlap_it_ends_the_same(tmp_path: Path, writes: int) -> None:
    logs = (part(0, 100), part(60, 80), part(80, 150), part(131, 200))
    await assert_ends_the_same(tmp_path, logs, writes)


@pytest.mark.parametrize("seed", range(12))
async def test_however_logs_overlap_each_record_is_read_once(tmp_path: Path, seed: int) -> None:
    """Uploaded one after the other and imported between, or all at once: it is the same."""
    draw = random.Random(seed)
    bases = [next(batch_headers(one))[1].base_offset for one in BATCHES]
    starts = sorted({0, *draw.sample(bases, draw.randint(2, 6))})
    logs, reached = [], 0
    for number, start in enumerate(starts):
        least = starts[number + 1] if number + 1 < len(starts) else 200
        ends = [one for one in (*bases, 200) if one > start]
        end = 200 if number + 1 == len(starts) else draw.choice(ends)
        if max(reached, end) < least:
            end = least
        reached = max(reached, end)
        logs.append(part(start, end))
    whole = site_with(fresh(tmp_path, "whole"), *logs)
    (done,) = await whole.run()
    assert (done.stopped, done.held_back) == (None, 0)
    assert await read(whole, 0, is_committed=False) == ALL
    assert await read(whole, 0, is_committed=True) == COMMITTED
    for segment in await segments(whole):
        assert (await check(whole, segment)).flaws == []
    grown = ImportSite(tmp_path)
    for log in logs:
        upload_all(grown.bucket, log)
        await grown.run()
    assert grown.content() == whole.content()
