"""`rlm store prefixes`: what it lists without asking anybody, and that copies go there."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kip405.errors import Invalid
from kip405.ids import TopicIdPartition, Uuid
from rlm.cli.main import main
from rlm.cli.prefixes import key_prefixes
from rsm_plugins.endpoints import EndpointStore, RuleProvider, TopicRule

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
STORES = (
    EndpointStore(name="hot", plugin="s3", location="s3://b", prefix="p/q", entropy_bits=2),
    EndpointStore(name="cold", plugin="s3", location="s3://c"),
)
PROVIDER = RuleProvider(STORES, (TopicRule(topics="audit.*", store="cold"),))


def test_every_partition_is_below_its_prefix() -> None:
    counts = {"clicks": 40, "audit.a": 3}
    found = key_prefixes(PROVIDER, CLUSTER, counts, None)
    assert [(one.store, one.prefix) for one in found] == [
        ("cold", f"{CLUSTER}/"),
        *(("hot", f"p/q/{digits}/") for digits in ("00", "01", "10", "11")),
    ]
    members = [(name, at, one) for one in found for name, at in one.partitions]
    assert len(members) == 43
    for name, at, one in members:
        partition = TopicIdPartition(topic_id=Uuid(bytes(16)), topic=name, partition=at)
        endpoint = PROVIDER.endpoint(CLUSTER, name, at)
        assert endpoint.store == one.store
        assert endpoint.folder(CLUSTER, partition).startswith(one.prefix)


def test_other_bits_than_those_of_the_rules() -> None:
    (one,) = key_prefixes(PROVIDER, CLUSTER, {"audit.a": 1}, 8)
    assert (one.entropy_bits, len(one.prefix)) == (8, 9)
    (none,) = key_prefixes(PROVIDER, CLUSTER, {"clicks": 40}, 0)
    assert none.prefix == f"p/q/{CLUSTER}/"


def test_names_that_kafka_refuses_are_refused() -> None:
    with pytest.raises(Invalid, match="topic name"):
        key_prefixes(PROVIDER, CLUSTER, {"a/b": 1}, None)


def run(tmp_path: Path, *arguments: str) -> tuple[int, str]:
    path = tmp_path / "rlm.yaml"
    path.write_text(
        f"cluster.id: {CLUSTER}\nnode.id: 0\nlog.dirs: [{tmp_path}/logs]\n"
        f"state.dir: {tmp_path}/state\nbroker.direct.address: 127.0.0.1:1\n"
        "broker.tiered.address: 127.0.0.1:2\nproxy.listen: 127.0.0.1:3\n"
        f"grpc.listen: unix:{tmp_path}/g\nhttp.listen: 127.0.0.1:4\nplugin: local\n"
        f"rsm.config.root: {tmp_path}/store\nrsm.config.prefix.entropy.bits: 3\n"
    )
    done = CliRunner().invoke(main, ["store", "prefixes", *arguments, "--config", str(path)])
    return done.exit_code, done.output


def test_the_command_asks_nobody_where_the_count_is_given(tmp_path: Path) -> None:
    status, said = run(tmp_path, "clicks", "--partitions", "30", "--json")
    assert status == 0
    answer = json.loads(said)
    assert answer["cluster_id"] == CLUSTER
    assert sorted(one["prefix"] for one in answer["prefixes"]) == [
        f"{value:03b}/" for value in range(8)
    ]
    assert sum(len(one["partitions"]) for one in answer["prefixes"]) == 30
    status, said = run(tmp_path, "clicks", "--partitions", "30", "--bits", "0")
    assert status == 0
    assert f"{CLUSTER}/" in said and "clicks-3, and 26 more" in said


@pytest.mark.parametrize("arguments", [(), ("t", "--all"), ("--all", "--partitions", "3")])
def test_what_is_meant_has_to_be_said(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    status, said = run(tmp_path, *arguments)
    assert (status, "TOPIC" in said) == (2, True)
