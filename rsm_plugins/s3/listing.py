"""Listing of a cluster's or a partition's objects, in the order of names.

Objects of one cluster may lie below several entropy folders; those that exist are asked for once,
and the rest follows from the names. What is no object of a segment is left out.
"""

from collections.abc import AsyncIterator

from kip405.contracts import StoredObject
from kip405.errors import Invalid
from kip405.ids import TopicIdPartition
from rsm_plugins.keys import (
    check_cluster_id,
    entropy_digits,
    is_entropy_folder,
    parse_name,
    partition_folder,
)
from rsm_plugins.s3.objects import Objects


async def listed(
    objects: Objects, cluster_id: str, partition: TopicIdPartition | None
) -> AsyncIterator[StoredObject]:
    """Every object of a segment below the cluster, or of one partition."""
    check_cluster_id(cluster_id)
    digits = [name async for name in _entropies(objects)]
    folders = sorted(_folder(bits, cluster_id, partition) for bits in ("", *digits))
    for folder in folders:
        if not folder:
            continue
        async for page in objects.pages(folder):
            for found in page.objects:
                if is_segment_object(found.name):
                    yield found


def is_segment_object(name: str) -> bool:
    """Whether a name below the prefix is that of an object of ours."""
    try:
        parse_name(name)
    except Invalid:
        return False
    return True


async def _entropies(objects: Objects) -> AsyncIterator[str]:
    async for page in objects.pages("", delimiter="/"):
        for folder in page.folders:
            if is_entropy_folder(folder.rstrip("/")):
                yield folder.rstrip("/")


def _folder(digits: str, cluster_id: str, partition: TopicIdPartition | None) -> str:
    """The folder to list below entropy digits, with its slash; "" where there is nothing of it."""
    if partition is None:
        return f"{digits}/{cluster_id}/" if digits else f"{cluster_id}/"
    wanted = entropy_digits(cluster_id, partition.topic, partition.partition, len(digits))
    if digits != wanted:
        return ""
    return partition_folder(cluster_id, partition, len(digits)) + "/"
