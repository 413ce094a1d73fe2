"""Names of objects: golden names, entropy vectors, parsing back, and what is refused."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.errors import Invalid
from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.segments import CustomMetadata, Layout, SegmentLocator
from rsm_plugins.layout.keys import (
    DATA_OBJECTS,
    ObjectKind,
    check_prefix,
    data_objects_of,
    entropy_digits,
    is_segment_object,
    layout_of,
    locator_of,
    object_name,
    object_names,
    objects_of,
    parse_name,
    with_prefix,
)

GOLDEN = Path(__file__).parents[1] / "formats" / "object-keys.json"
TOPICS = st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True).filter(
    lambda topic: topic not in (".", "..")
)
_WRITTEN = {layout: (*kinds, ObjectKind.MANIFEST) for layout, kinds in DATA_OBJECTS.items()}
UUIDS = st.binary(min_size=16, max_size=16).map(Uuid)


@st.composite
def locators(draw: st.DrawFn) -> SegmentLocator:
    partition = TopicIdPartition(
        topic_id=draw(UUIDS), topic=draw(TOPICS), partition=draw(st.integers(0, 2**31 - 1))
    )
    bits = draw(st.integers(0, 32))
    layout = draw(st.sampled_from(list(DATA_OBJECTS)))
    custom = CustomMetadata(store_id=Uuid(bytes(16)), entropy_bits=bits, layout=layout)
    return SegmentLocator(
        cluster_id=draw(st.from_regex(r"[A-Za-z0-9_-]{1,30}", fullmatch=True)),
        segment_id=RemoteLogSegmentId(topic_id_partition=partition, id=draw(UUIDS)),
        start_offset=draw(st.integers(0, 2**63 - 1)),
        custom_metadata=custom.encode(),
    )


def golden_keys() -> list[dict[str, object]]:
    cases: list[dict[str, object]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return cases


@pytest.mark.parametrize("case", golden_keys(), ids=lambda case: str(case["what"]))
def test_golden_keys(case: dict[str, object]) -> None:
    fields = case["segment"]
    assert isinstance(fields, dict)
    partition = TopicIdPartition(
        topic_id=Uuid.parse(fields["topic_id"]),
        topic=fields["topic"],
        partition=fields["partition"],
    )
    layout = Layout.parse(fields.get("layout", "kafka"))
    custom = CustomMetadata(
        store_id=Uuid(bytes(16)), entropy_bits=fields["entropy_bits"], layout=layout
    )
    locator = SegmentLocator(
        cluster_id=fields["cluster_id"],
        segment_id=RemoteLogSegmentId(
            topic_id_partition=partition, id=Uuid.parse(fields["segment_id"])
        ),
        start_offset=fields["start_offset"],
        custom_metadata=custom.encode(),
    )
    prefix = check_prefix(fields["prefix"])
    assert [with_prefix(prefix, object_name(locator, kind)) for kind in _WRITTEN[layout]] == case[
        "keys"
    ]


@pytest.mark.parametrize(
    ("cluster_id", "topic", "partition", "digits"),
    [
        ("kafkaCluster1", "topicA", 0, "01011"),
        ("kafkaCluster1", "topicA", 1, "01010"),
        ("kafkaCluster1", "topicB", 0, "11100"),
        ("my-cluster", "my-topic", 0, "111"),
        ("any", "topic", 7, ""),
    ],
)
def test_entropy_vectors(cluster_id: str, topic: str, partition: int, digits: str) -> None:
    assert entropy_digits(cluster_id, topic, partition, len(digits)) == digits


@pytest.mark.parametrize("bits", [-1, 33])
def test_entropy_bits_have_limits(bits: int) -> None:
    with pytest.raises(Invalid, match="entropy"):
        entropy_digits("c", "t", 0, bits)


@given(locators(), st.data())
def test_names_parse_back(locator: SegmentLocator, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(objects_of(locator)))
    name = object_name(locator, kind)
    parsed = parse_name(name)
    assert is_segment_object(name)
    partition = locator.segment_id.topic_id_partition
    assert parsed.kind is kind
    assert (parsed.cluster_id, parsed.start_offset) == (locator.cluster_id, locator.start_offset)
    assert (parsed.topic_id, parsed.partition) == (partition.topic_id, partition.partition)
    assert parsed.segment_id == locator.segment_id.id
    assert partition.topic[:200] == parsed.topic_cut
    found = locator_of(parsed, partition.topic)
    assert object_name(found, kind) == name
    if kind is not ObjectKind.MANIFEST:  # which has the same name in all layouts
        assert object_names(found) == object_names(locator)
    assert all(len(part.encode()) <= 255 for part in name.split("/"))


@given(st.text(max_size=60))
def test_any_text_is_a_prefix_or_invalid(text: str) -> None:
    try:
        prefix = check_prefix(text)
    except Invalid:
        return
    assert prefix == text
    assert not {"..", "."} & set(prefix.split("/"))
    assert not prefix.startswith("/")


@pytest.mark.parametrize(
    "prefix", ["/a", "a/", "/", "a//b", "..", "a/../b", "a/.", "a\\b", "a\0b", "x" * 513, "\u00fc"]
)
def test_prefixes_refused(prefix: str) -> None:
    with pytest.raises(Invalid, match="prefix"):
        check_prefix(prefix)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "rlm-store.json",
        "cluster/topic/0/file",
        "c/t-AAAAAAAAAAAAAAAAAAAAAA/0/00000000000000000001-AAAAAAAAAAAAAAAAAAAAAA.snapshot",
        "c/t-AAAAAAAAAAAAAAAAAAAAAA/00/00000000000000000001-AAAAAAAAAAAAAAAAAAAAAA.log",
        "c/t-AAAAAAAAAAAAAAAAAAAAAA/0/1-AAAAAAAAAAAAAAAAAAAAAA.log",
        "c/t-AAAAAAAAAAAAAAAAAAAAAB/0/00000000000000000001-AAAAAAAAAAAAAAAAAAAAAA.log",
        "2/c/t-AAAAAAAAAAAAAAAAAAAAAA/0/00000000000000000001-AAAAAAAAAAAAAAAAAAAAAA.log",
        "../t-AAAAAAAAAAAAAAAAAAAAAA/0/00000000000000000001-AAAAAAAAAAAAAAAAAAAAAA.log",
    ],
)
def test_other_names_are_no_objects_of_segments(name: str) -> None:
    with pytest.raises(Invalid):
        parse_name(name)


def test_unknown_custom_metadata_is_refused_not_guessed() -> None:
    partition = TopicIdPartition(topic_id=Uuid(bytes(16)), topic="t", partition=0)
    locator = SegmentLocator(
        cluster_id="c",
        segment_id=RemoteLogSegmentId(topic_id_partition=partition, id=Uuid(bytes(16))),
        start_offset=0,
        custom_metadata=b"\x02" + bytes(40),
    )
    with pytest.raises(Invalid, match="version 2"):
        object_name(locator, ObjectKind.LOG)


@given(locators())
def test_a_segment_has_the_objects_of_its_layout_and_no_others(locator: SegmentLocator) -> None:
    own = objects_of(locator)
    assert own == (ObjectKind.MANIFEST, *DATA_OBJECTS[layout_of(locator)])
    assert data_objects_of(locator) == own[1:]
    for kind in ObjectKind:
        if kind not in own:
            with pytest.raises(Invalid, match=f"layout {layout_of(locator)} and no {kind.value}"):
                object_name(locator, kind)


def test_no_object_is_of_two_layouts() -> None:
    kinds = [kind for layout_kinds in DATA_OBJECTS.values() for kind in layout_kinds]
    assert len(kinds) == len(set(kinds))
    assert ObjectKind.MANIFEST not in kinds


def test_without_custom_metadata_a_segment_is_kafkas() -> None:
    name = "c/t-AAAAAAAAAAAAAAAAAAAAAA/0/00000000000000000001-AAAAAAAAAAAAAAAAAAAAAA.log"
    locator = locator_of(parse_name(name), "t")
    assert locator.custom_metadata is None
    assert layout_of(locator) is Layout.KAFKA
