"""Manifest and identity object: golden bytes, round trips, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.contracts import StoreIdentity
from kip405.errors import Corrupt, Invalid
from kip405.ids import Uuid
from rsm_plugins.layout.manifest import (
    Manifest,
    ManifestObject,
    build_manifest,
    decode_identity,
    encode_identity,
)

FORMATS = Path(__file__).parents[1] / "formats"
STEM = "cluster-1/orders-AQIDBAUGBwgJCgsMDQ4PEA/3/00000000000000001000-__79_Pv6-fj39vX08_Lx8A"
MANIFEST = Manifest(
    cluster_id="cluster-1",
    store_id=Uuid(bytes(range(16, 32))),
    topic="orders",
    topic_id=Uuid(bytes(range(1, 17))),
    partition=3,
    segment_id=Uuid(bytes(range(255, 239, -1))),
    start_offset=1000,
    end_offset=1999,
    remote_log_start_offset=500,
    layout="kafka",
    software="kafka-rlm 0.1.0",
    objects=(
        ManifestObject(name=f"{STEM}.log", size_bytes=1048576, crc32c=4294967295),
        ManifestObject(name=f"{STEM}.indexes", size_bytes=512, crc32c=7),
    ),
    segment_metadata=b"\x01\x00\x00any bytes\xff",
)
IDENTITY = StoreIdentity(
    store_id=Uuid(bytes(range(16, 32))), cluster_id="cluster-1", created_ms=1767225600000
)


def test_golden_manifest() -> None:
    golden = (FORMATS / "manifest.rsm-manifest").read_bytes()
    assert build_manifest(MANIFEST) == golden
    assert Manifest.parse(golden) == MANIFEST


def test_golden_identity() -> None:
    golden = (FORMATS / "rlm-store.json").read_bytes()
    assert encode_identity(IDENTITY) == golden
    assert decode_identity(golden, "here") == IDENTITY


@given(
    st.text(max_size=30),
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.binary(max_size=300),
    st.lists(st.tuples(st.text(max_size=9), st.integers(0, 2**40), st.integers(0, 2**32 - 1))),
)
def test_manifests_round_trip(
    software: str, start: int, count: int, metadata: bytes, objects: list[tuple[str, int, int]]
) -> None:
    manifest = replace(
        MANIFEST,
        software=software,
        start_offset=start,
        end_offset=start + count,
        segment_metadata=metadata,
        objects=tuple(
            ManifestObject(name=name, size_bytes=size, crc32c=crc) for name, size, crc in objects
        ),
    )
    assert Manifest.parse(build_manifest(manifest)) == manifest


def test_unknown_fields_are_tolerated() -> None:
    fields = json.loads(build_manifest(MANIFEST))
    fields["later"] = {"x": 1}
    fields["objects"][0]["later"] = True
    assert Manifest.parse(json.dumps(fields).encode()) == MANIFEST
    identity = json.loads(encode_identity(IDENTITY))
    assert decode_identity(json.dumps({**identity, "later": 1}).encode(), "here") == IDENTITY


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("v", 2, "version 2 is not known"),
        ("v", "1", "version '1' is not known"),
        ("v", True, "version True is not known"),
        ("kind", "store", "kind 'segment'"),
        ("start_offset", -1, "start_offset"),
        ("start_offset", True, "start_offset"),
        ("start_offset", 5000, "are no range"),
        ("end_offset", 2**63, "end_offset"),
        ("topic_id", "short", "22 base64url"),
        ("segment_metadata", "*", "base64"),
        ("objects", [1], "not an object"),
        ("objects", [{"name": "a", "size_bytes": 1, "crc32c": 2**32}], "crc32c"),
        ("cluster_id", None, "cluster_id"),
    ],
)
def test_manifests_refused(field: str, value: Any, why: str) -> None:
    fields = {**json.loads(build_manifest(MANIFEST)), field: value}
    with pytest.raises(Corrupt, match=r"x/y\.rsm-manifest cannot be used") as caught:
        Manifest.parse(json.dumps(fields).encode(), "x/y.rsm-manifest")
    assert why in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"v":1}'])
def test_bytes_that_are_no_manifest_or_identity(data: bytes) -> None:
    with pytest.raises(Corrupt):
        Manifest.parse(data)
    with pytest.raises(Corrupt, match="identity object here"):
        decode_identity(data, "here")


@given(st.integers(0, 10_000))
def test_every_truncated_manifest_is_corrupt(cut: int) -> None:
    data = build_manifest(MANIFEST)
    with pytest.raises(Corrupt):
        Manifest.parse(data[: cut % len(data)])


@pytest.mark.parametrize(
    ("field", "value"),
    [("v", 2), ("kind", "segment"), ("store_id", 7), ("cluster_id", ""), ("created_ms", 1.5)],
)
def test_identities_refused(field: str, value: Any) -> None:
    fields = {**json.loads(encode_identity(IDENTITY)), field: value}
    with pytest.raises(Corrupt, match="identity object here"):
        decode_identity(json.dumps(fields).encode(), "here")


def test_a_manifest_over_one_mebibyte_is_refused() -> None:
    with pytest.raises(Invalid, match="1048576"):
        build_manifest(replace(MANIFEST, segment_metadata=bytes(1024 * 1024)))
