"""Lists the objects of a cluster or a partition in bytewise order of names, folder by folder."""

from collections.abc import AsyncIterator, Callable

from hdfs_native import FileStatus

from kip405.contracts import StoredObject
from kip405.errors import Invalid
from kip405.ids import TopicIdPartition
from rsm_plugins.hdfs.connection import Session
from rsm_plugins.hdfs.tree import HdfsTree, file_of
from rsm_plugins.layout.keys import (
    entropy_digits,
    is_entropy_folder,
    parse_name,
    parse_topic_folder,
    partition_folder,
)

_OPERATION = "list"


async def list_objects(
    tree: HdfsTree, cluster_id: str, partition: TopicIdPartition | None
) -> AsyncIterator[StoredObject]:
    """Every object of a segment; what is none is left out."""
    session = await tree.opened(_OPERATION)
    async for folder in _partition_folders(tree, session, cluster_id, partition):
        entries = await tree.entries(session, folder, _OPERATION)
        for found in sorted(_objects_in(entries, folder), key=lambda found: found.name):
            yield found


async def _partition_folders(
    tree: HdfsTree, session: Session, cluster_id: str, partition: TopicIdPartition | None
) -> AsyncIterator[str]:
    entropies = await _folders(tree, session, "", is_entropy_folder)
    for cluster in sorted([cluster_id, *(f"{one}/{cluster_id}" for one in entropies)], key=_order):
        digits = cluster[: -len(cluster_id)].rstrip("/")
        if partition is None:
            for topic in await _folders(tree, session, cluster, _is_topic_folder):
                for number in await _folders(tree, session, f"{cluster}/{topic}", str.isdecimal):
                    yield f"{cluster}/{topic}/{number}"
        elif digits == entropy_digits(
            cluster_id, partition.topic, partition.partition, len(digits)
        ):
            yield partition_folder(cluster_id, partition, len(digits))


async def _folders(
    tree: HdfsTree, session: Session, folder: str, is_wanted: Callable[[str], bool]
) -> list[str]:
    entries = await tree.entries(session, folder, _OPERATION)
    names = (file_of(entry) for entry in entries if entry.isdir)
    return sorted((name for name in names if is_wanted(name)), key=_order)


def _order(folder: str) -> str:
    """Sorts folders as the names below them sort."""
    return f"{folder}/"


def _is_topic_folder(name: str) -> bool:
    try:
        parse_topic_folder(name)
    except Invalid:
        return False
    return True


def _objects_in(entries: list[FileStatus], folder: str) -> list[StoredObject]:
    found = []
    for entry in entries:
        name = f"{folder}/{file_of(entry)}"
        if not entry.isdir and _is_object(name):
            found.append(
                StoredObject(
                    name=name, size_bytes=entry.length, modified_ms=entry.modification_time
                )
            )
    return found


def _is_object(name: str) -> bool:
    try:
        parse_name(name)
    except Invalid:
        return False
    return True
