"""Settings of names in Pinterest's form: in a bucket that their uploader fills, and that is only
read, or in the store itself, for segments in the layout `pinterest`. Pure.
"""

from collections.abc import Mapping
from typing import Any

from kip405.errors import Invalid
from kip405.segments import Layout
from kip405.settings import Kind, Refused, Setting, as_text, integer
from rsm_plugins.layout.keys import ENTROPY_BITS_MAX, check_cluster_id, check_prefix
from rsm_plugins.layout.pinterest import PinterestLayout
from rsm_plugins.store_kinds import LAYOUTS_OF_OURS


def _cluster(value: Any) -> str:
    try:
        return check_cluster_id(as_text(value))
    except Invalid as error:
        raise Refused(f"{value!r}: {error}") from error


def _prefix(value: Any) -> str:
    try:
        return check_prefix(as_text(value))
    except Invalid as error:
        raise Refused(f"{value!r}: {error}") from error


CLUSTER = Setting(
    key="rsm.config.pinterest.cluster",
    kind=Kind(allowed="the cluster's name in their keys", read=_cluster),
    doc="Cluster in keys of Pinterest's form. With a bucket or root of theirs beside it, imported "
    "segments can be read, and nothing there is ever changed. Without one, the store itself gets "
    "such keys, and writes and reads segments in the layout `pinterest`.",
)
PREFIX = Setting(
    key="rsm.config.pinterest.prefix",
    kind=Kind(allowed="path components joined by single slashes, none at either end", read=_prefix),
    doc="Prefix of these keys, without entropy digits and cluster; those in the store itself are "
    "below its bucket or root, whatever rsm.config.prefix is.",
    default="",
)
ENTROPY_BITS = Setting(
    key="rsm.config.pinterest.entropy.bits",
    kind=integer(0, ENTROPY_BITS_MAX),
    doc="Entropy digits in these keys: ts.segment.uploader.s3.prefix.entropy.bits of their "
    "uploader, and of their consumer storage.service.endpoint.s3.prefix.entropy.num.bits.",
    default=0,
)
COMMON = (CLUSTER, PREFIX, ENTROPY_BITS)
"""The rows that every kind of store has which can read their objects."""


def pinterest_layout(values: Mapping[str, Any], bucket_key: str) -> PinterestLayout | None:
    """The layout in a bucket of their uploader by checked values, None if no such bucket is set.
    `bucket_key`: the row that says where it is. Invalid: it is given without the cluster.
    """
    if values[bucket_key] is None:
        return None
    if values[CLUSTER.key] is None:
        raise Invalid(f"{bucket_key} needs {CLUSTER.key}")
    return _layout(values)


def written_layout(values: Mapping[str, Any], bucket_key: str) -> PinterestLayout | None:
    """The layout of names in the store itself, None if it has none: no cluster is set, or a bucket
    of their uploader.
    """
    if values[CLUSTER.key] is None or values[bucket_key] is not None:
        return None
    return _layout(values)


def layouts_with(written: PinterestLayout | None) -> frozenset[Layout]:
    """The layouts of a store in this tree whose own names of Pinterest's form are these."""
    return LAYOUTS_OF_OURS if written is None else LAYOUTS_OF_OURS | {Layout.PINTEREST}


def _layout(values: Mapping[str, Any]) -> PinterestLayout:
    return PinterestLayout(cluster=values[CLUSTER.key], entropy_bits=values[ENTROPY_BITS.key])
