"""With the rights of docs/reference/store-rights.md a service writes, its readers only read, and
others see nothing: three users of a real HDFS with permissions, none of them a superuser.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hdfs_native import Client

from kip405.errors import RemoteStorageError, Unavailable
from kip405.segments import ByteRange
from rsm_plugins.conformance.subject import Subject
from rsm_plugins.hdfs.rights import FILE_MODE, FOLDER_MODE, ROOT_MODE
from tests.rsm_plugins.faults.operations import MANIFEST
from tests.rsm_plugins.harness import PREFIX
from tests.rsm_plugins.stores import StoreRig, dialled, hdfs_rig, served
from tests.store_servers_hdfs import READERS, HdfsServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
SERVICE, READER, STRANGER = "rlm-service", "rlm-reader", "somebody"


@pytest.fixture
def rig(hdfs_server: HdfsServer) -> StoreRig:
    """A root folder as the page says; a strict umask of Hadoop's configuration changes nothing."""
    made = hdfs_rig(hdfs_server)
    client, root = Client(hdfs_server.url), str(made.rows["rsm.config.root"])
    client.set_owner(root, SERVICE, READERS)
    client.set_permission(root, ROOT_MODE)
    umask = {"rsm.config.hdfs.conf.fs.permissions.umask-mode": "077"}
    return replace(made, rows={**made.rows, **umask})


@asynccontextmanager
async def acting_as(user: str, rig: StoreRig, folder: Path) -> AsyncIterator[Subject]:
    """The store through a plugin process that is another user to HDFS."""
    own = folder / user
    own.mkdir()
    theirs = replace(rig, rows={**rig.rows, "rsm.config.hdfs.user": user})
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(served(theirs, own))
        yield await dialled(theirs, address, own, stack, share=False)


async def refused(call: object) -> None:
    with pytest.raises(Unavailable, match=r"AccessControlException.*give the plugin's user"):
        await call  # type: ignore[misc] # one of many types of coroutines


async def test_readers_of_the_group_read_and_change_nothing(
    hdfs_server: HdfsServer, rig: StoreRig, tmp_path: Path
) -> None:
    async with (
        acting_as(SERVICE, rig, tmp_path) as service,
        acting_as(READER, rig, tmp_path) as reader,
        acting_as(STRANGER, rig, tmp_path) as stranger,
    ):
        await service.ensure_identity()
        segment, other = service.segment(), service.segment()
        await service.copy(segment)
        await service.manager.write_manifest(segment.locator, MANIFEST)
        before, manager = rig.hands.names(), reader.manager
        locator = segment.locator
        assert await manager.read_identity() == await service.manager.read_identity()
        assert await manager.read_manifest(locator) == MANIFEST
        assert await manager.fetch_indexes(locator) == segment.data.indexes
        assert await reader.fetch(locator, 7, 99) == segment.log[7:99]
        listed = [one.name async for one in manager.list_objects(locator.cluster_id)]
        assert len(listed) == 3
        await refused(manager.copy_log_segment_data(other.locator, other.data))
        await refused(manager.write_manifest(other.locator, MANIFEST))
        await refused(manager.delete_log_segment_data(locator))
        assert isinstance((await manager.delete_log_segments([locator]))[0], RemoteStorageError)
        for call in (
            stranger.manager.read_identity(),
            stranger.manager.fetch_log_segment(locator, ByteRange(start=0, end=9)),
            stranger.manager.delete_log_segment_data(locator),
        ):
            await refused(call)
        assert rig.hands.names() == before
        _check_modes(Client(hdfs_server.url), str(rig.rows["rsm.config.root"]))
        await service.manager.delete_log_segment_data(locator)
        assert len(rig.hands.names()) == 1


def _check_modes(client: Client, root: str) -> None:
    """What the service has made is its own and its readers', with the modes of the page."""
    found = [one for one in client.list_status(root, recursive=True) if "~rlm-tmp" not in one.path]
    assert {(one.owner, one.group) for one in found} == {(SERVICE, READERS)}
    folders = {one.path: one.permission for one in found if one.isdir}
    of_prefix = {
        folders.pop(path) for path in (f"{root}/{PREFIX.split('/')[0]}", f"{root}/{PREFIX}")
    }
    assert of_prefix == {ROOT_MODE}
    assert set(folders.values()) == {FOLDER_MODE}
    assert {one.permission for one in found if not one.isdir} == {FILE_MODE}
