"""Settings of the bucket that Pinterest's uploader fills, beside those of the store. Pure."""

from collections.abc import Mapping
from typing import Any

from kip405.errors import Invalid
from kip405.settings import Kind, Refused, Setting, as_text, integer
from rsm_plugins.layout.keys import ENTROPY_BITS_MAX, check_cluster_id, check_prefix
from rsm_plugins.layout.pinterest import PinterestLayout


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
    doc="Cluster under which Pinterest's uploader has stored segments. With it, imported segments "
    "can be read; nothing of theirs is ever changed.",
)
PREFIX = Setting(
    key="rsm.config.pinterest.prefix",
    kind=Kind(allowed="path components joined by single slashes, none at either end", read=_prefix),
    doc="Prefix of their keys, without entropy digits and cluster.",
    default="",
)
ENTROPY_BITS = Setting(
    key="rsm.config.pinterest.entropy.bits",
    kind=integer(0, ENTROPY_BITS_MAX),
    doc="Their ts.segment.uploader.s3.prefix.entropy.bits.",
    default=0,
)
COMMON = (CLUSTER, PREFIX, ENTROPY_BITS)
"""The rows that every kind of store has which can read their objects."""


def pinterest_layout(values: Mapping[str, Any], bucket_key: str) -> PinterestLayout | None:
    """The layout by checked values, None if no such bucket is set. `bucket_key`: the row that says
    where their objects are. Invalid: only one of the two is given.
    """
    cluster, bucket = values[CLUSTER.key], values[bucket_key]
    if (cluster is None) != (bucket is None):
        raise Invalid(f"{CLUSTER.key} and {bucket_key} belong together")
    if cluster is None:
        return None
    return PinterestLayout(cluster=cluster, entropy_bits=values[ENTROPY_BITS.key])
