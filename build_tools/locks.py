"""Paths of the locks, and their parser; shared by the installer and the checks.

Knows the requirements format that uv writes and the records beside it. Standard library
only, because the installer runs it before anything is installed. Must not know pip or make.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
RECORD = REQUIREMENTS / "wheels.json"
AUDIT = REQUIREMENTS / "audit.json"
DEMO_PROFILES = ("demo", "demo-s3", "demo-hdfs", "demo-spark")
"""The profiles of `make demo`, by STORE, and of `make demo-spark`."""

PROFILES = ("bootstrap", "service", *DEMO_PROFILES, "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One locked package: its exact version, environment marker ("" = always) and sha256 sums."""

    name: str
    version: str
    marker: str
    sha256: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOnly:
    """A package that publishes no wheel: why its sdist is all right, and how large it is."""

    reason: str
    size_mb: int


WITHOUT_WHEEL = {
    "pyspark": SourceOnly(
        reason="no wheel is published; pure Python and jars, built by setuptools, no compiler",
        size_mb=456,
    ),
}


def lock_path(profile: str) -> Path:
    """The lock of a profile."""
    return REQUIREMENTS / f"{profile}.txt"


def lock_digest(profile: str) -> str:
    """The sha256 of a lock's bytes, in hex."""
    return hashlib.sha256(lock_path(profile).read_bytes()).hexdigest()


def read_pins(text: str) -> tuple[Pin, ...]:
    """The pins of a lock's text, in its order; ValueError for any other line."""
    joined = text.replace("\\\n", " ")
    return tuple(
        _read_pin(line)
        for line in (line.strip() for line in joined.splitlines())
        if line and not line.startswith("#")
    )


def _read_pin(line: str) -> Pin:
    requirement, *hashes = re.split(r"\s+--hash=sha256:", line)
    pin, _, marker = requirement.partition(";")
    matched = re.fullmatch(r"([a-z0-9-]+)==([A-Za-z0-9.!+]+)", pin.strip())
    if matched is None or not hashes:
        raise ValueError(f"not an exact, hashed pin: {line[:80]}")
    return Pin(
        name=matched[1],
        version=matched[2],
        marker=marker.strip(),
        sha256=frozenset(digest.strip() for digest in hashes),
    )


def download_mb(profile: str, platform: str) -> int | None:
    """Megabytes that a profile downloads on a platform; None where they were not measured."""
    sizes = json.loads(RECORD.read_text(encoding="utf-8"))["download_mb"]
    size = sizes.get(profile, {}).get(platform)
    return None if size is None else int(size)
