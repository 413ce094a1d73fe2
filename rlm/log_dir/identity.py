"""Proves that these are the right log directories, used by no second service (H13).

The meta.properties of every log directory must name the cluster and the node behind the direct
listener. The process holds an exclusive lock per node and cluster as long as it runs. The lock is
advisory (flock): it works between processes of one machine on Linux and macOS, and ends with the
process.
"""

import fcntl
import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from kip405.checkpoints import MetaProperties, parse_meta_properties
from kip405.errors import Corrupt, Invalid
from kip405.ids import Uuid

_META = "meta.properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdentity:
    """Which broker of which cluster."""

    cluster_id: str
    node_id: int


def read_identity(log_dirs: Sequence[str]) -> BrokerIdentity:
    """What the log dirs say of themselves; Invalid where one says nothing or they disagree."""
    found: dict[str, BrokerIdentity] = {path: _identity_of(path) for path in log_dirs}
    if not found:
        raise Invalid("log.dirs names no directory")
    first, *others = found
    for path in others:
        if found[path] != found[first]:
            raise Invalid(
                f"log dirs belong to different brokers: {first} to {_text(found[first])}, "
                f"{path} to {_text(found[path])}"
            )
    return found[first]


def check_identity(disks: BrokerIdentity, *, cluster_id: str, node_id: int, source: str) -> None:
    """Invalid unless the disks belong to this cluster and node, as `source` says it is."""
    if disks.cluster_id != cluster_id:
        raise Invalid(f"log.dirs belong to cluster {disks.cluster_id}, {source} says {cluster_id}")
    if disks.node_id != node_id:
        raise Invalid(f"log.dirs belong to node {disks.node_id}, {source} says {node_id}")


def check_topic_id(topic: str, partition: int, on_disk: Uuid | None, by_broker: Uuid) -> None:
    """Invalid unless partition.metadata has the topic id of the broker's Metadata."""
    if on_disk != by_broker:
        raise Invalid(
            f"{topic}-{partition} on disk has topic id {on_disk}, the broker says {by_broker}"
        )


class StateLock:
    """One process holds it, in its state dir; a context manager. `whom` describes what the service
    works for.
    """

    def __init__(self, path: str, whom: str) -> None:
        self._path = path
        self._whom = whom
        self._file: int | None = None

    def __enter__(self) -> Self:
        """Take it; Invalid at once where another process holds it."""
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(file, 32, 0).decode("ascii", "replace").strip()
            os.close(file)
            raise Invalid(
                f"another service (pid {holder or 'unknown'}) works for {self._whom}: "
                f"{self._path} is locked"
            ) from error
        os.truncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode("ascii"), 0)
        self._file = file
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give it back; the file stays, or two processes could hold two files of one name."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class ServiceLock(StateLock):
    """The one service of a broker holds it."""

    def __init__(self, state_dir: str, identity: BrokerIdentity) -> None:
        name = f"{identity.cluster_id}-{identity.node_id}.lock"
        super().__init__(os.path.join(state_dir, name), _text(identity))


class ReaderLock(StateLock):
    """The one reader with this state dir holds it."""

    def __init__(self, state_dir: str, cluster_id: str) -> None:
        path = os.path.join(state_dir, f"{cluster_id}-reader.lock")
        super().__init__(path, f"readers of cluster {cluster_id} in this state.dir")


def _identity_of(log_dir: str) -> BrokerIdentity:
    path = os.path.join(log_dir, _META)
    try:
        with open(path, "rb") as file:
            meta: MetaProperties = parse_meta_properties(file.read())
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}") from error
    except Corrupt as error:
        raise Invalid(f"{path}: {error}") from error
    if meta.cluster_id is None or meta.node_id is None:
        raise Invalid(f"{path} names no cluster.id or no node.id")
    return BrokerIdentity(cluster_id=meta.cluster_id, node_id=meta.node_id)


def _text(identity: BrokerIdentity) -> str:
    return f"node {identity.node_id} of cluster {identity.cluster_id}"
