"""overlays/strimzi: names that Strimzi gives, users, and listeners agree with each companion.

What is Strimzi's fits the schemas of its oldest and newest version with kafka.strimzi.io/v1.
"""

import copy
import re
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from kip405.addresses import Address
from rlm.cli.main import main
from rlm.config import read_yaml
from tests.deploy import strimzi_schemas
from tests.deploy.manifests import FOLDER, Container, Manifest, containers, of_kind, rendered

NAME = "overlays/strimzi"
CLUSTER = "my-cluster"
TIERED = "tiered"


def written(file: str) -> list[Manifest]:
    text = (FOLDER / NAME / file).read_text(encoding="utf-8")
    return list(yaml.safe_load_all(text))


KAFKA = next(one for one in written("kafka.yaml") if one["kind"] == "Kafka")
POOLS = {one["metadata"]["name"]: one for one in written("kafka.yaml") if "Pool" in one["kind"]}
LISTENERS = {one["name"]: one for one in KAFKA["spec"]["kafka"]["listeners"]}
BROKERS = tuple(range(POOLS["brokers"]["spec"]["replicas"]))


def companion(node_id: int) -> Container:
    (found,) = (one for one in containers(rendered(NAME)) if one.pod == f"rlm-{node_id}-0")
    return found


def config(node_id: int) -> dict[str, Any]:
    return read_yaml(FOLDER / NAME / f"broker-{node_id}" / "rlm.yaml")


@pytest.fixture(
    scope="module",
    params=[pytest.param(strimzi_schemas.OLDEST, marks=pytest.mark.long), strimzi_schemas.NEWEST],
)
def schemas(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> strimzi_schemas.Schemas:
    return strimzi_schemas.made(request.param, tmp_path_factory.mktemp("strimzi"))


def test_what_is_strimzis_fits_its_schemas(schemas: strimzi_schemas.Schemas) -> None:
    found = [one for one in rendered(NAME) if one["apiVersion"].startswith("kafka.strimzi.io")]
    assert {one["kind"] for one in found} == set(schemas)
    for one in found:
        strimzi_schemas.validate(one, schemas)


@pytest.mark.parametrize("more", [[], ["--external-retention"], ["--role", "reader"]])
def test_users_that_rlm_acls_prints_fit_the_schema(
    schemas: strimzi_schemas.Schemas, more: list[str]
) -> None:
    given = ["acls", "--principal", "User:rlm", "--prefix", "archive.", "--format", "strimzi"]
    printed = yaml.safe_load(CliRunner().invoke(main, [*given, *more]).stdout)
    strimzi_schemas.validate(printed, schemas)


def _with_a_field(kafka: Manifest) -> None:
    kafka["spec"]["kafka"]["listeners"][0]["tsl"] = True


def _without_a_field(kafka: Manifest) -> None:
    del kafka["spec"]["kafka"]["listeners"][0]["type"]


def _of_another_type(kafka: Manifest) -> None:
    kafka["spec"]["kafka"]["listeners"][0]["port"] = "9093"


@pytest.mark.parametrize("change", [_with_a_field, _without_a_field, _of_another_type])
def test_a_manifest_that_does_not_fit_is_noticed(
    schemas: strimzi_schemas.Schemas, change: Callable[[Manifest], None]
) -> None:
    kafka = copy.deepcopy(KAFKA)
    strimzi_schemas.validate(kafka, schemas)
    change(kafka)
    with pytest.raises(jsonschema.ValidationError):
        strimzi_schemas.validate(kafka, schemas)


def test_ids_of_nodes_are_those_that_the_pools_ask_for() -> None:
    first, last = re.findall(
        r"\d+", POOLS["brokers"]["metadata"]["annotations"]["strimzi.io/next-node-ids"]
    )
    assert tuple(range(int(first), int(last) + 1)) == BROKERS
    for pool in POOLS.values():
        assert pool["metadata"]["labels"] == {"strimzi.io/cluster": CLUSTER}
    assert {one["broker"] for one in LISTENERS[TIERED]["configuration"]["brokers"]} == set(BROKERS)


@pytest.mark.parametrize("node_id", BROKERS)
def test_each_companion_has_the_volume_the_node_and_the_log_of_its_broker(node_id: int) -> None:
    pod = f"{CLUSTER}-brokers-{node_id}"
    found, settings = companion(node_id), config(node_id)
    assert settings["node.id"] == node_id
    (disk,) = POOLS["brokers"]["spec"]["storage"]["volumes"]
    (log_dir,) = settings["log.dirs"]
    folder, _, name = log_dir.rpartition("/")
    assert (folder, name) == (f"/var/lib/kafka/data-{disk['id']}", f"kafka-log{node_id}")
    claim = found.volume(found.mounts[folder]["name"])["persistentVolumeClaim"]
    assert claim == {"claimName": f"data-{disk['id']}-{pod}", "readOnly": True}
    (term,) = found.spec["affinity"]["podAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"] == {"matchLabels": {"strimzi.io/pod-name": pod}}
    assert found.owner["spec"]["replicas"] == 1
    hosts = {Address.parse(settings[f"broker.{one}.address"]).host for one in ("direct", "tiered")}
    assert hosts == {f"{pod}.{CLUSTER}-kafka-brokers.kafka.svc"}


@pytest.mark.parametrize("node_id", BROKERS)
def test_each_companion_is_where_its_broker_says_that_it_is(node_id: int) -> None:
    settings, tiered = config(node_id), LISTENERS[TIERED]
    (shown,) = (one for one in tiered["configuration"]["brokers"] if one["broker"] == node_id)
    assert settings["proxy.advertised"] == f"{shown['advertisedHost']}:{shown['advertisedPort']}"
    assert settings["broker.tiered.listener.name"] == f"TIERED-{tiered['port']}"
    assert Address.parse(settings["broker.tiered.address"]).port == tiered["port"]
    direct = Address.parse(settings["broker.direct.address"])
    assert direct.port == LISTENERS["tls"]["port"]
    for address in settings["kafka.bootstrap.servers"]:
        assert Address.parse(address) == Address(
            host=f"{CLUSTER}-kafka-bootstrap.kafka.svc", port=direct.port
        )


def test_both_listeners_have_tls_and_sasl_and_tiered_is_for_the_proxies_alone() -> None:
    for one in LISTENERS.values():
        assert one["tls"] is True and one["authentication"] == {"type": "scram-sha-512"}
    (peer,) = LISTENERS[TIERED]["networkPolicyPeers"]
    labels = companion(0).owner["spec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()
    for settings in map(config, BROKERS):
        assert settings["kafka.security.protocol"] == "SASL_SSL"
        assert settings["kafka.sasl.mechanism"] == "SCRAM-SHA-512"
        assert settings["broker.tiered.tls.ca.file"] == settings["kafka.ssl.truststore.location"]


@pytest.mark.parametrize(
    ("user", "arguments"),
    [("rlm", ["--topics", "orders", "--external-retention"]), ("rlm-reader", ["--role", "reader"])],
)
def test_users_have_what_rlm_acls_prints_and_no_more(user: str, arguments: list[str]) -> None:
    given = ["acls", "--principal", f"User:{user}", *arguments, "--format", "strimzi"]
    printed = yaml.safe_load(CliRunner().invoke(main, given).stdout)
    (found,) = (one for one in written("users.yaml") if one["metadata"]["name"] == user)
    assert found["apiVersion"] == printed["apiVersion"]
    assert found["spec"]["authorization"] == printed["spec"]["authorization"]
    assert found["spec"]["authentication"] == {"type": "scram-sha-512"}
    assert KAFKA["spec"]["kafka"]["authorization"] == {"type": "simple"}


def test_each_user_logs_in_with_the_secret_of_its_own() -> None:
    files = {"rlm": companion(0)}
    (files["rlm-reader"],) = (one for one in containers(rendered(NAME)) if one.pod == "rlm-reader")
    users = {one["metadata"]["name"] for one in written("users.yaml")}
    assert set(files) == users
    for user, found in files.items():
        folder = "readers/reader.yaml" if user == "rlm-reader" else "broker-0/rlm.yaml"
        settings = read_yaml(FOLDER / NAME / folder)
        assert settings["kafka.sasl.username"] == user
        mount = found.mounted_at(settings["kafka.sasl.password.file"])
        assert mount is not None
        assert found.volume(mount["name"])["secret"]["secretName"] == user
        trusted = found.mounted_at(settings["kafka.ssl.truststore.location"])
        assert trusted is not None
        authority = found.volume(trusted["name"])["secret"]["secretName"]
        assert authority == f"{CLUSTER}-cluster-ca-cert"


def test_nothing_of_the_base_is_left_to_fill_in() -> None:
    text = yaml.safe_dump_all(rendered(NAME))
    assert "BROKER_" not in text
    names = of_kind(rendered(NAME), "StatefulSet")
    assert set(names) == {f"rlm-{node_id}" for node_id in BROKERS}
    assert all(one["spec"]["serviceName"] == name for name, one in names.items())


def test_the_topic_operator_and_the_services_do_not_contend_for_retention() -> None:
    """The operator takes back what the KafkaTopic does not have."""
    (topic,) = written("topic.yaml")
    given = topic["spec"]["config"]
    assert given["cleanup.policy"] == "delete"
    assert (given["retention.ms"], given["retention.bytes"]) == (-1, -1)
    assert {config(one)["retention.takeover"] for one in BROKERS} == {"external"}
