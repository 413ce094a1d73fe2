"""The environment provider: what it answers fills gaps, what is given wins, errors are clear."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kip405.errors import Invalid
from rlm.config.check import ERROR, NOTE, check_file
from rlm.config.loader import (
    attached_from_mapping,
    from_mapping,
    kafka_clients_from_mapping,
    reader_from_mapping,
)
from rlm.config.provider import KafkaEnvironment, OfKubernetes

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
KEY = "environment.provider.class"
IMAGE = {
    "CLUSTER_ID": CLUSTER,
    "KAFKA_NODE_ID": "2",
    "KAFKA_LOG_DIRS": "/data/a,/data/b",
    "KAFKA_BOOTSTRAP_SERVERS": "b0:9092,b1:9092",
}


class Own:
    """A provider as a user writes it."""

    answer = KafkaEnvironment(
        cluster_id=CLUSTER, broker_id=7, log_dirs=(Path("/own"),), bootstrap_servers=("b9:9092",)
    )

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._rack = variables.get("OWN_RACK")

    def environment(self) -> KafkaEnvironment:
        if self._rack == "lost":
            raise ValueError("no rack")
        if self._rack == "typed":
            return "cluster"  # type: ignore[return-value]
        zookeeper = "z:2181" if self._rack in ("old", "mixed") else None
        found = replace(self.answer, zookeeper=zookeeper)
        return replace(found, bootstrap_servers=()) if self._rack == "old" else found


class OwnWithoutMethod:
    def __init__(self, variables: Mapping[str, str]) -> None:
        pass


OWN = f"{__name__}:Own"


def gaps(given: dict[str, Any], provider: str, **more: Any) -> dict[str, Any]:
    keys = ("node.id", "cluster.id", "log.dirs")
    return {key: one for key, one in given.items() if key not in keys} | {KEY: provider, **more}


def broker_files(folder: Path, cluster: str = CLUSTER, node_id: int = 2) -> Path:
    logs = folder / "kafka-logs"
    logs.mkdir(exist_ok=True)
    meta = f"version=1\ncluster.id={cluster}\nnode.id={node_id}\n"
    (logs / "meta.properties").write_text(meta)
    path = folder / "server.properties"
    path.write_text(
        f"node.id=2\nlog.dirs={logs}\nlisteners=IN://:9092,TIERED://127.0.0.1:9093\n"
        "inter.broker.listener.name=IN\nlistener.security.protocol.map=IN:PLAINTEXT\n"
    )
    return path


def test_variables_of_kafkas_image_fill_what_is_not_given(given: dict[str, Any]) -> None:
    config = from_mapping(gaps(given, "variables"), IMAGE)
    assert (config.cluster_id, config.node_id) == (CLUSTER, 2)
    assert config.log_dirs == (Path("/data/a"), Path("/data/b"))
    assert list(map(str, config.kafka_bootstrap_servers)) == ["b0:9092", "b1:9092"]
    assert config.principal == "rlm-2"


def test_what_is_given_wins(given: dict[str, Any]) -> None:
    content = given | {KEY: "variables", "kafka.bootstrap.servers": ["mine:9092"]}
    config = from_mapping(content, {**IMAGE, "RLM_NODE_ID": "5"})
    assert (config.cluster_id, config.node_id) == ("c1", 5)
    assert config.log_dirs == (Path(given["log.dirs"][0]),)
    assert list(map(str, config.kafka_bootstrap_servers)) == ["mine:9092"]


def test_without_a_provider_variables_of_kafka_say_nothing(given: dict[str, Any]) -> None:
    content = gaps(given, "variables")
    del content[KEY]
    with pytest.raises(Invalid, match=r"cluster\.id: missing"):
        from_mapping(content, IMAGE)


def test_a_gap_that_the_provider_does_not_know_is_missing(given: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=r"node\.id: missing"):
        from_mapping(gaps(given, "variables"), {"CLUSTER_ID": CLUSTER, "KAFKA_LOG_DIRS": "/d"})


def test_server_properties(given: dict[str, Any], tmp_path: Path) -> None:
    path = broker_files(tmp_path)
    content = gaps(given, "server.properties", **{"environment.provider.path": str(path)})
    config = from_mapping(content, {})
    assert (config.cluster_id, config.node_id) == (CLUSTER, 2)
    assert config.log_dirs == (tmp_path / "kafka-logs",)
    assert list(map(str, config.kafka_bootstrap_servers)) == ["127.0.0.1:9092"]
    reader = {key: given[key] for key in ("state.dir", "grpc.listen", "http.listen")} | {
        "plugin": "local",
        "rsm.config.root": str(tmp_path),
        KEY: "server.properties",
        "environment.provider.path": str(path),
    }
    assert reader_from_mapping(reader, {}).cluster_id == CLUSTER


def test_an_answer_that_the_brokers_files_contradict_is_refused(
    given: dict[str, Any], tmp_path: Path
) -> None:
    broker_files(tmp_path, cluster="other-cluster")
    logs = str(tmp_path / "kafka-logs")
    with pytest.raises(Invalid) as refused:
        from_mapping(gaps(given, "variables"), {**IMAGE, "KAFKA_LOG_DIRS": logs})
    said = str(refused.value)
    assert said.startswith(f"cluster.id: {CLUSTER} does not agree with other-cluster of ")
    assert said.endswith("(environment.provider.class variables gives cluster.id)")


def test_kubernetes_reads_the_downward_api(given: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "labels").write_text('app="kafka"\napps.kubernetes.io/pod-index="2"\n')
    (tmp_path / "annotations").write_text(
        f'kafka-rlm/cluster-id="{CLUSTER}"\nkafka-rlm/log-dirs="/var/lib/kafka/data"\n'
        'kafka-rlm/bootstrap-servers="kafka-0:9092,kafka-1:9092"\nother="a \\"b\\""\n'
    )
    (tmp_path / "name").write_text("kafka-1")
    content = gaps(given, "kubernetes", **{"environment.provider.path": str(tmp_path)})
    config = from_mapping(content, {"CLUSTER_ID": "of-a-variable", "KAFKA_NODE_ID": "9"})
    assert (config.cluster_id, config.node_id) == (CLUSTER, 2)
    assert config.log_dirs == (Path("/var/lib/kafka/data"),)
    assert len(config.kafka_bootstrap_servers) == 2


@pytest.mark.parametrize(
    ("variables", "node_id"),
    [
        ({}, None),
        ({"POD_NAME": "kafka-11"}, 11),
        ({"POD_NAME": "kafka"}, None),
        ({"POD_NAME": "kafka-1", "KAFKA_NODE_ID": "3"}, 3),
        ({"POD_NAME": "kafka-1", "KAFKA_NODE_ID": "3", "POD_INDEX": "0"}, 0),
    ],
)
def test_kubernetes_without_a_volume_goes_by_variables(
    variables: dict[str, str], node_id: int | None, tmp_path: Path
) -> None:
    assert OfKubernetes(tmp_path, variables).environment().broker_id == node_id


def test_a_class_of_the_users_own(given: dict[str, Any]) -> None:
    config = from_mapping(gaps(given, OWN), {})
    assert (config.cluster_id, config.node_id, config.log_dirs) == (CLUSTER, 7, (Path("/own"),))
    addresses, _ = kafka_clients_from_mapping({KEY: OWN}, {})
    assert list(map(str, addresses)) == ["b9:9092"]


def test_an_attached_reader_is_of_no_broker(given: dict[str, Any], tmp_path: Path) -> None:
    content = {key: given[key] for key in ("state.dir", "grpc.listen", "http.listen")}
    store = {"plugin": "local", "rsm.config.root": str(tmp_path)}
    assert attached_from_mapping({**content, **store, KEY: OWN}, {}).cluster_id == ""


@pytest.mark.parametrize(
    ("provider", "variables", "said"),
    [
        ("zookeeper", {}, "is none of server.properties, variables, kubernetes, and not module:C"),
        ("no_such_module:Own", {}, "cannot be used: ModuleNotFoundError"),
        (f"{__name__}:Nobody", {}, "cannot be used: AttributeError"),
        (f"{__name__}:OwnWithoutMethod", {}, "has no method environment()"),
        (OWN, {"OWN_RACK": "lost"}, "ValueError: no rack"),
        (OWN, {"OWN_RACK": "typed"}, "has no KafkaEnvironment, but 'cluster'"),
        (OWN, {"OWN_RACK": "old"}, "answers ZooKeeper z:2181 and no bootstrap servers: brokers"),
        ("server.properties", {}, "needs environment.provider.path or broker.server.properties"),
        ("variables", {"KAFKA_NODE_ID": "two"}, "is 'two', which is no node id"),
        ("variables", {"KAFKA_LOG_DIRS": "data"}, "log.dirs: must be a list of different absol"),
        ("variables", {"KAFKA_BOOTSTRAP_SERVERS": "b"}, "kafka.bootstrap.servers: must be a list"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    given: dict[str, Any], provider: str, variables: dict[str, str], said: str
) -> None:
    with pytest.raises(Invalid) as refused:
        from_mapping(gaps(given, provider), variables)
    assert str(refused.value).startswith(f"{KEY}: {provider}")
    assert said in str(refused.value)


def test_an_annotation_that_is_not_quoted_is_refused(tmp_path: Path) -> None:
    (tmp_path / "annotations").write_text("kafka-rlm/cluster-id=abc\n")
    with pytest.raises(Invalid, match="the value of kafka-rlm/cluster-id is not quoted"):
        OfKubernetes(tmp_path, {}).environment()


def test_a_path_without_a_provider_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=r"environment\.provider\.path: it is of"):
        from_mapping(given | {"environment.provider.path": "/etc/podinfo"}, {})


def test_config_check_shows_where_values_come_from(given: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "rlm.yaml"
    content = gaps(given, OWN) | {"node.id": 3, "broker.tiered.address": "127.0.0.1:1"}
    path.write_text("\n".join(f"{key}: {value}" for key, value in content.items()))
    checked = check_file(path, "broker", {"OWN_RACK": "mixed", "RLM_HTTP_LISTEN": "127.0.0.1:5"})
    assert [(one.level, one.text) for one in checked.findings] == [
        (NOTE, "http.listen: given by RLM_HTTP_LISTEN"),
        (NOTE, f"cluster.id: {CLUSTER}, given by {KEY} {OWN}"),
        (NOTE, f"node.id: given, so 7 of {KEY} {OWN} is not used"),
        (NOTE, f"log.dirs: /own, given by {KEY} {OWN}"),
        (NOTE, f"kafka.bootstrap.servers: b9:9092, given by {KEY} {OWN}"),
        (NOTE, f"{KEY} {OWN}: ZooKeeper z:2181 is not used; brokers are found by bootstrap"),
    ]
    wrong = check_file(path, "broker", {"OWN_RACK": "lost"})
    assert {one.level for one in wrong.findings} == {ERROR}
    assert sum("no rack" in one.text for one in wrong.findings) == 1
