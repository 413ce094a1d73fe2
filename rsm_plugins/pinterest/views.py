"""What is published under names of Pinterest's form, beside the objects of an attempt of ours.

Their consumer reads the log, the broker's index files and the watermark. The index files are
sections of our indexes object, byte for byte as the broker had them. Pure.
"""

from kip405.contracts import IndexType
from kip405.crc import ByteBuffer
from kip405.errors import Corrupt, Invalid
from kip405.indexes import IndexesObject
from kip405.segments import Layout, SegmentLocator
from rsm_plugins.layout.keys import layout_of
from rsm_plugins.layout.pinterest import OFFSET_INDEX, TIME_INDEX
from rsm_plugins.pinterest.settings import CLUSTER

_SECTIONS = {OFFSET_INDEX: IndexType.OFFSET, TIME_INDEX: IndexType.TIMESTAMP}


def index_views(indexes: ByteBuffer, where: str) -> dict[str, bytes]:
    """The broker's index files by suffix, of an indexes object; Corrupt where it is damaged."""
    try:
        parsed = IndexesObject.parse(indexes)
        return {suffix: bytes(parsed.section(kind) or b"") for suffix, kind in _SECTIONS.items()}
    except Corrupt as error:
        raise Corrupt(f"{where}: {error}") from error


def needs_views(locator: SegmentLocator) -> bool:
    """Whether the segment is in the layout `pinterest`; Invalid as `layout_of`."""
    return layout_of(locator) is Layout.PINTEREST


def not_configured(locator: SegmentLocator) -> Invalid:
    """The error of a store whose settings do not say where names of Pinterest's form are."""
    return Invalid(
        f"segment {locator.segment_id} is in the layout pinterest, and the store's settings do not "
        f"say where its keys in that form are ({CLUSTER.key}, without a bucket of theirs)"
    )
