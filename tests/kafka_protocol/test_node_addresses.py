"""Addresses of nodes in answers: all versions, against Kafka's own message JSON and our codec."""

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.api_versions import REMOVED_APIS
from kafka_protocol.apis import APIS, DESCRIBE_CLUSTER, FETCH, FIND_COORDINATOR, METADATA, PRODUCE
from kafka_protocol.fetch import FetchResponseScanner, scan_fetch_response
from kafka_protocol.frames import encode_response, parse_response_header
from kafka_protocol.node_addresses import (
    NodeAddress,
    NodeAddresses,
    hide_node_endpoints,
    rewrite_describe_cluster,
    rewrite_find_coordinator,
    rewrite_metadata,
    rewrite_node_endpoints,
)
from kafka_protocol.primitives import Buffer, WireError
from kafka_protocol.produce import patch_produce_response
from kafka_protocol.schema import decode
from tests.kafka_protocol.oracle import Json, Oracle

COORDINATOR_NOT_AVAILABLE = 15
SOME = {
    1: NodeAddress(host="proxy-1.example", port=19_092),
    2: NodeAddress(host="p", port=1),
    3: NodeAddress(host="h" * 200, port=65_535),
    4: NodeAddress(host="::1", port=9_092),
}
COMPLETE = NodeAddresses(replaced=SOME, keeps_others=True)
UNKNOWN = NodeAddresses(replaced=SOME, keeps_others=False)


def fetch_endpoints(frame: bytearray, version: int, nodes: NodeAddresses) -> list[Buffer]:
    position = scan_fetch_response(frame, version).tags_position
    return [rewrite_node_endpoints(frame, position, nodes)]


def produce_endpoints(frame: bytearray, version: int, nodes: NodeAddresses) -> list[Buffer]:
    return [patch_produce_response(frame, version, lambda *_: None, nodes)]


Rewriting = Callable[[bytearray, int, NodeAddresses], list[Buffer]]
REWRITES: dict[str, tuple[Rewriting, str, str, range]] = {
    "Metadata": (rewrite_metadata, "Brokers", "NodeId", range(14)),
    "DescribeCluster": (rewrite_describe_cluster, "Brokers", "BrokerId", range(3)),
    "FindCoordinator": (rewrite_find_coordinator, "Coordinators", "NodeId", range(7)),
    "Fetch": (fetch_endpoints, "NodeEndpoints", "NodeId", range(16, 19)),
    "Produce": (produce_endpoints, "NodeEndpoints", "NodeId", range(10, 14)),
}
CASES = [(name, version) for name, row in REWRITES.items() for version in row[3]]


def rewritten(api: str, frame: bytes, version: int, nodes: NodeAddresses) -> bytes:
    return b"".join(REWRITES[api][0](bytearray(frame), version, nodes))


def named_nodes(value: Json, api: str) -> list[Json]:
    """The parts of an answer that have an address, as FindCoordinator up to v3 as a whole."""
    _, name, _, _ = REWRITES[api]
    found: list[Json] = value.get(name, [value])
    return found


def answers(oracle: Oracle, api: str, version: int, count: int = 80) -> Iterator[Json]:
    """Random answers, most of whose nodes are among 0 to 6."""
    message = oracle.message(f"{api}Response", version)
    for seed in range(count):
        rng = random.Random(f"{api} {version} {seed}")
        value = message.generate(rng)
        for node in named_nodes(value, api):
            node[REWRITES[api][2]] = rng.choice((-1, 0, 1, 1, 2, 3, 4, 5, 6))
            if "ErrorCode" in node and api == "FindCoordinator":
                node["ErrorCode"] = rng.choice((0, 0, 0, 16))
        if "EndpointType" in value:
            value["EndpointType"] = rng.choice((1, 1, 2))
        yield value


def replace_known(value: Json, api: str) -> None:
    """What shall become of a decoded answer, where everything is known."""
    if value.get("EndpointType", 1) != 1:
        return
    for node in named_nodes(value, api):
        address = SOME.get(node[REWRITES[api][2]])
        if address and not (api == "FindCoordinator" and node["ErrorCode"]):
            node |= {"Host": address.host, "Port": address.port}


def leave_out_unknown(value: Json, api: str) -> None:
    """What shall become of it beyond that, where nodes that are not known are left out."""
    _, array, key, _ = REWRITES[api]
    if value.get("EndpointType", 1) != 1:
        return
    if api != "FindCoordinator":
        value[array] = [one for one in value[array] if one[key] in SOME or one[key] < 0]
        return
    for node in named_nodes(value, api):
        if not node["ErrorCode"] and node["NodeId"] >= 0 and node["NodeId"] not in SOME:
            nobody = {"NodeId": -1, "Host": "", "Port": -1}
            node |= {**nobody, "ErrorCode": COORDINATOR_NOT_AVAILABLE}


@pytest.mark.parametrize(("api", "version"), CASES)
def test_only_host_and_port_of_known_nodes_are_replaced(
    oracle: Oracle, api: str, version: int
) -> None:
    changed = 0
    for value in answers(oracle, api, version):
        frame = oracle.response_frame(api, version, value)
        expected = copy.deepcopy(value)
        replace_known(expected, api)
        found = rewritten(api, frame, version, COMPLETE)
        assert found == oracle.response_frame(api, version, expected)
        changed += found != frame
    assert changed > 5


@pytest.mark.parametrize(("api", "version"), CASES)
def test_h17_nodes_of_which_nothing_is_known_are_left_out(
    oracle: Oracle, api: str, version: int
) -> None:
    left_out = 0
    for value in answers(oracle, api, version):
        frame = oracle.response_frame(api, version, value)
        expected = copy.deepcopy(value)
        replace_known(expected, api)
        before = copy.deepcopy(expected)
        leave_out_unknown(expected, api)
        # An empty tagged array is written by nobody, but it may be read.
        is_emptied = not expected.get("NodeEndpoints", [None]) and before["NodeEndpoints"]
        found = rewritten(api, frame, version, UNKNOWN)
        if is_emptied:
            assert read_back(api, version, found)["node_endpoints"] == []
        else:
            assert found == oracle.response_frame(api, version, expected)
        left_out += before != expected
    assert left_out > 5


def read_back(api: str, version: int, frame: bytes) -> dict[str, Any]:
    """By our own codec; every byte is read."""
    [table] = [one for one in APIS.values() if one.name == api]
    _, position = parse_response_header(frame, table, version)
    value, end = decode(table.response, version, frame, position)
    assert end == len(frame)
    return value


ADDRESSES = st.builds(
    NodeAddress,
    host=st.text(st.characters(codec="utf-8"), max_size=300),
    port=st.integers(-1, 65_535),
)
BROKERS = st.lists(
    st.tuples(st.integers(-1, 9), ADDRESSES, st.none() | st.text(max_size=20)), max_size=6
)


@given(
    brokers=BROKERS,
    replaced=st.dictionaries(st.integers(0, 9), ADDRESSES, max_size=6),
    keeps_others=st.booleans(),
    version=st.sampled_from(range(14)),
)
def test_everything_but_host_and_port_is_read_back_unchanged(
    brokers: list[tuple[int, NodeAddress, str | None]],
    replaced: dict[int, NodeAddress],
    keeps_others: bool,
    version: int,
) -> None:
    nodes = NodeAddresses(replaced=replaced, keeps_others=keeps_others)
    rows = [
        {"node_id": node_id, "host": address.host, "port": address.port, "rack": rack}
        for node_id, address, rack in brokers
    ]
    topic = {"name": "t", "partitions": [{"partition_index": 3, "leader_id": 5}]}
    body = {"brokers": rows, "controller_id": 4, "cluster_id": "c", "topics": [topic]}
    frame = encode_response(METADATA, version, 7, body)[4:]
    found = b"".join(rewrite_metadata(frame, version, nodes))
    before, after = read_back("Metadata", version, frame), read_back("Metadata", version, found)
    kept = [one for one in before["brokers"] if not nodes.leaves_out(one["node_id"])]
    for one in kept:
        address = replaced.get(one["node_id"])
        if address is not None:
            one |= {"host": address.host, "port": address.port}
    assert after == before | {"brokers": kept}
    assert found[:4] == frame[:4]


@pytest.mark.parametrize(("api", "version"), CASES)
def test_cut_answers_are_a_wire_error(oracle: Oracle, api: str, version: int) -> None:
    [value] = answers(oracle, api, version, 1)
    frame = oracle.response_frame(api, version, value)
    fails = 0
    for size in range(len(frame)):
        try:
            found = rewritten(api, frame[:size], version, COMPLETE)
        except WireError:
            fails += 1
        else:  # what lies behind the nodes is not read: it is cut as before
            rest = frame[size:]
            assert found + rest == rewritten(api, frame, version, COMPLETE)
    assert fails > 4


@pytest.mark.parametrize(("api", "version"), CASES)
def test_no_byte_of_an_answer_does_more_than_a_wire_error(
    oracle: Oracle, api: str, version: int
) -> None:
    for value in answers(oracle, api, version, 5):
        frame = oracle.response_frame(api, version, value)
        rng = random.Random(frame)
        for _ in range(300):
            broken = bytearray(frame)
            for _ in range(rng.choice((1, 1, 2, 5))):
                broken[rng.randrange(len(broken))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            for nodes in (COMPLETE, UNKNOWN):
                try:
                    rewritten(api, bytes(broken), version, nodes)
                except WireError as error:
                    assert api in str(error) or "endpoints" in str(error)


def test_metadata_byte_by_byte() -> None:
    before = (
        b"\0\0\0\x4d"  # correlation id
        b"\0\0\0\x02"  # two brokers
        b"\0\0\0\x01\0\x03old\0\0\x23\x84\0\x01r"
        b"\0\0\0\x09\0\x04kept\0\0\x23\x85\xff\xff"
        b"\0\0\0\x01\0\0\0\0"  # controller, no topics
    )
    after = (
        b"\0\0\0\x4d"
        b"\0\0\0\x02"
        b"\0\0\0\x01\0\x0fproxy-1.example\0\0\x4a\x94\0\x01r"
        b"\0\0\0\x09\0\x04kept\0\0\x23\x85\xff\xff"
        b"\0\0\0\x01\0\0\0\0"
    )
    assert b"".join(rewrite_metadata(before, 1, COMPLETE)) == after
    without = after[:7] + b"\x01" + after[8:36] + after[-8:]
    assert b"".join(rewrite_metadata(before, 1, UNKNOWN)) == without


def test_the_long_rest_of_an_answer_is_not_copied() -> None:
    topics = [{"name": f"topic-{n}", "partitions": []} for n in range(1_000)]
    brokers = [{"node_id": 1, "host": "a", "port": 2}]
    frame = encode_response(METADATA, 12, 7, {"brokers": brokers, "topics": topics})[4:]
    changed, rest = rewrite_metadata(frame, 12, COMPLETE)
    assert isinstance(rest, memoryview)
    assert (rest.obj, len(changed) < 60) == (frame, True)
    nothing = NodeAddresses(replaced={}, keeps_others=True)
    assert rewrite_metadata(frame, 12, nothing) == [frame]


@pytest.mark.parametrize("version", [1, 2])
def test_addresses_of_controllers_are_left_alone(version: int) -> None:
    """Their ids may be those of brokers."""
    brokers = [{"broker_id": 1, "host": "controller", "port": 9_093}]
    body = {"endpoint_type": 2, "cluster_id": "c", "controller_id": 1, "brokers": brokers}
    frame = encode_response(DESCRIBE_CLUSTER, version, 7, body)[4:]
    assert rewrite_describe_cluster(frame, version, UNKNOWN) == [frame]


def test_another_version_is_a_wire_error() -> None:
    for rewrite, version in (
        (rewrite_metadata, 14),
        (rewrite_describe_cluster, 3),
        (rewrite_find_coordinator, 7),
    ):
        with pytest.raises(WireError, match=f"v{version}"):
            rewrite(bytes(80), version, COMPLETE)


@pytest.mark.parametrize("version", [16, 17, 18])
def test_kip_951_endpoints_that_flow_become_a_field_that_no_client_knows(
    oracle: Oracle, version: int
) -> None:
    hidden = 0
    for value in answers(oracle, "Fetch", version):
        frame = bytearray(oracle.response_frame("Fetch", version, value))
        before = read_back("Fetch", version, bytes(frame))
        hide_node_endpoints(memoryview(frame)[scan_fetch_response(frame, version).tags_position :])
        after = read_back("Fetch", version, bytes(frame))
        assert after["node_endpoints"] == []
        assert after["responses"] == before["responses"]
        hidden += before["node_endpoints"] != []
        scan_fetch_response(frame, version)
    assert hidden > 5


def test_a_tag_of_more_bytes_than_it_needs_is_refused() -> None:
    with pytest.raises(WireError, match="more than one byte"):
        hide_node_endpoints(memoryview(bytearray(b"\x01\x80\x00\x01\x01")))


def test_the_scanner_says_when_the_last_tags_come(oracle: Oracle) -> None:
    for value in answers(oracle, "Fetch", 18, 5):
        frame = oracle.response_frame("Fetch", 18, value)
        scanner, position, tags_position = FetchResponseScanner(len(frame), 18), 0, -1
        while scanner.left_bytes:
            if scanner.is_at_tags:
                tags_position = position
            size_bytes, head = scanner.scan(memoryview(bytearray(frame))[position:])
            if head is not None:
                scanner.passed(head)
            position += size_bytes
        assert tags_position == scan_fetch_response(frame, 18).tags_position


FOLLOWED_BY_NO_CLIENT = {
    **dict.fromkeys(
        ("Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "FetchSnapshot", "UpdateRaftVoter"),
        "among voters of the quorum",
    ),
    "DescribeQuorum": "listeners of controllers, which clients are not sent to",
    **dict.fromkeys(
        (
            *("DescribeGroups", "ConsumerGroupDescribe", "ShareGroupDescribe"),
            *("StreamsGroupDescribe", "StreamsGroupHeartbeat"),
        ),
        "where a member of a group is",
    ),
    **dict.fromkeys(("DescribeAcls", "DeleteAcls"), "from where somebody may come"),
}


def test_every_answer_with_a_host_is_rewritten_removed_or_followed_by_no_client(
    oracle: Oracle,
) -> None:
    found = {
        name.removesuffix("Response"): spec["apiKey"]
        for name, spec in oracle.messages.items()
        if name.endswith("Response") and "Host'" in str(spec)
    }
    removed = {name for name, key in found.items() if key in REMOVED_APIS}
    assert removed == {"ShareFetch", "ShareAcknowledge"}
    assert found.keys() - removed == REWRITES.keys() | FOLLOWED_BY_NO_CLIENT.keys()
    for name, (_, _, _, versions) in REWRITES.items():
        [api] = [one for one in APIS.values() if one.name == name]
        is_first = name in ("Fetch", "Produce")
        assert versions.stop - 1 == api.versions.high
        assert is_first or versions.start == api.versions.low
    assert {METADATA, DESCRIBE_CLUSTER, FIND_COORDINATOR, FETCH, PRODUCE} <= set(APIS.values())


@pytest.mark.parametrize("name", ["Fetch", "Produce"])
def test_earlier_versions_have_no_endpoints(oracle: Oracle, name: str) -> None:
    fields = {one["name"]: one for one in oracle.messages[f"{name}Response"]["fields"]}
    assert fields["NodeEndpoints"]["versions"] == f"{REWRITES[name][3].start}+"
