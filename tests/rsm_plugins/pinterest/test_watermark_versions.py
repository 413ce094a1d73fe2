"""`offset.wm` in a bucket, whatever versions of it earlier writers have left."""

import pytest

from kip405.crc import crc32c
from kip405.errors import Invalid, Unavailable
from rsm_plugins.layout.keys import IDENTITY_NAME
from rsm_plugins.layout.pinterest import WATERMARK, encode_watermark
from rsm_plugins.s3.manager import S3RemoteStorageManager
from rsm_plugins.s3.pinterest import ATTEMPT_KEY, PinterestSegments
from rsm_plugins.s3.versions import Version, Versions
from tests.rsm_plugins.pinterest.writing import MANIFEST, S3, Written


def segments_of(written: Written) -> PinterestSegments:
    manager = written.subject.manager
    assert isinstance(manager, S3RemoteStorageManager)
    assert manager._pinterest is not None
    return manager._pinterest


@S3
async def test_no_older_watermark_comes_back(written: Written) -> None:
    """As of a writer that died before it had removed the version that it replaced."""
    segments = segments_of(written)
    segment = written.segment(written.partition(), 200)
    name = f"{segments.layout.folder_of(segment.locator)}/{WATERMARK}"
    for attempt in ("a", "b"):
        data = encode_watermark(100)
        await segments.versions.put(
            name, data, metadata={ATTEMPT_KEY: attempt}, checksum=crc32c(data)
        )
    await written.subject.complete(segment)
    assert written.watermark() == b"%020d" % 200
    await written.delete(segment)
    assert written.rig.hands.names() == [IDENTITY_NAME]


@S3
async def test_a_deletion_that_died_before_the_watermark_is_finished(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = await written.stored(written.partition(), 100)
    remove = Versions.remove

    async def dies(versions: Versions, several: list[Version]) -> None:
        if any(one.name.endswith(WATERMARK) for one in several):
            raise Unavailable("killed")
        await remove(versions, several)

    with monkeypatch.context() as patch:
        patch.setattr(Versions, "remove", dies)
        with pytest.raises(Unavailable):
            await written.delete(segment)
    await written.delete(segment)
    assert written.rig.hands.names() == [IDENTITY_NAME]


@S3
async def test_a_bucket_that_lost_its_versioning_keeps_the_watermark(written: Written) -> None:
    """There, what replaces a version is the version that was replaced: `null`."""
    segment = await written.stored(written.partition(), 100)
    bucket, server = str(written.rig.rows["rsm.config.s3.bucket.name"]), written.rig.server
    assert server is not None
    server.set_versioning(bucket, "Suspended")
    segments = segments_of(written)
    name = f"{segments.layout.folder_of(segment.locator)}/{WATERMARK}"
    for _ in range(3):
        await written.subject.manager.write_manifest(segment.locator, MANIFEST)
        found = await segments.versions.current(name)
        assert found is not None
        assert found.body == b"%020d" % 100


@S3
async def test_a_deletion_always_names_a_version(written: Written) -> None:
    """Without one it would be that of whatever is the current one."""
    segment = await written.stored(written.partition(), 100)
    segments = segments_of(written)
    name = segments.layout.view_of(segment.locator, "log")
    with pytest.raises(Invalid, match="no version of its own"):
        await segments.versions.remove([Version(name=name, version_id="")])
    await written.check(segment)
    assert written.view(100) == segment.log
