"""Names in a bucket of Pinterest's uploader: their own examples, parsing, and marks."""

import hashlib

import pytest

from kip405.errors import Corrupt, Invalid
from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.segments import CustomMetadata, SegmentLocator
from rsm_plugins.layout.pinterest import (
    PinterestLayout,
    UploadedFile,
    check_mark,
    encode_watermark,
    is_marked,
    mark_of,
    parse_file,
    parse_folder,
    parse_watermark,
    reference,
)

NAME = "111/my-cluster/my-topic-0/00000000000000000000.log"


def locator(plugin: bytes | None) -> SegmentLocator:
    custom = None
    if plugin is not None:
        custom = CustomMetadata(store_id=Uuid(bytes(16)), plugin=plugin).encode()
    partition = TopicIdPartition(topic_id=Uuid(b"\x01" * 16), topic="my-topic", partition=0)
    return SegmentLocator(
        cluster_id="ours",
        segment_id=RemoteLogSegmentId(topic_id_partition=partition, id=Uuid(b"\x02" * 16)),
        start_offset=0,
        custom_metadata=custom,
    )


def test_the_examples_of_their_documentation() -> None:
    """README of ts-segment-uploader, "S3 Prefix Entropy"."""
    plain = PinterestLayout(cluster="my-cluster")
    assert plain.file("my-topic", 0, 0) == "my-cluster/my-topic-0/00000000000000000000.log"
    salted = PinterestLayout(cluster="my-cluster", entropy_bits=3)
    assert salted.file("my-topic", 0, 0) == NAME
    assert salted.log_of(locator(None)) == NAME


@pytest.mark.parametrize("bits", [1, 5, 8, 17, 32])
def test_entropy_is_the_beginning_of_md5_over_the_three_joined_by_dashes(bits: int) -> None:
    """Utils.getBinaryHashForClusterTopicPartition: each byte as eight digits, then cut."""
    digest = hashlib.md5(b"test-cluster-test_topic_2-40", usedforsecurity=False).digest()
    digits = "".join(f"{byte:08b}" for byte in digest)[:bits]
    layout = PinterestLayout(cluster="test-cluster", entropy_bits=bits)
    assert layout.folder("test_topic_2", 40) == f"{digits}/test-cluster/test_topic_2-40"


def test_md5_of_the_vector() -> None:
    """The digits of one vector in full, computed with md5sum."""
    layout = PinterestLayout(cluster="my-cluster", entropy_bits=32)
    assert layout.folder("my-topic", 0).startswith("11111100000101001101111001011000/")


@pytest.mark.parametrize(
    ("file", "found"),
    [
        ("00000000000000000362.index", UploadedFile(base_offset=362, suffix="index")),
        ("00000000000000000362.timeindex", UploadedFile(base_offset=362, suffix="timeindex")),
        ("00000000000000000362.log", UploadedFile(base_offset=362, suffix="log")),
        ("offset.wm", None),
        ("_metadata", None),
        ("362.log", None),
        ("00000000000000000362.log.deleted", None),
        ("00000000000000000362.snapshot", None),
        ("99999999999999999999.log", None),
    ],
)
def test_files(file: str, found: UploadedFile | None) -> None:
    assert parse_file(file) == found


def test_folders_of_partitions_whose_names_are_alike() -> None:
    assert parse_folder("a-1") == ("a", 1)
    assert parse_folder("a-10") == ("a", 10)
    assert parse_folder("a-1-0") == ("a-1", 0)
    assert parse_folder("a.b_c-0") == ("a.b_c", 0)
    for other in ("a", "a-01", "a-x", "-1", "..-1-", "a b-1", "a-99999999999"):
        assert parse_folder(other) is None


def test_watermarks() -> None:
    assert encode_watermark(362) == b"00000000000000000362"
    assert parse_watermark(encode_watermark(362), "here") == 362
    assert parse_watermark(b"7\n", "here") == 7
    for wrong in (b"", b"-1", b"99999999999999999999", b"seven", b"\xff"):
        with pytest.raises(Corrupt, match="here"):
            parse_watermark(wrong, "here")


def test_what_is_listed() -> None:
    layout = PinterestLayout(cluster="c", entropy_bits=1)
    assert layout.listed_folders((), None) == ("0/c/", "1/c/")
    assert layout.listed_folders(("t",), 4) == (f"{layout.folder('t', 4)}/",)
    assert PinterestLayout(cluster="c").listed_folders(("t",), None) == ("c/",)
    assert PinterestLayout(cluster="c", entropy_bits=20).listed_folders((), None) == ("",)


def test_a_mark_holds_for_one_object() -> None:
    assert not is_marked(locator(None))
    assert not is_marked(locator(b""))
    assert not is_marked(locator(b"something else"))
    marked = locator(mark_of(NAME))
    assert is_marked(marked)
    check_mark(marked, NAME)
    with pytest.raises(Invalid, match="was not imported from"):
        check_mark(marked, NAME.replace("111/", "11/"))


def test_a_reference_is_one_line_for_people_and_tools() -> None:
    assert reference(NAME, 1_000, 7) == (
        b'{"v":1,"kind":"reference","layout":"pinterest",'
        b'"name":"111/my-cluster/my-topic-0/00000000000000000000.log",'
        b'"size_bytes":1000,"crc32c":7}'
    )


def test_values_that_no_key_can_have_are_refused() -> None:
    for cluster, bits in (("a/b", 0), ("..", 0), ("", 0), ("c", 33), ("c", -1)):
        with pytest.raises(Invalid):
            PinterestLayout(cluster=cluster, entropy_bits=bits)
    with pytest.raises(Invalid):
        PinterestLayout(cluster="c").file("t", 0, -1)
