"""A server that moves versions while it is asked for them: for a moment one is listed, and is not
found or not deleted.
"""

import pytest

from kip405.errors import NotFound, Unavailable
from rsm_plugins.layout.keys import IDENTITY_NAME
from rsm_plugins.s3.objects import Objects
from rsm_plugins.s3.versions import Head, Version, Versions
from tests.rsm_plugins.pinterest.writing import S3, Written


@S3
@pytest.mark.parametrize("times", [1, 1000])
@pytest.mark.parametrize("call", ["head", "remove"])
async def test_no_version_is_forgotten(
    written: Written, monkeypatch: pytest.MonkeyPatch, times: int, call: str
) -> None:
    """Its records would stay where nothing finds them: what says that there are any goes last."""
    segment = await written.stored(written.partition(), 100)
    missed, head, remove = 0, Versions.head, Versions.remove

    async def no_head(versions: Versions, version: Version) -> Head | None:
        nonlocal missed
        missed += version.name.endswith(".log")
        is_missed = version.name.endswith(".log") and missed <= times
        return None if is_missed else await head(versions, version)

    async def no_removal(versions: Versions, several: list[Version]) -> None:
        nonlocal missed
        missed += any(one.name.endswith(".log") for one in several)
        left = [one for one in several if missed > times or not one.name.endswith(".log")]
        await remove(versions, left)

    with monkeypatch.context() as patch:
        patch.setattr(Versions, call, no_head if call == "head" else no_removal)
        if times == 1:
            await written.delete(segment)
            assert written.rig.hands.names() == [IDENTITY_NAME]
        else:
            with pytest.raises(Unavailable, match=r"100\.log"):
                await written.delete(segment)
    await written.delete(segment)
    assert written.rig.hands.names() == [IDENTITY_NAME]


@S3
async def test_h11_what_is_listed_is_not_lost(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = await written.stored(written.partition(), 100)

    async def no_head(_versions: Versions, _version: Version) -> Head | None:
        return None

    async def no_range(objects: Objects, name: str, *_: object) -> bytes:
        raise NotFound(name)

    with monkeypatch.context() as patch:
        patch.setattr(Versions, "head", no_head)
        patch.setattr(Objects, "read_range", no_range)
        with pytest.raises(Unavailable, match="listed and not found"):
            await written.subject.presence(segment)
        with pytest.raises(Unavailable, match="listed and not found"):
            await written.subject.fetch(segment.locator, 0, 1)
    await written.check(segment)
