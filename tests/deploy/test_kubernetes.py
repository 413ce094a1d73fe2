"""k8s/ against Kubernetes' schemas and against the product: settings, commands, ports, mounts.

Kinds of Prometheus' operator have no schema that could be had as a package; what is checked of them
is what their documentation says of the fields that are used. test_strimzi.py has Strimzi's schemas.
"""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from kip405.addresses import Address
from rlm.config import CommonConfig
from rlm.config.loader import from_mapping, reader_from_mapping
from rlm.config.service import ServiceConfig, settings
from rlm.service.metrics import TABLE
from rsm_plugins.process.config import PluginSettings, settings_of
from tests.deploy.manifests import (
    OURS,
    RENDERED,
    Container,
    Manifest,
    config_text,
    containers,
    of_kind,
    rendered,
    written,
)
from tests.docs.command_lines import options_of, resolve
from tests.project.tree import ROOT

OLDEST, NEWEST = "1.32.0", "1.37.0"
"""The label apps.kubernetes.io/pod-index is there for certain since 1.32."""

FOREIGN = {
    "Kafka": ("kafka.strimzi.io/v1", {"kafka", "entityOperator"}),
    "KafkaNodePool": ("kafka.strimzi.io/v1", {"replicas", "roles", "storage"}),
    "KafkaTopic": ("kafka.strimzi.io/v1", {"partitions", "replicas", "config"}),
    "KafkaUser": ("kafka.strimzi.io/v1", {"authentication", "authorization"}),
    "PrometheusRule": ("monitoring.coreos.com/v1", {"groups"}),
    "ServiceMonitor": ("monitoring.coreos.com/v1", {"selector", "endpoints"}),
}
RIGHTS = {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}


def validate(manifest: Manifest) -> None:
    if manifest["kind"] in FOREIGN:
        version, fields = FOREIGN[manifest["kind"]]
        assert manifest["apiVersion"] == version
        assert set(manifest["spec"]) <= fields
        return
    for version in (OLDEST, NEWEST):
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("path", sorted(written()))
def test_every_file_fits_the_schemas(path: str) -> None:
    for one in written()[path]:
        validate(one)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("StatefulSet", {"replicas": "three"}),
        ("StatefulSet", {"replica": 3}),
        ("NetworkPolicy", {"podSelektor": {}}),
    ],
)
def test_a_manifest_that_does_not_fit_is_noticed(kind: str, change: Manifest) -> None:
    manifests = [one for ones in written().values() for one in ones]
    (sound,) = (
        one for one in manifests if one["kind"] == kind and one["metadata"]["name"] == "kafka"
    )
    with pytest.raises(kubernetes_validate.ValidationError):
        validate({**sound, "spec": {**sound["spec"], **change}})


@pytest.mark.parametrize("name", RENDERED)
def test_what_kustomize_makes_fits_the_schemas(name: str) -> None:
    for one in rendered(name):
        validate(one)
        assert one["kind"] == "Namespace" or one["metadata"]["namespace"] == "kafka"
    kinds = {one["kind"] for one in rendered(name)}
    assert not kinds & RIGHTS, "nothing here asks Kubernetes for anything"


def pods(name: str) -> list[Container]:
    return list(containers(rendered(name)))


def ours(name: str) -> list[Container]:
    """Those that run a service, a reader or a plugin."""
    return [one for one in pods(name) if one.is_ours and one.command[0] in ("rlm", "rsm-plugin")]


@pytest.mark.parametrize("name", RENDERED)
def test_no_container_has_rights(name: str) -> None:
    for one in pods(name):
        assert one.spec["automountServiceAccountToken"] is False
        assert one.spec["enableServiceLinks"] is False, "RLM_* would be variables of others"
        of_pod, own = one.spec["securityContext"], one.manifest["securityContext"]
        assert of_pod["runAsNonRoot"] is True and of_pod["seccompProfile"] == DEFAULT_PROFILE
        assert {**of_pod, **own}["runAsUser"] > 0
        assert own["allowPrivilegeEscalation"] is False
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert one.name == "kafka" or own["readOnlyRootFilesystem"] is True


DEFAULT_PROFILE = {"type": "RuntimeDefault"}


@pytest.mark.parametrize("name", RENDERED)
def test_images_have_a_version_and_memory_a_limit(name: str) -> None:
    version = {"dev", project_version()}
    for one in pods(name):
        image, _, tag = one.manifest["image"].partition(":")
        assert tag and tag != "latest" and "." not in image
        assert image != OURS or tag in version
        if one.manifest not in one.spec.get("initContainers", []):
            assert "memory" in one.manifest["resources"]["limits"]


def project_version() -> str:
    (line,) = (
        line
        for line in (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
        if line.startswith("version = ")
    )
    return line.split('"')[1]


@pytest.mark.parametrize("name", RENDERED)
def test_the_log_is_read_only_for_everybody_but_the_broker(name: str) -> None:
    seen = 0
    for one in pods(name):
        for path, mount in one.mounts.items():
            if path.startswith("/var/lib/kafka"):
                seen += 1
                assert bool(mount.get("readOnly")) is (one.name != "kafka")
                claim = one.volume(mount["name"]).get("persistentVolumeClaim")
                assert claim is None or claim["readOnly"] is True
    assert seen or name == "base/reader"


@pytest.mark.parametrize("name", RENDERED)
def test_commands_probes_and_their_options_are_ours(name: str) -> None:
    for one in ours(name):
        probes = [one.manifest.get(f"{kind}Probe", {}) for kind in ("startup", "readiness")]
        commands = [probe["exec"]["command"] for probe in probes if "exec" in probe]
        for command in (one.command, *map(one.program, commands)):
            assert not any("$(" in word for word in command), "no variable of a pod in probes"
            if command[0] == "test":  # the socket of the plugin
                assert command == ["test", "-S", str(socket_of(name, one).unix_path)]
                continue
            found = resolve(tuple(word for word in command if not word.startswith(("-", "/"))))
            assert found is not None, command
            assert {word for word in command if word.startswith("--")} <= options_of(found)
            if command is not one.command:
                assert command[-1] == one.command[-1], "the probe reads another file"


def socket_of(name: str, container: Container) -> Address:
    return Address.parse_listening(plugin_settings(name, container).listen)


def plugin_settings(name: str, container: Container) -> PluginSettings:
    return settings_of(yaml.safe_load(config_text(container, rendered(name))))


def config_of(name: str, container: Container, folder: Path) -> CommonConfig:
    """The product's own reading of the ConfigMap, on a disk whose cluster id is known."""
    content: dict[str, Any] = yaml.safe_load(config_text(container, rendered(name)))
    if "reader" in container.command:
        return reader_from_mapping(content, {})
    (folder / "meta.properties").write_text("version=1\ncluster.id=c1\n", encoding="utf-8")
    if "cluster.id" not in content:
        content["log.dirs"] = [str(folder)]
    return from_mapping(content, {})


@pytest.mark.parametrize("name", RENDERED)
def test_config_maps_are_configurations(name: str, tmp_path: Path) -> None:
    for one in ours(name):
        if one.command[0] == "rsm-plugin":
            assert socket_of(name, one).is_unix
            continue
        config = config_of(name, one, tmp_path)
        listening = {
            "grpc": config.grpc_listen.port,
            "http": config.http_listen.port,
            **({"proxy": config.proxy_listen.port} if isinstance(config, ServiceConfig) else {}),
        }
        assert one.ports == listening
        live, is_tls = one.manifest["livenessProbe"]["httpGet"], config.http_tls_cert_file
        assert (live["path"], live["port"]) == ("/healthz", "http")
        assert live["scheme"] == ("HTTPS" if is_tls else "HTTP")


@pytest.mark.parametrize("name", RENDERED)
def test_the_file_that_a_reload_reads_is_renewed_by_the_kubelet(name: str) -> None:
    """It never renews a file that is mounted by its subPath."""
    seen = [one for one in ours(name) if one.command[0] == "rlm"]
    for one in seen:
        mount = one.mounted_at(one.command[-1])
        assert mount is not None and not mount.keys() & {"subPath", "subPathExpr"}
    assert seen


@pytest.mark.parametrize("name", RENDERED)
def test_every_path_of_a_configuration_is_mounted_and_what_is_written_is_writable(
    name: str,
) -> None:
    for one in ours(name):
        content = yaml.safe_load(config_text(one, rendered(name)))
        for key, value in content.items():
            for path in value if isinstance(value, list) else [value]:
                text = str(path).removeprefix("unix:")
                if not text.startswith("/") or key == "rsm.config.root":
                    continue
                mount = one.mounted_at(text)
                assert mount is not None, f"{key} is not mounted in {one.pod}/{one.name}"
                is_written = key == "state.dir" or text.endswith(".sock")
                assert bool(mount.get("readOnly")) is not is_written, key
        assert not one.mounts["/dev/shm"].get("readOnly")
        assert one.volume(one.mounts["/dev/shm"]["name"])["emptyDir"]["medium"] == "Memory"


@pytest.mark.parametrize("name", RENDERED)
def test_secrets_come_by_reference(name: str) -> None:
    secret = {row.key for row in settings().values() if row.secret}
    for one in ours(name):
        content = yaml.safe_load(config_text(one, rendered(name)))
        assert not secret & set(content)
        assert not any(entry for entry in one.environment if "SECRET" in entry.upper())
        for mount in one.mounts.values():
            volume = one.volume(mount["name"])
            if "secret" in volume or "projected" in volume:
                assert mount["readOnly"] is True


@pytest.mark.parametrize("name", RENDERED)
def test_there_is_time_to_drain_before_the_end(name: str, tmp_path: Path) -> None:
    for one in ours(name):
        stop = one.manifest["lifecycle"]["preStop"]["exec"]["command"]
        assert stop[0] == "sleep"
        grace_ms = 1_000 * (one.spec["terminationGracePeriodSeconds"] - int(stop[1]))
        timeout_ms = settings()["shutdown_timeout_ms"].default
        if one.command[0] == "rlm" and "reader" not in one.command:
            config = config_of(name, one, tmp_path)
            assert isinstance(config, ServiceConfig)
            timeout_ms = config.shutdown_timeout_ms
        assert grace_ms > timeout_ms


@pytest.mark.parametrize("name", RENDERED)
def test_names_and_ports_lead_to_pods(name: str) -> None:
    manifests = rendered(name)
    pod_labels = [
        one["spec"]["template"]["metadata"]["labels"]
        for one in manifests
        if one["kind"] in ("StatefulSet", "Deployment")
    ]
    every_port = {port for one in pods(name) for port in one.ports}
    for one in of_kind(manifests, "Service").values():
        wanted = one["spec"]["selector"].items()
        assert any(wanted <= labels.items() for labels in pod_labels)
        assert {port["targetPort"] for port in one["spec"]["ports"] if "targetPort" in port} <= (
            every_port
        )
    for kind, field in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        for one in of_kind(manifests, kind).values():
            wanted = one["spec"][field]["matchLabels"].items()
            assert any(wanted <= labels.items() for labels in pod_labels)
    for one in of_kind(manifests, "ServiceMonitor").values():
        wanted = one["spec"]["selector"]["matchLabels"].items()
        services = of_kind(manifests, "Service").values()
        assert any(wanted <= found["metadata"].get("labels", {}).items() for found in services)
    accounts = of_kind(manifests, "ServiceAccount")
    used = {
        one.spec["serviceAccountName"] for one in pods(name) if "serviceAccountName" in one.spec
    }
    assert used == set(accounts)
    assert all(one["automountServiceAccountToken"] is False for one in accounts.values())


@pytest.mark.parametrize("name", RENDERED)
def test_what_is_advertised_is_a_name_of_the_pod(name: str, tmp_path: Path) -> None:
    services = of_kind(rendered(name), "Service")
    for one in ours(name):
        if one.command[0] == "rsm-plugin":
            continue
        config = config_of(name, one, tmp_path)
        advertised = [config.grpc_advertised]
        if isinstance(config, ServiceConfig):
            advertised.append(config.proxy_advertised)
        for address in advertised:
            assert _leads_to(address, one.pod, services), address


def _leads_to(address: Address, pod: str, services: dict[str, Manifest]) -> bool:
    """`SERVICE.kafka.svc`, or `POD.SERVICE.kafka.svc` of a Service without an address."""
    labels = address.host.removesuffix(".cluster.local").removesuffix(".kafka.svc").split(".")
    service = services[labels[-1]]
    has_port = address.port in {port["port"] for port in service["spec"]["ports"]}
    return has_port and (len(labels) == 1 or labels[0] == pod)


@pytest.mark.parametrize("name", RENDERED)
def test_readers_are_scaled_by_metrics_that_exist(name: str) -> None:
    rows = {row.name for row in TABLE}
    for one in of_kind(rendered(name), "HorizontalPodAutoscaler").values():
        target = one["spec"]["scaleTargetRef"]
        assert target["name"] in of_kind(rendered(name), target["kind"])
        named = {
            metric["pods"]["metric"]["name"]
            for metric in one["spec"]["metrics"]
            if metric["type"] == "Pods"
        }
        assert named and named <= rows
