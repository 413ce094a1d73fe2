"""The broker's small text files, as Kafka 4 writes them, and every way they can be cut off."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.checkpoints import (
    MetaProperties,
    encode_leader_epochs,
    parse_leader_epochs,
    parse_meta_properties,
    parse_offset_checkpoint,
    parse_partition_metadata,
    parse_properties,
)
from kip405.errors import Corrupt
from kip405.ids import Uuid
from kip405.lineage import Lineage
from tests.kip405.segment_builder import lineage

EPOCHS = b"0\n3\n0 0\n4 120\n10 7000000000\n"
OFFSETS = b"0\n2\norders 0 5120\nmy.topic-x 11 0\n"
ID = "jF8s79t9SrG_PNqlwv7bAA"


def test_leader_epochs_both_ways() -> None:
    assert parse_leader_epochs(EPOCHS) == lineage({0: 0, 4: 120, 10: 7_000_000_000})
    assert encode_leader_epochs(parse_leader_epochs(EPOCHS).entries) == EPOCHS
    assert parse_leader_epochs(encode_leader_epochs(())) == Lineage()


def test_an_epoch_without_records_is_dropped_as_kafka_does() -> None:
    assert parse_leader_epochs(b"0\n2\n3 10\n4 10\n") == lineage({4: 10})


@given(st.sets(st.integers(0, 2**31 - 1), max_size=5), st.data())
def test_leader_epochs_round_trip(epochs: set[int], data: st.DataObject) -> None:
    size = len(epochs)
    starts = data.draw(st.sets(st.integers(0, 2**63 - 1), min_size=size, max_size=size))
    one = lineage(dict(zip(sorted(epochs), sorted(starts), strict=True)))
    assert parse_leader_epochs(encode_leader_epochs(one.entries)) == one


def test_offset_checkpoint() -> None:
    assert parse_offset_checkpoint(OFFSETS) == {("orders", 0): 5120, ("my.topic-x", 11): 0}
    assert parse_offset_checkpoint(b"0\n0\n") == {}


def test_checkpoints_cut_short_anywhere_are_corrupt() -> None:
    for size in range(len(EPOCHS)):
        with pytest.raises(Corrupt):
            parse_leader_epochs(EPOCHS[:size])
    for size in range(len(OFFSETS)):
        with pytest.raises(Corrupt):
            parse_offset_checkpoint(OFFSETS[:size])


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"0\n1\n3\n",
        b"0\n1\n3 4 5\n",
        b"0\n2\n3 4\n",
        b"0\n1\n3 4\n5 6\n",
        b"0\n1\nx 4\n",
        b"0\n1\n3 9223372036854775808\n",
        b"0\n2\n4 10\n3 20\n",
        b"0\n2\n3 20\n4 10\n",
        b"0\n1\n-1 4\n",
        b"\xff\n",
        b"0\n-1\n",
    ],
)
def test_leader_epochs_that_cannot_be_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match="leader-epoch checkpoint"):
        parse_leader_epochs(data)


def test_a_partition_twice_in_an_offset_checkpoint_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="orders-0 is there twice"):
        parse_offset_checkpoint(b"0\n2\norders 0 1\norders 0 2\n")


def test_partition_metadata() -> None:
    data = f"version: 0\ntopic_id: {ID}".encode()
    assert parse_partition_metadata(data) == Uuid.parse(ID)
    assert parse_partition_metadata(data + b"\n") == Uuid.parse(ID)
    for size in range(len(data)):
        with pytest.raises(Corrupt, match=r"partition\.metadata"):
            parse_partition_metadata(data[:size])


@pytest.mark.parametrize(
    "data", [f"version: 1\ntopic_id: {ID}", "version: 0\ntopic_id: nonsense", "version 0"]
)
def test_partition_metadata_that_cannot_be_is_corrupt(data: str) -> None:
    with pytest.raises(Corrupt, match=r"partition\.metadata"):
        parse_partition_metadata(data.encode())


def test_meta_properties_as_kraft_writes_them() -> None:
    data = (
        b"#\n#Fri Aug 07 10:00:00 UTC 2026\ncluster.id=MkU3OEVBNTcwNTJENDM2Qk\n"
        b"directory.id=" + ID.encode() + b"\nnode.id=3\nversion=1\n"
    )
    assert parse_meta_properties(data) == MetaProperties(
        version=1, cluster_id="MkU3OEVBNTcwNTJENDM2Qk", node_id=3, directory_id=Uuid.parse(ID)
    )


def test_meta_properties_of_version_0() -> None:
    found = parse_meta_properties(b"version=0\nbroker.id=7\ncluster.id=c\n")
    assert (found.node_id, found.cluster_id, found.directory_id) == (7, "c", None)


@pytest.mark.parametrize(
    "data", [b"", b"version=2\n", b"version=1\nnode.id=x\n", b"version=1\ndirectory.id=q\n"]
)
def test_meta_properties_that_cannot_be_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match=r"meta\.properties"):
        parse_meta_properties(data)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b \n", {"a": "b "}),
        ("a:b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("a\t:\t= b", {"a": "= b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("# c=1\n  ! d=2\n\n \t\n a=1", {"a": "1"}),
        ("a=1\na=2", {"a": "2"}),
        ("dirs=/one,\\\n    /two,\\\r\n\t/three\nb=1", {"dirs": "/one,/two,/three", "b": "1"}),
        ("a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("a=1\\", {"a": "1"}),
        ("a\\ b\\=c\\:d=e", {"a b=c:d": "e"}),
        ("a=\\u0041\\t\\n\\r\\f\\q", {"a": "A\t\n\r\fq"}),
        (
            "listeners=PLAINTEXT://h:9092,TIERED://127.0.0.1:9",
            {"listeners": "PLAINTEXT://h:9092,TIERED://127.0.0.1:9"},
        ),
        ("ü=é", {"ü": "é"}),
        ("a=1\rb=2", {"a": "1", "b": "2"}),
        ("", {}),
    ],
)
def test_properties(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text.encode()) == expected


def test_properties_that_cannot_be_are_corrupt() -> None:
    for data in (b"a=\\u12", b"a=\\uzzzz", b"a=\xff"):
        with pytest.raises(Corrupt, match="properties"):
            parse_properties(data)


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_but_corrupt(data: bytes) -> None:
    for parse in (
        parse_leader_epochs,
        parse_offset_checkpoint,
        parse_partition_metadata,
        parse_meta_properties,
        parse_properties,
    ):
        try:
            parse(data)
        except Corrupt:
            continue
