"""Volumes of rendered pods as folders of this machine, with the owners that Kubernetes gives them.

A ConfigMap or Secret is a folder whose files are links into a folder of their version, as the
kubelet makes them: `renew` replaces that version in one step. A file that a container mounts by its
subPath is that of the version at the container's start.
"""

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.deploy.manifests import Container, Manifest, of_kind

_VERSION = "..data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Volumes:
    """The volumes of all pods of some manifests, below a folder. Claims outlive their pods."""

    folder: Path
    manifests: tuple[Manifest, ...]
    claims: Mapping[str, Path] = field(default_factory=dict)
    """What claims of others hold, by their names."""
    _made: dict[tuple[str, str], Path] = field(default_factory=dict)

    def source(self, container: Container, mount: Manifest) -> Path:
        """What is mounted: a folder, or a file of it."""
        folder = self._of(container, mount["name"])
        words = [mount.get("subPathExpr") or mount.get("subPath") or ""]
        (below,) = container.words(words)
        return (folder / below).resolve() if below else folder

    def renew(self, container: Container, name: str, changed: dict[str, str]) -> None:
        """Other content of a ConfigMap, under its name."""
        folder = self._of(container, name)
        content = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        self._write(
            container, folder, {**content, **{key: text.encode() for key, text in changed.items()}}
        )

    def _of(self, container: Container, name: str) -> Path:
        """The volume of that name of the container's pod."""
        key = container.pod, name
        if key not in self._made:
            volume = container.volume(name)
            if claim := volume.get("persistentVolumeClaim"):
                return self.claims[claim["claimName"]]
            folder = self._made[key] = self.folder / container.pod / name
            folder.mkdir(parents=True)
            if content := self._content(volume):
                self._write(container, folder, content)
            else:
                _own(container, folder, 0o2775)
        return self._made[key]

    def _content(self, volume: Manifest) -> dict[str, bytes]:
        if "configMap" in volume:
            found = of_kind(self.manifests, "ConfigMap")[volume["configMap"]["name"]]
            return {key: text.encode() for key, text in found["data"].items()}
        if "secret" in volume:
            found = of_kind(self.manifests, "Secret")[volume["secret"]["secretName"]]
            return {key: base64.b64decode(text) for key, text in found["data"].items()}
        assert volume.keys() & {"emptyDir", "claim"}, volume
        return {}

    def _write(self, container: Container, folder: Path, content: dict[str, bytes]) -> None:
        version = folder / f"..{len(list(folder.iterdir()))}"
        version.mkdir()
        for name, data in content.items():
            (version / name).write_bytes(data)
            _own(container, version / name, 0o644)
            if not (folder / name).is_symlink():
                (folder / name).symlink_to(Path(_VERSION) / name)
        link = folder / "..new"
        link.symlink_to(version.name)
        link.rename(folder / _VERSION)


def _own(container: Container, path: Path, mode: int) -> None:
    """By the group of the pod (fsGroup), whose rights are those of the mode; only root can."""
    if os.geteuid() == 0:
        os.chown(path, 0, container.spec["securityContext"]["fsGroup"])
    path.chmod(mode)
