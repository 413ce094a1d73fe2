"""The offsets that groups have committed at an attached reader: a file for each group, in the
folder of its state.

A commit is in its file, durably, before it is answered. One task writes, so that no commit goes
back behind a later one; those that come meanwhile are written together. An offset belongs to the id
of a topic: one that was created again under its name has none. This module must not know Kafka's
protocol.
"""

import asyncio
import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import structlog

from kip405.errors import Corrupt, Invalid, RemoteStorageError, Unavailable
from kip405.ids import PartitionKey, Uuid
from rsm_plugins.files.durable import error_of_os, replace_file, sync_path
from rsm_plugins.threads import Threads

log = structlog.get_logger(__name__)

MOST_GROUPS = 1_000
"""Each has a file."""
_FORMAT = 1
_SUFFIX = ".json"
_NOTHING: Mapping[PartitionKey, "Committed"] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """`topic`: its name at that time. `leader_epoch`: -1 where the client knew none."""

    topic: str
    offset: int
    leader_epoch: int
    metadata: str | None


Offsets = Mapping[PartitionKey, Committed]


@dataclass(frozen=True, slots=True)
class _Wanted:
    group_id: str
    offsets: Offsets
    written: asyncio.Future[None]


class CommittedOffsets:
    """`load` comes first; `run` writes."""

    def __init__(self, folder: Path, threads: Threads) -> None:
        self._folder = folder
        self._threads = threads
        self._groups: dict[str, Offsets] = {}
        self._wanted: list[_Wanted] = []
        self._has_come = asyncio.Event()
        self._lock = threading.Lock()
        self._begun = self._written = 0

    def load(self) -> None:
        """Read all files; blocking. Corrupt: one of them is damaged. Unavailable: it cannot be
        read.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            sync_path(self._folder.parent)
            sync_path(self._folder)  # a file may have come just before a crash
            for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
                group_id, offsets = _decode(path, path.read_bytes())
                self._groups[group_id] = offsets
        except OSError as error:
            raise error_of_os(error, "read", f"the offsets of groups in {self._folder}") from error

    def of(self, group_id: str) -> Offsets:
        """What is committed, durably."""
        return self._groups.get(group_id, _NOTHING)

    def commit(self, group_id: str, offsets: Offsets) -> asyncio.Future[None]:
        """Done once it is written. Its error: Invalid, there are too many groups; otherwise it is
        not certain whether it was written.
        """
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if group_id not in self._groups and len(self._groups) >= MOST_GROUPS:
            written.set_exception(Invalid(f"there are {MOST_GROUPS} groups with offsets already"))
            return written
        self._wanted.append(_Wanted(group_id, offsets, written))
        self._has_come.set()
        return written

    async def run(self) -> None:
        """Write what is committed, until cancelled."""
        while True:
            await self._has_come.wait()
            self._has_come.clear()
            wanted, self._wanted = self._wanted, []
            merged: dict[str, Offsets] = {}
            for one in wanted:
                before = merged.get(one.group_id, self.of(one.group_id))
                merged[one.group_id] = {**before, **one.offsets}
            error = await self._failure(merged)
            if error is None:
                self._groups |= merged
            else:
                log.error("commit_failed", groups=sorted(merged), error=str(error))
            for one in wanted:
                if one.written.done():
                    continue  # its client has gone
                if error is None:
                    one.written.set_result(None)
                else:
                    one.written.set_exception(error)

    async def _failure(self, groups: Mapping[str, Offsets]) -> RemoteStorageError | None:
        self._begun += 1
        try:
            await self._threads.run(self._write, self._begun, groups)
        except RemoteStorageError as error:
            return error
        return None

    def _write(self, number: int, groups: Mapping[str, Offsets]) -> None:
        """A write whose thread hangs may go on long after it was given up, and must not replace
        what was written since. Files of very many partitions take long to encode, too.
        """
        with self._lock:
            if number < self._written:
                raise Unavailable("a later write was faster")
            self._written = number
            try:
                for group_id, offsets in groups.items():
                    replace_file(self._folder / file_name(group_id), _encode(group_id, offsets))
                sync_path(self._folder)
            except OSError as error:
                target = f"the offsets of groups in {self._folder}"
                raise error_of_os(error, "write", target) from error


def file_name(group_id: str) -> str:
    """Of a group, whatever characters its id has."""
    return hashlib.sha256(group_id.encode()).hexdigest() + _SUFFIX


def _encode(group_id: str, offsets: Offsets) -> bytes:
    rows = [
        {
            "topic": one.topic,
            "topic_id": str(key.topic_id),
            "partition": key.partition,
            "offset": one.offset,
            "leader_epoch": one.leader_epoch,
            "metadata": one.metadata,
        }
        for key, one in offsets.items()
    ]
    content = {"version": _FORMAT, "group_id": group_id, "offsets": rows}
    return json.dumps(content).encode()


def _decode(path: Path, content: bytes) -> tuple[str, Offsets]:
    try:
        read = json.loads(content)
        if read["version"] != _FORMAT:
            raise Invalid(f"{path}: format {read['version']} is of another version of the software")
        group_id = read["group_id"]
        found = {
            PartitionKey(Uuid.parse(row["topic_id"]), int(row["partition"])): Committed(
                topic=row["topic"],
                offset=row["offset"],
                leader_epoch=row["leader_epoch"],
                metadata=row["metadata"],
            )
            for row in read["offsets"]
        }
    except (ValueError, LookupError, TypeError) as error:
        raise Corrupt(
            f"{path}: is damaged ({error}); without it, its group has no committed offsets"
        ) from error
    if path.name != file_name(group_id):
        raise Corrupt(f"{path}: has the offsets of another group, {group_id}")
    return group_id, found
