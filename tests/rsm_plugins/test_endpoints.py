"""Where segments go: rules, a class of one's own, entropy, and what is refused."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Invalid
from kip405.ids import TopicIdPartition, Uuid
from rsm_plugins.endpoints import (
    EndpointStore,
    RuleProvider,
    StorageEndpoint,
    TopicRule,
    endpoint_in,
    load_provider,
    location_of,
)

HOT = EndpointStore(name="hot", plugin="s3", location="s3://hot", prefix="kafka", entropy_bits=3)
COLD = EndpointStore(name="cold", plugin="hdfs", location="hdfs://nn:8020/archive")
RULES = (
    TopicRule(topics=r"audit\..*", store="cold"),
    TopicRule(topics=r"audit|payments", store="hot", entropy_bits=5),
    TopicRule(topics=r"pay.*", store="cold"),
)


class ByPartition:
    """Even partitions to hot, odd ones to cold."""

    def __init__(self, *, stores: Mapping[str, EndpointStore]) -> None:
        self._stores = stores

    def endpoint(self, cluster_id: str, topic: str, partition: int) -> StorageEndpoint:
        return endpoint_in(self._stores["cold" if partition % 2 else "hot"])


class Elsewhere:
    """Right about nothing: another prefix for one topic, no such store for the others."""

    def __init__(self, *, stores: Mapping[str, EndpointStore]) -> None:
        self._stores = stores

    def endpoint(self, cluster_id: str, topic: str, partition: int) -> StorageEndpoint:
        found = endpoint_in(self._stores["warm" if topic == "w" else "hot"])
        return replace(found, prefix="mine") if topic == "t" else replace(found, store="lost")


class Careless:
    """Wants a store that is not there."""

    def __init__(self, *, stores: Mapping[str, EndpointStore]) -> None:
        self._store = stores["warm"]


class NoProvider:
    def __init__(self, *, stores: Mapping[str, EndpointStore]) -> None:
        """It has no endpoint."""


class Greedy:
    def __init__(self, stores: object, more: object) -> None:
        """It needs an argument that it does not get."""


@pytest.mark.parametrize(
    ("topic", "store", "bits"),
    [
        ("audit.logins", "cold", 0),
        ("audit", "hot", 5),
        ("payments", "hot", 5),
        ("payments.eu", "cold", 0),
        ("xaudit", "hot", 3),
        ("orders", "hot", 3),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_decides(
    topic: str, store: str, bits: int
) -> None:
    found = RuleProvider((HOT, COLD), RULES).endpoint("c", topic, 0)
    assert (found.store, found.entropy_bits) == (store, bits)
    assert (found.plugin, found.location) == (
        ("s3", "s3://hot") if store == "hot" else ("hdfs", COLD.location)
    )


@pytest.mark.parametrize(
    ("cluster_id", "topic", "partition", "digits"),
    [
        ("kafkaCluster1", "topicA", 0, "01011"),
        ("kafkaCluster1", "topicA", 1, "01010"),
        ("kafkaCluster1", "topicB", 0, "11100"),
        ("my-cluster", "my-topic", 0, "111"),
    ],
)
def test_the_known_vectors_stand_between_prefix_and_cluster(
    cluster_id: str, topic: str, partition: int, digits: str
) -> None:
    rule = TopicRule(topics=".*", store="hot", entropy_bits=len(digits))
    endpoint = RuleProvider((HOT,), (rule,)).endpoint(cluster_id, topic, partition)
    partition_id = TopicIdPartition(topic_id=Uuid(bytes(16)), topic=topic, partition=partition)
    folder = endpoint.folder(cluster_id, partition_id)
    assert folder == f"kafka/{digits}/{cluster_id}/{topic}-{partition_id.topic_id}/{partition}"


def test_no_entropy_and_no_prefix_leave_no_empty_part() -> None:
    partition_id = TopicIdPartition(topic_id=Uuid(bytes(16)), topic="t", partition=2)
    endpoint = RuleProvider((COLD,)).endpoint("c", "t", 2)
    assert endpoint.folder("c", partition_id) == f"c/t-{partition_id.topic_id}/2"


def test_a_class_of_ones_own() -> None:
    provider = load_provider(f"{__name__}:ByPartition", (HOT, COLD))
    assert [provider.endpoint("c", "t", one).store for one in range(3)] == ["hot", "cold", "hot"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nowhere", "is not module:Class"),
        ("no.such.module:Class", "No module named"),
        (f"{__name__}:Missing", "Missing"),
        (f"{__name__}:NoProvider", "has no method endpoint"),
        (f"{__name__}:Greedy", "more"),
        (f"{__name__}:Careless", "Careless cannot be used: KeyError: 'warm'"),
    ],
)
def test_a_class_that_cannot_be_used_is_named(path: str, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        load_provider(path, (HOT,))


@pytest.mark.parametrize(
    ("text", "words"),
    [("class One\n", "SyntaxError: "), ("1 / 0\n", "ZeroDivisionError: division")],
)
def test_a_module_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    (tmp_path / "broken_provider.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(Invalid, match=f"^broken_provider:One cannot be used: {words}"):
        load_provider("broken_provider:One", (HOT,))


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (TopicRule(topics="a(", store="hot"), "'a\\(' is no regular expression"),
        (TopicRule(topics="a", store="warm"), "no store 'warm', but hot, cold"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused_at_once(rule: TopicRule, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        RuleProvider((HOT, COLD), (rule,))


@pytest.mark.parametrize("bits", [-1, 33])
def test_entropy_has_limits(bits: int) -> None:
    rule = TopicRule(topics=".*", store="hot", entropy_bits=bits)
    with pytest.raises(Invalid, match="entropy"):
        RuleProvider((HOT,), (rule,)).endpoint("c", "t", 0)


def test_without_a_store_there_is_no_endpoint() -> None:
    with pytest.raises(Invalid, match="no store is configured"):
        RuleProvider(()).endpoint("c", "t", 0)


@pytest.mark.parametrize(
    ("plugin", "config", "location"),
    [
        ("local", {"rsm.config.root": "/srv/store/"}, "file:///srv/store"),
        ("s3", {"rsm.config.s3.bucket.name": "b"}, "s3://b"),
        (
            "s3",
            {"rsm.config.s3.bucket.name": "b", "rsm.config.s3.endpoint.url": "http://h:1/"},
            "s3://b at http://h:1",
        ),
        (
            "hdfs",
            {"rsm.config.hdfs.url": "hdfs://nn:8020", "rsm.config.root": "/rlm"},
            "hdfs://nn:8020/rlm",
        ),
        ("yours", {"rsm.config.root": "/x"}, ""),
    ],
)
def test_locations(plugin: str, config: dict[str, object], location: str) -> None:
    assert location_of(plugin, config) == location


def test_a_class_of_ones_own_cannot_point_beside_the_store() -> None:
    """What is written there by the plugin would be looked for elsewhere by who reads without us."""
    provider = load_provider(f"{__name__}:Elsewhere", (HOT, COLD))
    with pytest.raises(Invalid, match="endpoint of t-3 is not where store hot is"):
        provider.endpoint("c", "t", 3)
    with pytest.raises(Invalid, match="there is no store 'lost', but hot, cold"):
        provider.endpoint("c", "u", 3)
    with pytest.raises(Invalid, match="the provider has no endpoint for w-0: 'warm'"):
        provider.endpoint("c", "w", 0)
