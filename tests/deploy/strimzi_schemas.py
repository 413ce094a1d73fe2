"""Strimzi's schemas, made by Strimzi's own generator out of its API, as its releases are made.

Both are jars in Maven Central; the generator is there since 1.0, and reads the API of versions
before it too. What the schemas say in CEL (x-kubernetes-validations) is not evaluated.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from rlm_sandbox.kafka_dist import cache_dir, java_binary
from rlm_sandbox.maven import cached_jars
from rlm_sandbox.spec import SandboxError
from tests.deploy.manifests import Manifest

OLDEST, NEWEST = "0.49.0", "1.2.0"
"""The first with kafka.strimzi.io/v1, and the last when this was written."""

_CLASSES = {
    "Kafka": "kafka.Kafka",
    "KafkaNodePool": "nodepool.KafkaNodePool",
    "KafkaTopic": "topic.KafkaTopic",
    "KafkaUser": "user.KafkaUser",
}
_OPTIONS = (
    *("--label", "app:strimzi", "--label", "strimzi.io/crd-install:true"),
    *("--target-kube", "1.16+", "--crd-api-version", "v1", "--api-versions", "v1"),
    *("--storage-version", "v1", "--yaml"),
)
_SIZE_MIB = 20

Schemas = Mapping[str, Mapping[str, Any]]
"""By kind. A field that the schema does not have is refused, as the API server does on request."""


def made(version: str, folder: Path) -> Schemas:
    """The schemas of kafka.strimzi.io/v1 in a version. Skips where its jars cannot be had."""
    try:
        jars = cached_jars(
            f"strimzi-{version}",
            [f"io.strimzi:api:{version}", f"io.strimzi:crd-generator:{NEWEST}"],
            cache_dir(),
            repository=os.environ.get("RLM_MAVEN_REPO"),
            size_mib=_SIZE_MIB,
            progress=lambda _: None,
            alone=True,
        )
    except SandboxError as error:
        pytest.skip(f"the schemas of Strimzi cannot be had: {error}")
    files = {kind: folder / f"{kind}.yaml" for kind in _CLASSES}
    classes = [
        f"io.strimzi.api.kafka.model.{name}={files[kind]}" for kind, name in _CLASSES.items()
    ]
    path = os.pathsep.join(map(str, jars))
    generator = "io.strimzi.crdgenerator.CrdGenerator"
    subprocess.run(
        [str(java_binary()), "-cp", path, generator, *_OPTIONS, *classes], check=True, timeout=240
    )
    return {kind: _schema(_quickly_read(file)) for kind, file in files.items()}


def validate(manifest: Manifest, schemas: Schemas) -> None:
    """jsonschema.ValidationError where it does not fit."""
    assert manifest["apiVersion"] == "kafka.strimzi.io/v1"
    jsonschema.Draft7Validator(schemas[manifest["kind"]]).validate(manifest)


def _quickly_read(file: Path) -> Manifest:
    """In C: it has thousands of lines."""
    with file.open(encoding="utf-8") as content:
        found: Manifest = yaml.load(content, yaml.CSafeLoader)
    return found


def _schema(definition: Manifest) -> Mapping[str, Any]:
    (version,) = (one for one in definition["spec"]["versions"] if one["name"] == "v1")
    found: Mapping[str, Any] = _closed(version["schema"]["openAPIV3Schema"])
    return found


def _closed(schema: Any) -> Any:
    """The schema in which an object has no fields but its properties, unless it says so."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _closed(value) for key, value in schema.items()}
    is_open = found.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in found
    if found.get("type") == "object" and isinstance(found.get("properties"), dict) and not is_open:
        found["additionalProperties"] = False
    return found
