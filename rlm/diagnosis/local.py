"""Reads log.dirs and the limits of this process: thin IO, which blocks, and changes nothing.

Of each partition directory the first and the last segment are opened and nothing of them is read:
whether this user may read them is all that is asked.
"""

import os
import platform
import resource
from collections.abc import Sequence
from pathlib import Path

from kip405.checkpoints import parse_partition_metadata
from kip405.errors import Corrupt, Invalid, Unavailable
from kip405.ids import Uuid
from rlm.config import ServiceConfig
from rlm.diagnosis.observed import ObservedDisks, ObservedHost, PartitionDirectory
from rlm.log_dir.identity import BrokerIdentity, read_identity
from rlm.log_dir.scanner import partitions_in
from rlm.log_dir.space import space_of
from rlm.plans.disk import LogDirReport, under_pressure

_SEGMENT = ".log"
_METADATA = "partition.metadata"


def read_host() -> ObservedHost:
    """Of this machine and process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    name, version = platform.libc_ver()
    return ObservedHost(
        libc=(name, version), open_files=None if hard == resource.RLIM_INFINITY else hard
    )


def read_disks(config: ServiceConfig) -> ObservedDisks:
    """All of log.dirs; what cannot be read is named."""
    paths = [str(path) for path in config.log_dirs]
    faults: dict[str, str] = {}
    partitions: dict[tuple[str, int], tuple[PartitionDirectory, ...]] = {}
    for path in paths:
        try:
            found = partitions_in(path)
        except Unavailable as error:
            faults[path] = str(error)
            continue
        for key, directory in found.items():
            partitions[key] = (*partitions.get(key, ()), _directory(directory))
    return ObservedDisks(
        identities={path: _identity(path) for path in paths},
        faults=faults,
        partitions=partitions,
        spaces=tuple(_space(path, config) for path in config.log_dirs),
    )


def _identity(path: str) -> BrokerIdentity | str:
    try:
        return read_identity([path])
    except Invalid as error:
        return str(error)


def _directory(path: str) -> PartitionDirectory:
    try:
        segments = sorted(name for name in os.listdir(path) if name.endswith(_SEGMENT))
        _open_each(path, segments[:1] + segments[1:][-1:])
        return PartitionDirectory(path=path, topic_id=_topic_id(path))
    except OSError as error:
        fault = f"{error.filename or path}: {error.strerror}"
        return PartitionDirectory(path=path, fault=fault)
    except Corrupt as error:
        return PartitionDirectory(path=path, fault=f"{os.path.join(path, _METADATA)}: {error}")


def _open_each(directory: str, names: Sequence[str]) -> None:
    for name in names:
        try:
            os.close(os.open(os.path.join(directory, name), os.O_RDONLY | os.O_CLOEXEC))
        except FileNotFoundError:
            continue  # the broker deleted it meanwhile


def _topic_id(directory: str) -> Uuid | None:
    try:
        return parse_partition_metadata(Path(directory, _METADATA).read_bytes())
    except FileNotFoundError:
        return None


def _space(path: Path, config: ServiceConfig) -> LogDirReport:
    """As of now: nothing is known of its growth."""
    error, size_bytes, free_bytes = "", None, None
    try:
        space = space_of(path, config.disk_quota_bytes)
        size_bytes, free_bytes = space.size_bytes, space.free_bytes
    except OSError as failure:
        error = str(failure)
    return LogDirReport(
        path=str(path),
        size_bytes=size_bytes,
        free_bytes=free_bytes,
        growth_bytes_per_second=None,
        full_in_ms=None,
        under_pressure=under_pressure(False, free_bytes, config.disk_min_free_bytes),
        error=error,
    )
