"""k8s/ as values: the files as they are, and what kustomize makes of them where it is installed."""

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from string import Template
from typing import Any

import pytest
import yaml

from tests.project.tree import ROOT, files, show

FOLDER = ROOT / "k8s"
OVERLAYS = ("s3-web-identity", "hdfs-kerberos", "kind", "strimzi")
RENDERED = ("base/sidecar", "base/reader", *(f"overlays/{name}" for name in OVERLAYS))
"""base/companion is no deployment: its overlay says which broker."""

OURS = "kafka-rlm"
Manifest = dict[str, Any]


def written() -> dict[str, list[Manifest]]:
    """The manifests of each file, by its path. Configurations of ours have no `kind`."""
    found = {}
    for path in files(FOLDER):
        if path.suffix == ".yaml" and path.name != "kustomization.yaml":
            documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
            found[show(path)] = [one for one in documents if "kind" in one]
    return {path: ones for path, ones in found.items() if ones}


@cache
def rendered(name: str) -> tuple[Manifest, ...]:
    """All manifests of a base or overlay. Skips where nothing here renders them."""
    command = _kustomize()
    if command is None:
        pytest.skip("there is no kustomize and no kubectl to render manifests with")
    done = subprocess.run(
        [*command, str(FOLDER / name)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


@cache
def _kustomize() -> tuple[str, ...] | None:
    if kustomize := shutil.which("kustomize"):
        return kustomize, "build"
    if kubectl := shutil.which("kubectl"):
        return kubectl, "kustomize"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container of a pod of that name, with $(VARIABLE) of Kubernetes replaced."""

    pod: str
    owner: Manifest
    spec: Manifest
    manifest: Manifest

    @property
    def name(self) -> str:
        return str(self.manifest["name"])

    @property
    def is_ours(self) -> bool:
        return str(self.manifest["image"]).partition(":")[0] == OURS

    @property
    def environment(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for one in self.manifest.get("env", []):
            value = one.get("value") or _of_the_pod(one["valueFrom"], self.pod)
            for name, known in found.items():
                value = value.replace(f"$({name})", known)
            found[one["name"]] = value
        return found

    @property
    def command(self) -> list[str]:
        return self.words([*self.manifest.get("command", []), *self.manifest.get("args", [])])

    def words(self, command: list[str]) -> list[str]:
        """The words of a command of this container, variables replaced."""
        environment = self.environment
        found = []
        for word in command:
            for name, value in environment.items():
                word = word.replace(f"$({name})", value)
            found.append(word)
        return found

    def program(self, command: list[str]) -> list[str]:
        """The words that a command inside of the container starts: a shell replaces $NAME there."""
        if command[:2] != ["sh", "-c"]:
            return command
        text = Template(command[2]).substitute(self.environment)
        assert text.startswith("exec "), "signals would not come through"
        return shlex.split(text)[1:]

    @property
    def ports(self) -> dict[str, int]:
        return {one["name"]: one["containerPort"] for one in self.manifest.get("ports", [])}

    @property
    def mounts(self) -> dict[str, Manifest]:
        """The volume and whether it is read-only, by path."""
        return {one["mountPath"]: one for one in self.manifest.get("volumeMounts", [])}

    def volume(self, name: str) -> Manifest:
        """A volume of the pod; one of a claim of the StatefulSet is its template."""
        volumes = [*self.spec.get("volumes", [])]
        templates = self.owner["spec"].get("volumeClaimTemplates", [])
        volumes += [{"name": one["metadata"]["name"], "claim": one["spec"]} for one in templates]
        (found,) = (one for one in volumes if one["name"] == name)
        return dict(found)

    def mounted_at(self, path: str) -> Manifest | None:
        """The mount that a path is in, the innermost; None: the path is of the image."""
        fitting = [one for one in self.mounts if path == one or path.startswith(f"{one}/")]
        return self.mounts[max(fitting, key=len)] if fitting else None


def _of_the_pod(source: Manifest, pod: str) -> str:
    path = source["fieldRef"]["fieldPath"]
    if path == "metadata.name":
        return pod
    assert path == "metadata.labels['apps.kubernetes.io/pod-index']", path
    return pod.rpartition("-")[2]


def containers(manifests: tuple[Manifest, ...]) -> Iterator[Container]:
    """Every container of every pod; of a Deployment, of one pod."""
    for owner in manifests:
        if owner["kind"] not in ("StatefulSet", "Deployment"):
            continue
        spec = owner["spec"]["template"]["spec"]
        name = owner["metadata"]["name"]
        is_set = owner["kind"] == "StatefulSet"
        pods = [f"{name}-{n}" for n in range(owner["spec"]["replicas"])] if is_set else [name]
        for pod in pods:
            for one in (*spec.get("initContainers", []), *spec["containers"]):
                yield Container(pod=pod, owner=owner, spec=spec, manifest=one)


def of_kind(manifests: tuple[Manifest, ...], kind: str) -> dict[str, Manifest]:
    """By name."""
    return {one["metadata"]["name"]: one for one in manifests if one["kind"] == kind}


def config_text(container: Container, manifests: tuple[Manifest, ...]) -> str:
    """The file that `--config` of the container names, out of its ConfigMap."""
    command = container.command
    path = command[command.index("--config") + 1]
    mount = container.mounted_at(path)
    assert mount is not None and mount["readOnly"], path
    config_map = container.volume(mount["name"])["configMap"]["name"]
    key = mount.get("subPath") or path.removeprefix(f"{mount['mountPath']}/")
    return str(of_kind(manifests, "ConfigMap")[config_map]["data"][key])
