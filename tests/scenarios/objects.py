"""What lies in a sandbox's store, by the manifests: the word that needs no service; and what the
services recorded as deleted. And what a program is given that reads the store itself.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from kip405.segments import RemoteLogSegmentMetadata
from rlm_sandbox.stores.objects import StoreObjects, store_objects
from rlmm.ledger_values import decode_value
from rsm_plugins.layout.keys import DATA_OBJECTS
from rsm_plugins.layout.manifest import Manifest
from tests.scenarios.cluster import Cluster
from tests.service_log import events_of

MANIFEST = ".rsm-manifest"
RECORDS = tuple(f".{kinds[0].value}" for kinds in DATA_OBJECTS.values())
INDEXES = tuple(f".{kinds[1].value}" for kinds in DATA_OBJECTS.values())
"""Suffixes of the objects that have the records of a segment, and its indexes, in all layouts."""


def objects_of(cluster: Cluster) -> StoreObjects:
    """The store's own view of its objects, whatever kind it is."""
    return store_objects(cluster.sandbox.json["store"])


def store_settings(cluster: Cluster) -> dict[str, Any]:
    """The store's settings as its plugin has them: `rlm_stores` of a consumer."""
    config = yaml.safe_load(cluster.sandbox.layout.plugin_config(1).read_text(encoding="utf-8"))
    own = {key: value for key, value in config.items() if key.startswith("rsm.config.")}
    return {"plugin": config.get("plugin", "local"), **own}


def finished_segments(cluster: Cluster, topic: str) -> list[RemoteLogSegmentMetadata]:
    """The topic's segments by their manifests in the store, by start offset."""
    found = [decode_value(one.segment_metadata) for one in manifests(cluster, topic)]
    return sorted(found, key=lambda one: one.start_offset)


def manifests(cluster: Cluster, topic: str) -> Iterator[Manifest]:
    """Every manifest of the topic, read from the store; not those that are deleted meanwhile."""
    objects = objects_of(cluster)
    for name in names_of(objects, topic):
        if name.endswith(MANIFEST):
            try:
                manifest = Manifest.parse(objects.read(name))
            except Exception:
                if name in objects.sizes():
                    raise
                continue
            if manifest.topic == topic:
                yield manifest


def names_of(objects: StoreObjects, topic: str) -> list[str]:
    """Names of the objects of a topic: `.../<topic>-<topic id>/<partition>/<stem>.<kind>`."""
    return [name for name in objects.sizes() if name.split("/")[-3:][0].startswith(f"{topic}-")]


def with_records(folder: Path, stem: str = "") -> list[Path]:
    """The objects with records of segments in a folder of a store, by name."""
    return sorted(path for path in folder.glob(f"{stem}*") if path.name.endswith(RECORDS))


def audited(cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    """The lines of the audit logs of all services about a topic, by name or id; not commands."""
    paths = Path(cluster.sandbox.json["dir"]).glob("rlm-*/audit.log")
    changes = [line for path in paths for line in events_of(path) if line["event"] != "command"]
    return [line for line in changes if topic in (line["topic"], line["topic_id"])]
