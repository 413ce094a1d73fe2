"""The table-driven codec against Kafka's message JSON, all versions of all tables."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_protocol.apis import API_VERSIONS, APIS, FETCH, METADATA
from kafka_protocol.primitives import WireError
from kafka_protocol.schema import (
    UNKNOWN_TAGS,
    Api,
    Array,
    Field,
    Scalar,
    Schema,
    Struct,
    VersionRange,
    decode,
    encode,
)
from tests.kafka_protocol.oracle import (
    Json,
    Message,
    Oracle,
    snake,
    snake_name,
    version_range,
    within,
)

CASES = [
    pytest.param(api, kind, version, id=f"{api.name}{kind}-v{version}")
    for api in APIS.values()
    for kind in ("Request", "Response")
    for version in range(api.versions.low, api.versions.high + 1)
    if not (api is API_VERSIONS and version == 5)  # not in the JSON of 4.3: its own test below
]
SEEDS = range(6)


def schema_of(api: Api, kind: str) -> Schema:
    return api.request if kind == "Request" else api.response


def only_present(value: Any, message: Message, fields: list[Json]) -> Any:
    """Our decoded value without the fields that this version lacks."""
    kept = {UNKNOWN_TAGS: value[UNKNOWN_TAGS]} if UNKNOWN_TAGS in value else {}
    for one in message.fields(fields):
        field = value[snake_name(one["name"])]
        inner = message.struct_fields(one)
        if inner and isinstance(field, list):
            field = [only_present(element, message, inner) for element in field]
        elif inner and isinstance(field, dict):
            field = only_present(field, message, inner)
        kept[snake_name(one["name"])] = field
    return kept


@pytest.mark.parametrize(("api", "kind", "version"), CASES)
def test_bytes_and_values_agree_with_kafkas_json(
    oracle: Oracle, api: Api, kind: str, version: int
) -> None:
    schema = schema_of(api, kind)
    message = oracle.message(f"{api.name}{kind}", version)
    for seed in SEEDS:
        value = message.generate(random.Random(f"{schema.name} {version} {seed}"))
        expected = message.encode(value)
        assert encode(schema, version, snake(value)) == expected
        decoded, end = decode(schema, version, b"junk" + expected + b"more", 4)
        assert end == 4 + len(expected)
        assert only_present(decoded, message, message.spec["fields"]) == snake(value)
        assert encode(schema, version, decoded) == expected
    assert encode(schema, version, {}) == message.encode({})


@pytest.mark.parametrize(("api", "kind", "version"), CASES)
def test_cut_or_damaged_bytes_are_a_wire_error(
    oracle: Oracle, api: Api, kind: str, version: int
) -> None:
    schema = schema_of(api, kind)
    message = oracle.message(f"{api.name}{kind}", version)
    rng = random.Random(f"damage {schema.name} {version}")
    encoded = message.encode(message.generate(rng))
    for size in range(len(encoded)):
        with pytest.raises(WireError, match=f"{schema.name} v{version}: .* position"):
            decode(schema, version, encoded[:size])
    for _ in range(200 if encoded else 0):
        damaged = bytearray(encoded)
        damaged[rng.randrange(len(damaged))] = rng.choice((0, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        try:
            decode(schema, version, damaged)
        except WireError:
            continue


def rows(fields: tuple[Field, ...]) -> Iterator[tuple[Field, tuple[Field, ...]]]:
    for row in fields:
        inner = row.type.element if isinstance(row.type, Array) else row.type
        yield row, inner.fields if isinstance(inner, Struct) else ()


def check_rows(spec: Json, fields: list[Json], ours: tuple[Field, ...], valid: range) -> None:
    assert [row.name for row in ours] == [snake_name(one["name"]) for one in fields]
    for one, (row, inner) in zip(fields, rows(ours), strict=True):
        for version in valid:
            what = f"{spec['name']} v{version} {row.name}"
            assert row.versions.has(version) == within(one["versions"], version), what
            assert row.nullable.has(version) == within(one.get("nullableVersions"), version), what
            assert row.tagged.has(version) == within(one.get("taggedVersions"), version), what
        assert row.tag == one.get("tag")
        assert row.ignorable == one.get("ignorable", False)
        kind = row.type.element if isinstance(row.type, Array) else row.type
        if isinstance(kind, Scalar):
            assert kind.value == one["type"].removeprefix("[]").replace("records", "bytes")
        common = {struct["name"]: struct["fields"] for struct in spec.get("commonStructs", ())}
        of_one = one.get("fields") or common.get(one["type"].removeprefix("[]"), [])
        check_rows(spec, of_one, inner, valid)


@pytest.mark.parametrize("api", [one for one in APIS.values() if one is not API_VERSIONS])
def test_tables_say_what_kafkas_json_says(oracle: Oracle, api: Api) -> None:
    for kind in ("Request", "Response"):
        spec = oracle.messages[f"{api.name}{kind}"]
        valid = oracle.valid_versions(f"{api.name}{kind}")
        assert spec["apiKey"] == api.key
        flexible = spec["flexibleVersions"]
        if flexible == "none":
            assert api.flexible_from > api.versions.high
        else:
            assert version_range(flexible)[0] == api.flexible_from
        assert api.versions.low <= valid[0] and valid[-1] <= api.versions.high
        check_rows(spec, spec["fields"], schema_of(api, kind).body.fields, valid)


def test_api_versions_5_adds_the_node_the_client_expects() -> None:
    """KIP-1242, Kafka 4.4: the misrouted-connection check; the answer is that of v4."""
    value = {"client_software_name": "j", "client_software_version": "1"}
    encoded = encode(API_VERSIONS.request, 5, {**value, "cluster_id": "cl", "node_id": 7})
    assert encoded == b"\x02j\x021\x03cl\0\0\0\x07\0"
    assert encode(API_VERSIONS.request, 5, value) == b"\x02j\x021\0\xff\xff\xff\xff\0"
    assert encode(API_VERSIONS.response, 5, {}) == encode(API_VERSIONS.response, 4, {})


def test_a_field_the_version_lacks_is_refused_unless_ignorable_or_default() -> None:
    assert encode(METADATA.request, 4, {"include_topic_authorized_operations": False})
    with pytest.raises(WireError, match="no field include_topic_authorized_operations"):
        encode(METADATA.request, 4, {"include_topic_authorized_operations": True})
    assert encode(FETCH.request, 4, {"rack_id": "r1"}) == encode(FETCH.request, 4, {})


def test_wrong_values_are_a_wire_error() -> None:
    for wrong in (
        {"max_wait": 1},
        {"max_wait_ms": 2**31},
        {"max_wait_ms": "1"},
        {"topics": 3},
        {"topics": [{"topic": None}]},
        {"topics": [{"topic": "x" * 40_000}]},
        {"topics": [7]},
        {UNKNOWN_TAGS: [(99, b"")]},
    ):
        with pytest.raises(WireError, match="Fetch request v4"):
            encode(FETCH.request, 4, wrong)
    with pytest.raises(WireError, match="16 bytes"):
        encode(FETCH.request, 13, {"topics": [{"topic_id": b"short"}]})


@pytest.mark.parametrize("version", [3, 19])
def test_a_version_without_table_is_a_wire_error(version: int) -> None:
    with pytest.raises(WireError, match="handled"):
        decode(FETCH.response, version, bytes(100))
    with pytest.raises(WireError, match="handled"):
        encode(FETCH.request, version, {})


def test_decoded_defaults_are_not_shared_between_messages() -> None:
    encoded = encode(FETCH.response, 18, {})
    first, _ = decode(FETCH.response, 18, encoded)
    first["node_endpoints"].append("x")
    assert decode(FETCH.response, 18, encoded)[0]["node_endpoints"] == []


def test_a_huge_array_count_does_not_allocate() -> None:
    with pytest.raises(WireError, match="array of 2147483647 elements"):
        decode(METADATA.response, 0, b"\x7f\xff\xff\xff" + bytes(20))


def test_versions_are_kafkas_notation() -> None:
    assert VersionRange(3, 7).has(7)
    assert not VersionRange(0, -1).has(0)
