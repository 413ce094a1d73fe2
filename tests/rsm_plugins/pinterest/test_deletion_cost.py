"""What deletions in a bucket ask for, and what they still find: attempts that have stored nothing
are many after a crash, and each request costs money and time.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kip405.errors import Unavailable
from rsm_plugins.layout.keys import IDENTITY_NAME, object_name, objects_of
from rsm_plugins.s3.calls import Calls
from rsm_plugins.s3.uploads import Upload
from tests.rsm_plugins.pinterest.writing import S3, Written

Requests = Counter[str]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """What is asked of the store from now on, by operation."""
    found: Requests = Counter()
    run: Callable[..., Awaitable[Any]] = Calls.run

    async def counted(calls: Calls, operation: str, *args: Any, **options: Any) -> Any:
        found[operation] += 1
        return await run(calls, operation, *args, **options)

    monkeypatch.setattr(Calls, "run", counted)
    return found


@S3
async def test_an_attempt_that_stored_nothing_costs_one_request(
    written: Written, requests: Requests
) -> None:
    partition = written.partition()
    await written.stored(partition, 100)
    attempts = [written.segment(partition, 100).locator for _ in range(5)]
    requests.clear()
    assert await written.subject.manager.delete_log_segments(attempts) == (None,) * 5
    assert requests == {"ListObjectVersions": 5}


@S3
async def test_whose_a_version_is_is_asked_less_and_less(
    written: Written, requests: Requests
) -> None:
    """The attempts of one offset are deleted one after the other, though all by one call."""
    partition = written.partition()
    stays = await written.stored(partition, 100)
    attempts = [written.segment(partition, 200) for _ in range(4)]
    for one in attempts:
        await written.subject.copy(one)
    requests.clear()
    locators = [one.locator for one in attempts]
    assert await written.subject.manager.delete_log_segments(locators) == (None,) * 4
    assert requests["HeadObject"] == 4 + 3 + 2 + 1
    await written.check(stays)
    await written.delete(stays)
    assert written.rig.hands.names() == [IDENTITY_NAME]


@S3
async def test_a_folder_that_has_other_segments_keeps_its_watermark_unread(
    written: Written, requests: Requests
) -> None:
    partition = written.partition()
    first, last = [await written.stored(partition, at) for at in (100, 200)]
    requests.clear()
    await written.delete(first)
    assert requests["GetObject"] == 1  # by which upload its log came
    await written.delete(last)
    assert written.rig.hands.names() == [IDENTITY_NAME]


@S3
async def test_records_go_though_all_that_is_under_our_keys_is_lost(written: Written) -> None:
    """The segment's custom metadata says that there is a version."""
    segment = await written.stored(written.partition(), 100)
    for kind in objects_of(segment.locator):
        written.path(object_name(segment.locator, kind)).unlink()
    await written.delete(segment)
    assert not [name for name in written.views() if not name.endswith("offset.wm")]


@S3
async def test_a_copy_that_fails_leaves_nothing_to_delete(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = written.segment(written.partition(), 100)

    async def fails(_: Upload) -> str | None:
        raise Unavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(Upload, "complete_version", fails)
        with pytest.raises(Unavailable, match="away"):
            await written.subject.copy(segment)
    assert written.rig.hands.names() == [IDENTITY_NAME]
    await written.subject.copy(segment)
    with monkeypatch.context() as patch:
        patch.setattr(Upload, "complete_version", fails)
        with pytest.raises(Unavailable, match="away"):
            await written.subject.copy(segment)
    assert await written.subject.fetch(segment.locator, 0, 1 << 40) == segment.log
    await written.delete(segment)
    assert written.rig.hands.names() == [IDENTITY_NAME]
