"""An attached reader answers as the services did, by the manifests alone (H4, H2)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from kip405.checkpoints import encode_leader_epochs
from kip405.contracts import IndexType
from kip405.crc import crc32c
from kip405.errors import (
    Corrupt,
    Fenced,
    Invalid,
    NotFound,
    OffsetOutOfRange,
    Unavailable,
)
from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.indexes import build_indexes_object
from kip405.segments import EpochEntry, RemoteLogSegmentMetadata
from rlm.api.server import ApiServer
from rlm.plans.ledger_rebuild import StoredSegment
from rlm.remote_log.attached import AttachedLedger, AttachedLog, view_of_records
from rlm.tasks.attachment import Attachment, Choices
from rlm.v1 import fetch_pb2 as pb
from rlmm.settings_records import ClusterRecord, StartRecord
from rlmm.settings_view import SettingsView
from rsm_plugins.layout.keys import ObjectKind, object_name
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.manifests import manifest_of
from tests.builders.threads import some_threads
from tests.rlm.api.attached_site import AttachedSite
from tests.rlm.api.remote_site import REF, WHO, Site, fetch, missing, offsets, positions
from tests.rlm.plans.test_h04_attachment import topic

OTHER = Uuid(b"\x0c" * 16)
OLDER = Uuid(b"\x01" * 16)
_UNCLEAN = ((0, 0), (4, 300), (5, 400))


@asynccontextmanager
async def attached(path: Path, **choices: Any) -> AsyncIterator[tuple[Site, AttachedSite]]:
    """The reader of a living cluster, and one of its store; `site.address` is the latter's."""
    with some_threads(2) as threads, structlog.testing.capture_logs():
        async with asyncio.TaskGroup() as tasks:
            site = Site(path, tasks, threads)
            await site.prepare()
            made = AttachedSite(site.rig, tasks, threads, **choices)
            server = ApiServer(admin=None, fetch=made.service, listen="127.0.0.1:0")
            site.address = await server.start()
            try:
                yield site, made
            finally:
                await server.stop()


def manifest_name(site: Site, start_offset: int) -> str:
    (found,) = [one for one in site.segments() if one.start_offset == start_offset]
    return object_name(found.locator(CLUSTER_ID), ObjectKind.MANIFEST)


async def _put(site: Site, metadata: RemoteLogSegmentMetadata, **changes: Any) -> None:
    await site.rig.store.write_manifest(
        metadata.locator(CLUSTER_ID), manifest_of(metadata, **changes)
    )


def _contradicting(site: Site) -> RemoteLogSegmentMetadata:
    """As the copy of [250, 400) whose leader began epoch 6 at 300, where there were records."""
    (one,) = [one for one in site.segments() if one.start_offset == 250]
    own = RemoteLogSegmentId(topic_id_partition=PARTITION, id=OTHER)
    epochs = tuple(EpochEntry(epoch=epoch, start_offset=at) for epoch, at in ((0, 250), (6, 300)))
    return replace(one, segment_id=own, segment_leader_epochs=epochs)


def _with_objects(site: Site, copy: RemoteLogSegmentMetadata) -> None:
    """The objects of the segment [250, 400), under the names of this copy."""
    (one,) = [one for one in site.segments() if one.start_offset == 250]
    objects = site.rig.store.objects
    for kind in (ObjectKind.LOG, ObjectKind.INDEXES):
        objects[object_name(copy.locator(CLUSTER_ID), kind)] = objects[
            object_name(one.locator(CLUSTER_ID), kind)
        ]


async def test_until_the_manifests_are_read_nothing_is_answered(tmp_path: Path) -> None:
    async with attached(tmp_path) as (site, made):
        for name, request in (
            ("ListOffsets", positions(-1)),
            ("DescribeTopics", pb.DescribeTopicsRequest()),
        ):
            with pytest.raises(Unavailable, match="manifests are not read yet"):
                await site.ask(name, request)
        found = await made.read()
        assert (found.new_segments, found.unusable) == (3, ())
        assert made.progress[-1].manifests == 3
        assert (await site.ask("ListOffsets", positions(-1))).offset == 400


async def test_all_records_are_served_and_nothing_is_changed(tmp_path: Path) -> None:
    async with attached(tmp_path) as (site, made):
        before = dict(site.rig.store.objects)
        site.rig.store.before = lambda operation: pytest.fail(operation)
        await made.read()
        answers = await site.read(0)
        assert offsets(answers) == list(range(0, 400, 10))
        assert offsets(await site.read(95, end_offset=120)) == [90, 100, 110]
        assert offsets(await site.read(0, isolation_level=pb.READ_COMMITTED)) == offsets(answers)
        assert (await site.ask("ListOffsets", positions(-2))).offset == 0
        (found,) = (await site.ask("DescribeTopics", pb.DescribeTopicsRequest())).topics
        assert (found.topic, found.topic_id) == (PARTITION.topic, PARTITION.topic_id.raw)
        assert [(row.partition, row.remote_next_offset) for row in found.partitions] == [(0, 400)]
        described = await site.ask("DescribeRemoteLog", pb.DescribeRemoteLogRequest(topic=REF))
        assert (described.cluster_id, len(described.segments)) == (CLUSTER_ID, 3)
        assert site.rig.store.objects == before


async def test_what_needs_a_cluster_is_refused_with_what_to_do(tmp_path: Path) -> None:
    async with attached(tmp_path) as (site, made):
        await made.read()
        with pytest.raises(Fenced, match=r"an attached reader.*--remote-only"):
            await site.read(0, tiers=pb.ALL_TIERS)
        with pytest.raises(Fenced, match="an attached reader"):
            await site.ask("ListOffsets", positions(-1, tiers=pb.ALL_TIERS))
        for name in ("DescribePartition", "BuildRemoteLogAuxState", "Copy"):
            request = getattr(pb, f"{name}Request")(topic=REF)
            with pytest.raises(Fenced, match="an attached reader"):
                await site.ask(name, request)
        with pytest.raises(NotFound, match="nobody has no manifest"):
            await site.ask("ListOffsets", positions(-1, topic=pb.TopicRef(name="nobody")))


async def test_h04_what_two_histories_have_is_refused_and_the_rest_is_served(
    tmp_path: Path,
) -> None:
    async with attached(tmp_path) as (site, made):
        await _put(site, _contradicting(site))
        _with_objects(site, _contradicting(site))
        await made.read()
        got: list[pb.FetchResponse] = []
        with pytest.raises(Fenced, match=r"300 to 399 are doubtful.*--accept-history"):
            async with site.stub() as stub:
                async for answer in stub.Fetch(fetch(0, max_bytes=1 << 20), metadata=WHO):
                    got.append(answer)  # noqa: PERF401 - what came before the error counts
        assert offsets(got) == list(range(0, 300, 10))
        assert missing(got) == []
        for start in (300, 390):
            with pytest.raises(Fenced, match="doubtful"):
                await site.read(start)
        with pytest.raises(Fenced, match="doubtful"):
            await site.ask("DescribeRemoteLog", pb.DescribeRemoteLogRequest(topic=REF))
        assert offsets(await site.read(0, end_offset=300)) == list(range(0, 300, 10))


async def test_h04_a_segment_has_the_history_below_it_also_where_no_copy_shows_it(
    tmp_path: Path,
) -> None:
    """Leader 4 began at 300 by an unclean election, and nothing of it was copied: what the copy of
    leader 0 has from there on is dead.
    """
    async with attached(tmp_path) as (site, made):
        (one,) = [one for one in site.segments() if one.start_offset == 250]
        lineage = (EpochEntry(epoch=epoch, start_offset=at) for epoch, at in _UNCLEAN)
        indexes = build_indexes_object({IndexType.LEADER_EPOCH: encode_leader_epochs(lineage)})
        custom = replace(
            one.custom(), indexes_crc32c=crc32c(indexes), indexes_size_bytes=len(indexes)
        )
        last = replace(
            one,
            segment_id=RemoteLogSegmentId(topic_id_partition=PARTITION, id=OTHER),
            start_offset=400,
            end_offset=499,
            segment_leader_epochs=(EpochEntry(epoch=5, start_offset=400),),
            custom_metadata=custom.encode(),
        )
        await _put(site, last)
        name = object_name(last.locator(CLUSTER_ID), ObjectKind.INDEXES)
        site.rig.store.objects[name] = indexes
        site.rig.store.errors[name] = Unavailable("it is archived")
        assert (await made.read()).unreadable == 1
        assert made.log.doubts(PARTITION.key) == ()
        site.rig.store.errors.clear()
        assert (await made.read()).unreadable == 0
        assert [(one.start, one.next_offset) for one in made.log.doubts(PARTITION.key)] == [
            (300, 400)
        ]
        assert offsets(await site.read(0, end_offset=300))[-1] == 290
        with pytest.raises(Fenced, match="300 to 399 are doubtful"):
            await site.read(300)


async def test_h04_an_accepted_history_is_that_of_the_highest_epoch(tmp_path: Path) -> None:
    async with attached(tmp_path, accepted=frozenset({"orders-0"})) as (site, made):
        await _put(site, _contradicting(site))
        await made.read()
        assert made.log.doubts(PARTITION.key) == ()
        assert (await site.ask("ListOffsets", positions(-1))).leader_epoch == 6


async def _described_end(site: Site, partition: int = 0) -> int:
    (found,) = (await site.ask("DescribeTopics", pb.DescribeTopicsRequest())).topics
    ends: list[int] = [
        row.remote_next_offset for row in found.partitions if row.partition == partition
    ]
    return ends[0]


async def test_a_manifest_that_cannot_be_used_is_no_end(tmp_path: Path) -> None:
    """What follows it is refused, and so is an end that it hides."""
    async with attached(tmp_path) as (site, made):
        name = manifest_name(site, 250)
        whole, site.rig.store.objects[name] = site.rig.store.objects[name], b"{}"
        found = await made.read()
        assert len(found.unusable) == 1
        assert offsets(await site.read(0, end_offset=250)) == list(range(0, 250, 10))
        with pytest.raises(Fenced, match=r"from 250 on are doubtful: manifest .* cannot be"):
            await site.read(0)
        for of_the_end in (-1, -3, -5, 1 << 50):
            with pytest.raises(Fenced, match="doubtful"):
                await site.ask("ListOffsets", positions(of_the_end))
        end = await _described_end(site)
        with pytest.raises(Fenced, match="doubtful"):  # as Spark does that reads up to it
            await site.read(0, end_offset=end)
        site.rig.store.objects[name] = whole
        await made.read()
        assert offsets(await site.read(0)) == list(range(0, 400, 10))


async def test_a_manifest_that_cannot_be_read_holds_up_nothing_else(tmp_path: Path) -> None:
    """As of an object that was archived: the store answers, and so do all other manifests."""
    async with attached(tmp_path) as (site, made):
        store, name = site.rig.store, manifest_name(site, 250)
        store.errors[name] = Unavailable("it is archived")
        found = await made.read()
        assert (found.unreadable, found.new_segments) == (1, 2)
        assert offsets(await site.read(0, end_offset=250)) == list(range(0, 250, 10))
        with pytest.raises(Fenced, match=r"from 250 on are doubtful: .* it is archived"):
            await site.read(250)
        store.errors.clear()
        assert (await made.read()).unreadable == 0
        assert offsets(await site.read(0)) == list(range(0, 400, 10))


async def test_h04_below_the_first_manifest_that_can_be_read_no_reader_is_sent_to_its_offset(
    tmp_path: Path,
) -> None:
    """A client would go there, and pass over what can be read a minute later."""
    async with attached(tmp_path) as (site, made):
        store = site.rig.store
        store.errors[manifest_name(site, 0)] = Unavailable("it is archived")
        await made.read()
        assert (await site.ask("ListOffsets", positions(-2))).offset == 0
        for start in (0, 50, 100):
            with pytest.raises(Fenced, match=r"from 0 on are doubtful: .* it is archived"):
                await site.read(start)
        store.errors.clear()
        await made.read()
        assert offsets(await site.read(0)) == list(range(0, 400, 10))


async def test_a_round_that_fails_need_not_be_begun_again(tmp_path: Path) -> None:
    async with attached(tmp_path) as (site, made):
        store = site.rig.store
        identity, store.identity = store.identity, None
        made.attachment.keep(_stored(site, 0))
        with pytest.raises(Invalid, match="no identity"):
            await made.read()
        assert not made.log.is_ready
        store.identity = identity
        store.errors = {manifest_name(site, 0): Unavailable("is read twice")}
        assert (await made.read()).new_segments == 3
        assert offsets(await site.read(0)) == list(range(0, 400, 10))


async def test_what_was_read_and_is_gone_since_is_not_served(tmp_path: Path) -> None:
    async with attached(tmp_path) as (site, made):
        kept = _stored(site, 0)
        made.attachment.keep(kept)
        await site.rig.store.delete_log_segment_data(kept.metadata.locator(CLUSTER_ID))
        assert (await made.read()).new_segments == 2
        assert (await site.ask("ListOffsets", positions(-2))).offset == 100


def _stored(site: Site, start_offset: int) -> StoredSegment:
    (one,) = [one for one in site.segments() if one.start_offset == start_offset]
    return StoredSegment(metadata=one, remote_log_start_offset=0)


async def test_a_partition_of_which_no_manifest_can_be_used_is_not_empty(tmp_path: Path) -> None:
    async with attached(tmp_path) as (site, made):
        elsewhere = TopicIdPartition(
            topic_id=PARTITION.topic_id, topic=PARTITION.topic, partition=3
        )
        (one,) = [one for one in site.segments() if one.start_offset == 0]
        other = replace(one, segment_id=RemoteLogSegmentId(topic_id_partition=elsewhere, id=OTHER))
        await site.rig.store.write_manifest(other.locator(CLUSTER_ID), b"{}")
        await made.read()
        with pytest.raises(Fenced, match="offsets from 0 on are doubtful"):
            await site.read(0, partition=3)
        with pytest.raises(Fenced, match="offsets from 0 on are doubtful"):
            await site.read(0, partition=3, end_offset=await _described_end(site, 3))


async def test_a_topic_of_which_no_manifest_can_be_used_is_not_absent(tmp_path: Path) -> None:
    async with attached(tmp_path) as (site, made):
        objects = site.rig.store.objects
        names = [manifest_name(site, start) for start in (0, 100, 250)]
        whole = [objects[name] for name in names]
        objects.update(dict.fromkeys(names, b"{}"))
        await made.read()
        with pytest.raises(Fenced, match="offsets from 0 on are doubtful"):
            await site.read(0)
        objects.update(zip(names, whole, strict=True))
        await made.read()
        assert offsets(await site.read(0)) == list(range(0, 400, 10))


async def test_a_partition_that_begins_again_after_a_discard_is_read_from_its_start(
    tmp_path: Path,
) -> None:
    """Nothing remote is left of what had the higher remote log start, which ended with it."""
    async with attached(tmp_path) as (site, made):
        segments = site.segments()
        (one,) = [one for one in segments if one.start_offset == 250]
        await _put(site, one, remote_log_start_offset=399)
        await made.read()
        assert (await site.ask("ListOffsets", positions(-2))).offset == 399
        for gone in segments:
            await site.rig.store.delete_log_segment_data(gone.locator(CLUSTER_ID))
        own = RemoteLogSegmentId(topic_id_partition=PARTITION, id=OTHER)
        await _put(site, replace(segments[0], segment_id=own))
        assert (await made.read()).gone_segments == 3
        assert (await site.ask("ListOffsets", positions(-2))).offset == 0


async def test_a_lost_log_is_an_error_and_no_gap(tmp_path: Path) -> None:
    async with attached(tmp_path) as (site, made):
        (one,) = [one for one in site.segments() if one.start_offset == 100]
        del site.rig.store.objects[object_name(one.locator(CLUSTER_ID), ObjectKind.LOG)]
        await made.read()
        with pytest.raises(Corrupt, match="damaged or gone"):
            await site.read(0)


async def test_h02_the_highest_start_of_the_manifests_is_where_it_starts(tmp_path: Path) -> None:
    async with attached(tmp_path) as (site, made):
        (one,) = [one for one in site.segments() if one.start_offset == 250]
        await _put(site, one, remote_log_start_offset=130)
        await made.read()
        assert (await site.ask("ListOffsets", positions(-2))).offset == 130
        with pytest.raises(OffsetOutOfRange):
            await site.read(129)
        assert offsets(await site.read(130))[0] == 130


async def test_h02_a_backup_of_the_settings_has_a_later_start(tmp_path: Path) -> None:
    start = StartRecord(
        partition=PARTITION.key, remote_log_start_offset=220, cause="retention", decided_epoch=0
    )
    backup = _backup(CLUSTER_ID, start, topic(PARTITION.topic_id))
    async with attached(tmp_path, backup=backup) as (site, made):
        await made.read()
        assert (await site.ask("ListOffsets", positions(-2))).offset == 220


@pytest.mark.parametrize("words", ["of cluster another, not of", "no cluster record"])
def test_a_backup_that_does_not_prove_this_cluster_is_refused(words: str) -> None:
    backup = _backup("another") if "another" in words else SettingsView()
    with pytest.raises(Invalid, match=words):
        Attachment(
            cluster_id=CLUSTER_ID,
            log=AttachedLog(),
            choices=Choices(backup=backup),
            report=lambda store_id, progress: None,
        )


async def test_later_rounds_read_what_is_new_and_drop_what_was_deleted(tmp_path: Path) -> None:
    async with attached(tmp_path) as (site, made):
        rig = site.rig
        await made.read()
        rig.write_log(0, 100, 250, 400, 500, end=520)
        await rig.copy.run(rig.led)
        made.progress.clear()
        found = await made.read()
        assert (found.new_segments, found.gone_segments) == (1, 0)
        assert made.progress[-1].manifests == 1
        assert offsets(await site.read(380)) == list(range(380, 500, 10))
        (one,) = [one for one in site.segments() if one.start_offset == 0]
        await rig.store.delete_log_segment_data(one.locator(CLUSTER_ID))
        assert (await made.read()).gone_segments == 1
        ids = AttachedLedger(made.log).finished_ids()
        assert one.segment_id.id.raw not in frozenset[bytes]().union(*ids)
        assert (await site.ask("ListOffsets", positions(-2))).offset == 100
        before = made.log.state
        assert (await made.read()).new_segments == 0
        assert made.log.state.view.version > before.view.version
        assert made.log.state.plans[PARTITION.key] is before.plans[PARTITION.key]


async def test_a_round_that_fails_leaves_what_was_read(tmp_path: Path) -> None:
    async with attached(tmp_path) as (site, made):
        await made.read()
        site.rig.store.identity = None
        with pytest.raises(Invalid, match="no identity"):
            await made.read()
        assert offsets(await site.read(0))[-1] == 390


async def test_h39_a_topic_that_was_created_again_is_read_by_its_name_and_the_old_one_by_its_id(
    tmp_path: Path,
) -> None:
    async with attached(tmp_path) as (site, made):
        old = await _older_topic(site)
        found = await made.read()
        assert found.used_twice == {PARTITION.topic: (OLDER, PARTITION.topic_id)}
        assert (await site.ask("ListOffsets", positions(-1))).offset == 400
        by_id = pb.TopicRef(topic_id=OLDER.raw)
        assert (await site.ask("ListOffsets", positions(-1, topic=by_id))).offset == old
    async with attached(tmp_path / "chosen", topic_ids=(OLDER,)) as (site, made):
        await _older_topic(site)
        await made.read()
        assert (await site.ask("ListOffsets", positions(-1))).offset == 100


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"topic_ids": (OTHER,)}, "--topic-id: the stores have no manifest of a topic"),
        ({"accepted": frozenset({"orders-9"})}, "--accept-history: .* no partition orders-9"),
    ],
)
async def test_a_choice_that_fits_nothing_is_refused(
    tmp_path: Path, choices: dict[str, Any], words: str
) -> None:
    async with attached(tmp_path, **choices) as (_, made):
        with pytest.raises(Invalid, match=words):
            await made.read()


async def _older_topic(site: Site) -> int:
    """A manifest of a topic that had the name before; returns where it ends."""
    (one,) = [one for one in site.segments() if one.start_offset == 0]
    before = TopicIdPartition(topic_id=OLDER, topic=PARTITION.topic, partition=0)
    own = RemoteLogSegmentId(topic_id_partition=before, id=OTHER)
    await _put(site, replace(one, segment_id=own, event_timestamp_ms=one.event_timestamp_ms - 1))
    return one.next_offset


def _backup(cluster_id: str, *records: Any) -> SettingsView:
    cluster = ClusterRecord(cluster_id=cluster_id, ledger_topic_id=OTHER, settings_topic_id=OTHER)
    return view_of_records((cluster, *records), 0)
