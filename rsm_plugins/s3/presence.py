"""Whether segments are in the store, in as few and as cheap requests as there are.

A few segments are asked for by HEAD of their objects, many of one partition by listing its folder
from the first to the last of them: a listed page costs as much as a dozen HEADs and tells of 333
segments. An answer "404" to a HEAD does not say whether the object or the bucket is not there, and
away must never be taken for missing (H11): it counts only when the bucket answers a listing.
"""

import asyncio
from collections.abc import Iterable, Sequence

from kip405.contracts import ExpectedSegment, SegmentPresence
from rsm_plugins.keys import ObjectKind, object_name, segment_stem
from rsm_plugins.local import presence_of
from rsm_plugins.s3.objects import Objects
from rsm_plugins.s3.together import together

HEADS_PER_PAGE = 12
SEGMENTS_BY_HEAD = 4
REQUESTS_AT_ONCE = 16

Sizes = dict[str, int]


async def presence_in(
    objects: Objects, segments: Sequence[ExpectedSegment]
) -> tuple[SegmentPresence, ...]:
    """Presence of each, in the order asked."""
    names = {_stem(segment): _names(segment) for segment in segments}
    folders: dict[str, list[str]] = {}
    for stem in names:
        folders.setdefault(stem.rpartition("/")[0], []).append(stem)
    slots = asyncio.Semaphore(REQUESTS_AT_ONCE)
    looks = (_sizes_in(objects, sorted(stems), names, slots) for stems in folders.values())
    sizes: Sizes = {}
    for found in await together(looks):
        sizes |= found
    if any(name not in sizes for name in _flat(names, names)):
        await objects.page("", most=1)  # Unavailable where it is the bucket that is not there
    return tuple(
        presence_of(segment, {kind: sizes.get(name) for kind, name in _names(segment).items()})
        for segment in segments
    )


async def _sizes_in(
    objects: Objects,
    stems: list[str],
    names: dict[str, dict[ObjectKind, str]],
    slots: asyncio.Semaphore,
) -> Sizes:
    """Sizes of what is there of the segments of one folder."""
    if len(stems) <= SEGMENTS_BY_HEAD:
        return await _sizes_by_head(objects, _flat(names, stems), slots)
    async with slots:
        sizes, seen_up_to = await _sizes_by_listing(objects, stems)
    rest = [stem for stem in stems if stem >= seen_up_to]
    return sizes | await _sizes_by_head(objects, _flat(names, rest), slots)


async def _sizes_by_listing(objects: Objects, stems: list[str]) -> tuple[Sizes, str]:
    """Sizes of what is listed, and the first stem that was not reached within its price."""
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
    async def look(name: str) -> int | None:
        async with slots:
            return await objects.size_of(name)

    sizes = await together(map(look, names))
    found = zip(names, sizes, strict=True)
    return {name: size_bytes for name, size_bytes in found if size_bytes is not None}


def _stem(segment: ExpectedSegment) -> str:
    return segment_stem(segment.locator)


def _names(segment: ExpectedSegment) -> dict[ObjectKind, str]:
    return {kind: object_name(segment.locator, kind) for kind in ObjectKind}


def _flat(names: dict[str, dict[ObjectKind, str]], stems: Iterable[str]) -> list[str]:
    return [name for stem in stems for name in names[stem].values()]
