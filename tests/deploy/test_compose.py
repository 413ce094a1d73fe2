"""docker/compose.yaml against the product: settings, ports, mounts, listeners, commands."""

import re
from typing import Any

import pytest
import yaml

from kip405.addresses import Address
from rlm.config import load, load_reader
from rlm.config.broker_files import advertised_address, broker_identity
from rsm_plugins.process.config import settings_of
from tests.deploy.dockerfile import parse
from tests.docs.command_lines import options_of, resolve
from tests.project.tree import ROOT

FOLDER = ROOT / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ("rlm", "reader")
ENTRYPOINT = parse((FOLDER / "Dockerfile").read_text(encoding="utf-8")).stages[-1]
LOGS = "/var/lib/kafka/data"
_CONTAINER_PORT = 2


def command_of(name: str) -> list[str]:
    """What the container starts: the image's entry point with its own command, or another."""
    own = SERVICES[name].get("command", ENTRYPOINT.last("CMD").words)
    return [*ENTRYPOINT.last("ENTRYPOINT").words, *own]


def broker_properties() -> dict[str, str]:
    """What the image of Kafka makes of its environment: KAFKA_LOG_DIRS is log.dirs."""
    environment = SERVICES["kafka"]["environment"]
    return {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith("KAFKA_")
    }


def test_images_have_versions_and_no_registry() -> None:
    for name, one in SERVICES.items():
        image, _, version = one["image"].partition(":")
        assert version and version != "latest", name
        assert "." not in image.partition("/")[0], name


def test_every_mount_names_what_exists_or_a_volume() -> None:
    named = set()
    for one in SERVICES.values():
        for mount in one.get("volumes", []):
            source = mount.partition(":")[0]
            if source.startswith("./"):
                assert (FOLDER / source).exists(), source
                assert mount.endswith(":ro"), mount
            else:
                named.add(source)
    assert named == set(COMPOSE["volumes"])
    assert all((FOLDER / one["file"]).is_file() for one in COMPOSE["secrets"].values())


def test_the_log_is_read_only_for_everybody_but_the_broker() -> None:
    mounts = {
        name: [mount for mount in one.get("volumes", []) if mount.startswith("kafka-logs:")]
        for name, one in SERVICES.items()
    }
    assert mounts["kafka"] == [f"kafka-logs:{LOGS}"]
    assert mounts["rlm"] == [f"kafka-logs:{LOGS}:ro"]
    assert [name for name, one in mounts.items() if one] == ["kafka", "rlm"]


@pytest.mark.parametrize("name", OURS)
def test_ours_run_without_rights_and_write_only_where_something_is_mounted(name: str) -> None:
    one = SERVICES[name]
    assert one["read_only"] is True and one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]
    writable = [mount.split(":")[1] for mount in one["volumes"] if not mount.endswith(":ro")]
    config = load(FOLDER / "rlm.yaml") if name == "rlm" else load_reader(FOLDER / "reader.yaml")
    assert writable == [str(config.state_dir)] == ENTRYPOINT.last("VOLUME").words


@pytest.mark.parametrize("name", OURS)
def test_what_is_started_and_what_asks_for_health_are_commands_of_ours(name: str) -> None:
    health = SERVICES[name].get("healthcheck", {}).get("test", [])
    for command in (command_of(name), *([health[1:]] if health else [])):
        found = resolve(tuple(word for word in command if not word.startswith(("-", "/"))))
        assert found is not None
        given = {word for word in command if word.startswith("--")}
        assert given <= options_of(found)
        file = command[command.index("--config") + 1]
        assert any(f":{file}:ro" in mount for mount in SERVICES[name]["volumes"])


def test_the_configurations_are_those_of_this_cluster() -> None:
    service, reader = load(FOLDER / "rlm.yaml"), load_reader(FOLDER / "reader.yaml")
    broker = broker_identity(broker_properties())
    cluster_id = SERVICES["kafka"]["environment"]["CLUSTER_ID"]
    assert service.cluster_id == reader.cluster_id == cluster_id
    assert (service.node_id, service.log_dirs) == (broker.node_id, broker.log_dirs)
    assert service.broker_direct_address == broker.listeners["INTERNAL"]
    assert service.broker_tiered_address == broker.listeners["TIERED"]
    assert service.broker_tiered_address.is_private, "nobody may come to TIERED past the proxy"
    assert broker.inter_broker_listener == "INTERNAL"
    shown = advertised_address("TIERED", broker_properties()["advertised.listeners"])
    assert shown == service.proxy_advertised


def test_services_are_dialled_by_names_that_are_in_their_network() -> None:
    for path in ("rlm.yaml", "reader.yaml"):
        content = yaml.safe_load((FOLDER / path).read_text(encoding="utf-8"))
        named = [*content["kafka.bootstrap.servers"], content["grpc.advertised"]]
        named.append(re.sub(r"^https?://", "", content["rsm.config.s3.endpoint.url"]))
        assert {Address.parse(one).host for one in named} <= set(SERVICES)
    assert SERVICES["rlm"]["network_mode"] == "service:kafka"


def published(name: str) -> set[int]:
    """Ports of a container that this machine can reach, all of them on loopback."""
    mapped = [one.split(":") for one in SERVICES[name].get("ports", [])]
    assert all(one[0] == "127.0.0.1" for one in mapped)
    return {int(one[_CONTAINER_PORT]) for one in mapped}


def test_published_ports_are_listened_on() -> None:
    service, reader = load(FOLDER / "rlm.yaml"), load_reader(FOLDER / "reader.yaml")
    assert published("kafka") == {
        one.port for one in (service.proxy_listen, service.grpc_listen, service.http_listen)
    }
    assert published("reader") == {reader.grpc_listen.port, reader.http_listen.port}


def test_prometheus_asks_each_service_where_it_has_its_metrics() -> None:
    scraped = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    targets = {
        target
        for job in scraped["scrape_configs"]
        for one in job["static_configs"]
        for target in one["targets"]
    }
    service, reader = load(FOLDER / "rlm.yaml"), load_reader(FOLDER / "reader.yaml")
    assert targets == {f"kafka:{service.http_listen.port}", f"reader:{reader.http_listen.port}"}


def test_there_is_time_to_drain() -> None:
    for name in OURS:
        grace_ms = 1_000 * int(SERVICES[name]["stop_grace_period"].removesuffix("s"))
        assert grace_ms > load(FOLDER / "rlm.yaml").shutdown_timeout_ms


def test_the_store_is_the_server_and_its_bucket_is_made_first() -> None:
    content = yaml.safe_load((FOLDER / "rlm.yaml").read_text(encoding="utf-8"))
    (folder,) = (word for word in SERVICES["bucket"]["entrypoint"] if word.startswith("/"))
    assert folder == f"/data/{content['rsm.config.s3.bucket.name']}"
    assert "bucket" in SERVICES["s3"]["depends_on"]
    known = SERVICES["s3"]["environment"]
    shown = (FOLDER / "s3-credentials").read_text(encoding="utf-8")
    assert all(f"= {value}\n" in shown for value in known.values())
    (secret,) = COMPOSE["secrets"]
    assert content["rsm.config.aws.credentials.file"] == f"/run/secrets/{secret}"
    own = {key: value for key, value in content.items() if key.startswith(("rsm.", "plugin"))}
    settings_of({"listen": "127.0.0.1:0", **own})
