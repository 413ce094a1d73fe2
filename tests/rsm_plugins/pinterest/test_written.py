"""Segments in the layout `pinterest`: what their consumer finds, and what attempts leave alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from kip405.contracts import Presence
from kip405.crc import crc32c
from kip405.errors import Corrupt, Invalid, Unavailable
from kip405.segments import PLUGIN_METADATA_MAX_BYTES
from rlm.download.run import Download
from rlm.download.sources import StoreSource
from rsm_plugins.layout.keys import IDENTITY_NAME, ObjectKind, object_name
from rsm_plugins.layout.pinterest import (
    LOG_MAX_BYTES,
    VERSION_ID_MAX_BYTES,
    PinterestLayout,
    UploadReference,
    encode_upload_reference,
)
from rsm_plugins.layout.stored import ObjectContent, encode_contents
from rsm_plugins.pinterest.local_objects import LocalUploadedObjects
from rsm_plugins.pinterest.manager import ImportingRemoteStorageManager
from rsm_plugins.s3.findings import problem_of_rules
from rsm_plugins.s3.manager import S3RemoteStorageManager
from rsm_plugins.s3.pinterest import ATTEMPT_KEY
from rsm_plugins.threads import FileThreads
from tests.builders.clock import ManualClock
from tests.builders.pinterest import ImportSite, indexes_of
from tests.builders.threads import THREADS
from tests.rsm_plugins.pinterest.writing import BOTH, FOLDER, LOCAL, MANIFEST, S3, Written
from tests.rsm_plugins.stores import DIRECT, StoreRig, local_rig, opened


@BOTH
async def test_keys_of_the_seeds_examples(written: Written) -> None:
    """Keys and entropy digits of Pinterest's article, with N=5; files with 20 digits, as theirs."""
    expected = []
    for digits, topic, number, start_offset in (
        ("01011", "topicA", 0, 100),
        ("01011", "topicA", 0, 200),
        ("01010", "topicA", 1, 150),
        ("11100", "topicB", 0, 1000),
    ):
        segment = await written.stored(written.partition(topic, number), start_offset)
        folder = f"custom-prefix/{digits}/kafkaCluster1/{topic}-{number}"
        offsets, times = indexes_of(start_offset, segment.log)
        for suffix, data in (("log", segment.log), ("index", offsets), ("timeindex", times)):
            name = f"{folder}/{start_offset:020d}.{suffix}"
            assert written.path(name).read_bytes() == data
            expected.append(name)
        wm = f"{folder}/offset.wm"
        assert written.path(wm).read_bytes() == f"{start_offset:020d}".encode()
        expected.append(wm)
    assert written.views() == sorted(set(expected))


@BOTH
async def test_nothing_is_seen_before_the_manifest_but_the_log(written: Written) -> None:
    segment = written.segment(written.partition(), 100)
    await written.subject.copy(segment)
    assert not [name for name in written.views() if not name.endswith(".log")]
    await written.delete(segment)
    assert written.rig.hands.names() == [IDENTITY_NAME]


@BOTH
async def test_the_watermark_never_falls(written: Written) -> None:
    partition = written.partition()
    await written.stored(partition, 200)
    late = await written.stored(partition, 100)
    assert written.watermark() == b"00000000000000000200"
    await written.stored(partition, 300)
    assert written.watermark() == b"00000000000000000300"
    await written.delete(late)
    assert written.watermark() == b"00000000000000000300"
    written.path(f"{FOLDER}/offset.wm").write_bytes(b"seven")
    with pytest.raises(Corrupt, match=r"offset\.wm"):
        await written.stored(partition, 400)


@BOTH
@pytest.mark.parametrize("is_first_deleted", [True, False])
async def test_attempts_of_one_offset_never_touch_each_other(
    written: Written, is_first_deleted: bool
) -> None:
    partition = written.partition()
    first = await written.stored(partition, 100, 5)
    second = await written.stored(partition, 100, 50)
    for one in (first, second):
        await written.check(one)
    assert written.view(100) == second.log
    gone, stays = (first, second) if is_first_deleted else (second, first)
    await written.delete(gone)
    await written.check(stays)
    assert written.view(100) == stays.log
    assert written.view(100, "index") == indexes_of(100, stays.log)[0]
    assert written.watermark() == b"%020d" % 100
    await written.delete(stays)
    assert written.rig.hands.names() == [IDENTITY_NAME]


@BOTH
async def test_an_attempt_that_recorded_nothing_is_read_and_removed_alone(
    written: Written,
) -> None:
    """Its custom metadata is that of COPY_SEGMENT_STARTED; another one has the same base offset."""
    partition = written.partition()
    dead = written.segment(partition, 100, 5)
    await written.subject.copy(dead)
    stays = await written.stored(partition, 100, 50)
    assert await written.subject.fetch(dead.locator, 0, 1 << 40) == dead.log
    await written.delete(dead)
    await written.check(stays)
    assert written.view(100) == stays.log
    again = written.segment(partition, 100, 7)
    await written.subject.copy(again)
    await written.delete(again)
    await written.check(stays)
    await written.delete(stays)
    assert written.rig.hands.names() == [IDENTITY_NAME]


@BOTH
async def test_a_topic_of_the_same_name_is_another_attempt(written: Written) -> None:
    old = await written.stored(written.partition(), 100, 5)
    new = await written.stored(written.partition(), 100, 50)
    await written.delete(old)
    await written.check(new)
    assert written.view(100) == new.log


@BOTH
async def test_a_copy_without_a_manifest_is_listed_with_the_size_of_its_log(
    written: Written,
) -> None:
    """Reconciliation deletes such a copy only where others have as many bytes (H6, H12)."""
    partition = written.partition()
    segments = [written.segment(partition, at, 50) for at in (100, 200, 300)]
    for one in segments:
        await written.subject.copy(one)
    await written.subject.manager.write_manifest(segments[1].locator, MANIFEST)
    damaged = object_name(segments[2].locator, ObjectKind.PINTEREST_LOG)
    if written.rig.server is not None:
        written.path(damaged).write_bytes(b"{}")
    found = [one async for one in written.subject.manager.list_objects(written.subject.cluster_id)]
    assert [one.name for one in found] == await written.subject.names()
    sizes = {one.name: one.size_bytes for one in found}
    assert sizes[object_name(segments[0].locator, ObjectKind.PINTEREST_LOG)] == len(segments[0].log)
    if written.rig.server is not None:
        assert sizes[damaged] == LOG_MAX_BYTES


@BOTH
async def test_a_manifest_without_a_copy_publishes_nothing(written: Written) -> None:
    segment = written.segment(written.partition(), 100)
    await written.subject.manager.write_manifest(segment.locator, MANIFEST)
    assert written.views() == []
    await written.subject.copy(segment)
    await written.delete(segment)
    await written.subject.manager.write_manifest(segment.locator, MANIFEST)
    assert written.views() == []


@BOTH
async def test_a_store_without_the_settings_refuses(written: Written, tmp_path: Path) -> None:
    segment = await written.stored(written.partition(), 100)
    rows = {key: row for key, row in written.rig.rows.items() if "pinterest" not in key}
    async with opened(replace(written.rig, rows=rows), DIRECT, tmp_path) as other:
        manager = other.manager
        for call in (
            manager.copy_log_segment_data(segment.locator, segment.data),
            manager.write_manifest(segment.locator, MANIFEST),
            manager.delete_log_segment_data(segment.locator),
        ):
            with pytest.raises(Invalid, match=r"rsm\.config\.pinterest\.cluster"):
                await call
        (error,) = await manager.delete_log_segments([segment.locator])
        assert isinstance(error, Invalid)
    await written.check(segment)


@LOCAL
async def test_a_view_that_is_lost_or_replaced_loses_nothing(written: Written) -> None:
    segment = await written.stored(written.partition(), 100)
    view = written.path(f"{FOLDER}/{100:020d}.log")
    assert view.samefile(written.path(object_name(segment.locator, ObjectKind.PINTEREST_LOG)))
    view.unlink()
    await written.check(segment)
    view.write_bytes(b"of somebody else")
    await written.check(segment)
    await written.delete(segment)
    assert view.read_bytes() == b"of somebody else"
    assert len(written.views()) == 4


@LOCAL
async def test_a_view_is_published_once_more(written: Written) -> None:
    """As a writer does that did not get the answer."""
    segment = await written.stored(written.partition(), 100)
    before = written.rig.hands.names()
    await written.subject.manager.write_manifest(segment.locator, MANIFEST)
    assert written.rig.hands.names() == before
    await written.subject.copy(segment)  # other files, so the triple is nobody's
    assert written.views() == []


@S3
@pytest.mark.parametrize("is_suspended", [True, False])
async def test_a_bucket_without_versions_is_refused(
    rig: StoreRig, tmp_path: Path, is_suspended: bool
) -> None:
    server = rig.server
    assert server is not None
    made = rig.in_pinterests_form()
    bucket = str(made.rows["rsm.config.s3.bucket.name"])
    if is_suspended:
        server.set_versioning(bucket, "Suspended")
    else:
        bucket = server.bucket()
        made = replace(made, rows={**made.rows, **server.settings(bucket)})
    async with opened(made, DIRECT, tmp_path) as subject:
        await subject.ensure_identity()
        segment = Written(subject, made).segment(subject.partition("topicA"), 100)
        command = rf"aws s3api put-bucket-versioning --bucket {bucket} .*Status=Enabled"
        with pytest.raises(Invalid, match=command):
            await subject.copy(segment)
        assert await subject.names() == []
        (finding,) = [one for one in await subject.manager.inspect() if "unfit" in one.state]
        assert bucket in finding.state


@S3
async def test_other_settings_do_not_make_a_segment_missing(
    written: Written, tmp_path: Path
) -> None:
    segment = await written.stored(written.partition(), 100)
    rows = {**written.rig.rows, "rsm.config.pinterest.cluster": "another"}
    async with opened(replace(written.rig, rows=rows), DIRECT, tmp_path) as other:
        for call in (
            other.manager.stat([written.subject.expected(segment)]),
            other.fetch(segment.locator, 0, 1),
            other.manager.delete_log_segment_data(segment.locator),
        ):
            with pytest.raises(Invalid, match="are others"):
                await call
    await written.check(segment)


@S3
async def test_a_log_that_is_lost_is_missing(written: Written) -> None:
    segment = await written.stored(written.partition(), 100)
    written.path(f"{FOLDER}/{100:020d}.log").unlink()
    found = await written.subject.presence(segment)
    assert (found.presence, found.manifest_present) == (Presence.MISSING, True)
    assert f"{100:020d}.log" in found.detail


@S3
async def test_an_upload_that_outlives_the_deletion_cannot_be_completed(written: Written) -> None:
    """A writer that was thought dead, and goes on when everything of its attempt was deleted."""
    manager = written.subject.manager
    assert isinstance(manager, S3RemoteStorageManager)
    segments = manager._pinterest
    assert segments is not None
    segment = written.segment(written.partition(), 100)
    locator = segment.locator
    name = segments.layout.view_of(locator, "log")
    reference_name = object_name(locator, ObjectKind.PINTEREST_LOG)

    async def begun(upload_id: str) -> None:
        key, size_bytes = segments.objects.key(name), segment.data.log.size_bytes
        reference = UploadReference(key=key, upload=upload_id, size_bytes=size_bytes)
        text = encode_upload_reference(reference)
        await segments.own.write(reference_name, text, checksum=crc32c(text))

    metadata = {ATTEMPT_KEY: str(locator.segment_id.id)}
    upload = await segments.uploads.upload(name, segment.data, metadata, begun)
    await manager.delete_log_segment_data(locator)
    with pytest.raises(Unavailable, match="NoSuchUpload"):
        await upload.complete_version()
    assert written.rig.hands.names() == [IDENTITY_NAME]


@S3
async def test_uploads_that_were_given_up_are_swept(written: Written) -> None:
    manager = written.subject.manager
    assert isinstance(manager, S3RemoteStorageManager)
    segments = manager._pinterest
    assert segments is not None
    segment = written.segment(written.partition(), 100)
    for name in (segments.layout.view_of(segment.locator, "log"), "of/others/x.log"):
        await segments.uploads.upload(name, segment.data, {})
    assert (await segments.sweep(60_000), await segments.sweep(-60_000)) == (0, 1)


@pytest.mark.parametrize(
    ("rule", "is_refused"),
    [
        ({"NoncurrentVersionExpiration": {"NoncurrentDays": 30}}, True),
        ({"NoncurrentVersionTransitions": [{"StorageClass": "GLACIER"}]}, True),
        ({"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7}}, False),
        ({"NoncurrentVersionExpiration": {}, "Status": "Disabled"}, False),
        ({"NoncurrentVersionExpiration": {"NoncurrentDays": 1}, "Filter": {"Prefix": "x"}}, False),
        ({"NoncurrentVersionExpiration": {"NoncurrentDays": 1}, "Filter": {"Prefix": "a"}}, True),
    ],
)
def test_rules_that_take_versions_away_are_refused(
    rule: dict[str, object], is_refused: bool
) -> None:
    """A version that another attempt has shadowed is not current, and may be the ledger's."""
    rules = {"Rules": [{"Status": "Enabled", **rule}]}
    problem = problem_of_rules(rules, "a/b")
    assert (problem is not None) is is_refused
    assert problem is None or "end it, or limit it to other keys" in problem


def test_rules_that_cannot_be_read_are_refused() -> None:
    assert "s3:GetLifecycleConfiguration" in str(problem_of_rules("unknown: AccessDenied", ""))
    assert problem_of_rules("unknown: NotImplemented", "") is None


def test_the_longest_id_of_a_version_fits_into_the_custom_metadata() -> None:
    nothing = [ObjectContent(size_bytes=2**60, crc32c=2**32 - 1)] * 2
    plugin = encode_contents(nothing, b"v" * VERSION_ID_MAX_BYTES)
    assert len(plugin) == PLUGIN_METADATA_MAX_BYTES


async def test_what_was_written_can_be_imported(tmp_path: Path) -> None:
    """As their consumer would read it: by names, watermark and index files."""
    source, site = tmp_path / "source", ImportSite(tmp_path)
    source.mkdir()
    rig = local_rig(source).in_pinterests_form()
    async with opened(rig, DIRECT, source) as subject:
        await subject.ensure_identity()
        written = Written(subject, rig)
        partition = written.partition()
        stored = [await written.stored(partition, at) for at in (0, 20, 40)]
        layout = PinterestLayout(cluster="kafkaCluster1", entropy_bits=5)
        uploaded = LocalUploadedObjects(written.path(""), "custom-prefix", FileThreads())
        store = ImportingRemoteStorageManager(site.own(), layout, uploaded)
        (done,) = await site.run(site.work(store))
        assert (done.segments, done.held_back, done.warnings) == (3, 0, ())
        downloads = Download(
            StoreSource(store, threads=THREADS),
            tmp_path / "out",
            clock=ManualClock(),
            threads=THREADS,
            report=lambda _progress: None,
        )
        await downloads.run("topicA", None)
    for segment in stored:
        file = f"{segment.locator.start_offset:020d}.log"
        assert (tmp_path / "out" / "topicA-0" / file).read_bytes() == segment.log
