"""Lists the objects of a cluster or partition by name, and finds which segments exist.

Objects of one cluster may be below several entropy folders; the existing folders are listed once,
and the rest follows from the names. Objects that belong to no segment are left out.

Presence takes as few and as cheap requests as possible. A few segments are checked by HEAD of their
objects; many segments of one partition by listing its folder from the first to the last of them: a
listed page costs as much as a dozen HEADs and covers 333 segments. An answer "404" to a HEAD does
not say whether the object or the bucket is missing, and an unreachable object must never count as
missing (H11): the 404 counts only when the bucket answers a listing.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence

from kip405.contracts import ExpectedSegment, SegmentPresence, StoredObject
from kip405.ids import TopicIdPartition
from rsm_plugins.layout.keys import (
    ObjectKind,
    check_cluster_id,
    entropy_digits,
    is_entropy_folder,
    is_segment_object,
    object_names,
    partition_folder,
    segment_stem,
)
from rsm_plugins.local.manager import presence_of
from rsm_plugins.s3.calls import together
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


async def _entropies(objects: Objects) -> AsyncIterator[str]:
    async for page in objects.pages("", delimiter="/"):
        for folder in page.folders:
            if is_entropy_folder(folder.rstrip("/")):
                yield folder.rstrip("/")


def _folder(digits: str, cluster_id: str, partition: TopicIdPartition | None) -> str:
    """The folder to list below entropy digits, with its slash; "" if it has nothing of the
    partition.
    """
    if partition is None:
        return f"{digits}/{cluster_id}/" if digits else f"{cluster_id}/"
    wanted = entropy_digits(cluster_id, partition.topic, partition.partition, len(digits))
    if digits != wanted:
        return ""
    return partition_folder(cluster_id, partition, len(digits)) + "/"


HEADS_PER_PAGE = 12
SEGMENTS_BY_HEAD = 4
REQUESTS_AT_ONCE = 16

Sizes = dict[str, int]


async def presence_in(
    objects: Objects, segments: Sequence[ExpectedSegment]
) -> tuple[SegmentPresence, ...]:
    """Presence of each, in the order asked."""
    of_segments = [object_names(segment.locator) for segment in segments]
    stems = (segment_stem(segment.locator) for segment in segments)
    names = dict(zip(stems, of_segments, strict=True))
    folders: dict[str, list[str]] = {}
    for stem in names:
        folders.setdefault(stem.rpartition("/")[0], []).append(stem)
    slots = asyncio.Semaphore(REQUESTS_AT_ONCE)
    folder_sizes = (_sizes_in(objects, sorted(stems), names, slots) for stems in folders.values())
    sizes: Sizes = {}
    for found in await together(folder_sizes):
        sizes |= found
    if any(name not in sizes for name in _flat(names, names)):
        await objects.page("", most=1)  # Unavailable if it is the bucket that is missing
    return tuple(
        presence_of(segment, {kind: sizes.get(name) for kind, name in one.items()})
        for segment, one in zip(segments, of_segments, strict=True)
    )


async def _sizes_in(
    objects: Objects,
    stems: list[str],
    names: dict[str, dict[ObjectKind, str]],
    slots: asyncio.Semaphore,
) -> Sizes:
    """Sizes of the existing objects of the segments in one folder."""
    if len(stems) <= SEGMENTS_BY_HEAD:
        return await _sizes_by_head(objects, _flat(names, stems), slots)
    async with slots:
        sizes, seen_up_to = await _sizes_by_listing(objects, stems)
    rest = [stem for stem in stems if stem >= seen_up_to]
    return sizes | await _sizes_by_head(objects, _flat(names, rest), slots)


async def _sizes_by_listing(objects: Objects, stems: list[str]) -> tuple[Sizes, str]:
    """Sizes of the listed objects, and the first stem that was not reached within the price of
    HEADs.
    """
    pages_max = 1 + 3 * len(stems) // HEADS_PER_PAGE
    folder = stems[0].rpartition("/")[0] + "/"
    last = f"{stems[-1]}."
    sizes: Sizes = {}
    token: str | None = None
    reached = ""
    for _ in range(pages_max):
        page = await objects.page(folder, token=token, after=stems[0])
        sizes |= {found.name: found.size_bytes for found in page.objects}
        token = page.token
        reached = page.objects[-1].name if page.objects else ""
        if token is None or reached > last + "~":
            return sizes, last + "~"
    return sizes, reached.rpartition(".")[0]


async def _sizes_by_head(objects: Objects, names: list[str], slots: asyncio.Semaphore) -> Sizes:
    async def size_of(name: str) -> int | None:
        async with slots:
            return await objects.size_of(name)

    sizes = await together(map(size_of, names))
    found = zip(names, sizes, strict=True)
    return {name: size_bytes for name, size_bytes in found if size_bytes is not None}


def _flat(names: dict[str, dict[ObjectKind, str]], stems: Iterable[str]) -> list[str]:
    return [name for stem in stems for name in names[stem].values()]
