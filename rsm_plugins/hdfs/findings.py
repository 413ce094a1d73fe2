"""Findings about an HDFS: replication factor and free space.

The client library cannot ask a NameNode for its capacity. If the folder has a space quota, that is
the bound. Otherwise the NameNode's metrics page is asked, if its address is in the configuration
and it needs no login.
"""

import json
import urllib.request
from collections.abc import Mapping

from kip405.contracts import FindingKind, StoreFinding
from kip405.errors import RemoteStorageError, Unavailable
from rsm_plugins.hdfs.settings import HdfsSettings
from rsm_plugins.hdfs.tree import HdfsTree
from rsm_plugins.threads import FileThreads

_METRICS = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
_ADDRESS = "dfs.namenode.http-address"
_ANSWER_BYTES_MAX = 1 << 20
_TIMEOUT_SECONDS_MAX = 5.0
_NO_QUOTA = 1 << 62


async def inspect_store(
    tree: HdfsTree, settings: HdfsSettings, threads: FileThreads
) -> tuple[StoreFinding, ...]:
    """Both findings; a value that cannot be read says why."""
    return (await _replication(tree), await _free_space(tree, settings, threads))


async def _replication(tree: HdfsTree) -> StoreFinding:
    kind = FindingKind.REPLICATION
    try:
        session = tree.session()
        found = await tree.require_identity(session, "inspect")
    except RemoteStorageError as error:
        return StoreFinding(kind=kind, state=f"unknown: {error}")
    if not found.replication:
        return StoreFinding(kind=kind, state="erasure coded")
    return StoreFinding(kind=kind, state=f"{found.replication} copies", value=found.replication)


async def _free_space(tree: HdfsTree, settings: HdfsSettings, threads: FileThreads) -> StoreFinding:
    kind = FindingKind.FREE_SPACE
    try:
        quota, used = await _quota(tree)
        if quota is not None:
            free = max(0, quota - used)
            return StoreFinding(
                kind=kind, state=f"{free} of {quota} bytes of the quota free", value=free
            )
        free = await threads.run(_remaining, settings)
    except RemoteStorageError as error:
        return StoreFinding(kind=kind, state=f"unknown: {error}")
    return StoreFinding(kind=kind, state=f"{free} bytes free, all copies counted", value=free)


async def _quota(tree: HdfsTree) -> tuple[int | None, int]:
    """Space quota of the base, None if there is none, and the space used, including replicas."""
    session = await tree.opened("inspect")
    path = tree.base
    try:
        found = await session.call(
            "inspect", path, lambda: session.client.get_content_summary(path)
        )
    except FileNotFoundError as error:
        raise Unavailable(f"cannot inspect {tree}: {error}") from error
    quota = found.space_quota
    return (quota if 0 < quota < _NO_QUOTA else None), found.space_consumed


def _remaining(settings: HdfsSettings) -> int:
    """The remaining space by the first NameNode that answers; Unavailable if none does."""
    addresses = [value for key, value in settings.conf.items() if key.startswith(_ADDRESS)]
    if not addresses:
        raise Unavailable(f"there is no space quota, and no {_ADDRESS} in the configuration")
    timeout = min(_TIMEOUT_SECONDS_MAX, settings.call_timeout_ms / 1000)
    why = ""
    for address in addresses:
        try:
            return _capacity_remaining(address, timeout)
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            why = str(error)
    raise Unavailable(f"no NameNode's metrics page could be read: {why}")


def _capacity_remaining(address: str, timeout: float) -> int:
    with urllib.request.urlopen(f"http://{address}{_METRICS}", timeout=timeout) as answer:
        content: Mapping[str, list[Mapping[str, int]]] = json.loads(answer.read(_ANSWER_BYTES_MAX))
    return int(content["beans"][0]["CapacityRemaining"])
