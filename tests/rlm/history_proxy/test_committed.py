"""Committed offsets of groups: in files before they are answered, and there after a crash."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from kip405.errors import Corrupt, Invalid, RemoteStorageError, Unavailable
from kip405.ids import PartitionKey, Uuid
from rlm.history_proxy import committed as of_groups
from rlm.history_proxy.committed import Committed, CommittedOffsets, Offsets, file_name
from rsm_plugins.files.durable import replace_file, sync_path
from rsm_plugins.threads import Threads
from tests.rlm.history_proxy.served import offsets_in

FIRST, SECOND = (PartitionKey(Uuid(bytes(15) + b"\1"), number) for number in range(2))


def at(offset: int) -> Committed:
    return Committed(topic="orders", offset=offset, leader_epoch=3, metadata="m")


def loaded(folder: Path) -> CommittedOffsets:
    """As after a restart."""
    found = CommittedOffsets(folder, Threads("unused", 1))
    found.load()
    return found


async def test_a_commit_is_in_its_file_once_it_is_answered(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as tasks, offsets_in(tmp_path, tasks) as committed:
        assert not committed.of("g/ü")
        await committed.commit("g/ü", {FIRST: at(5), SECOND: at(6)})
        assert loaded(tmp_path).of("g/ü") == {FIRST: at(5), SECOND: at(6)}
        together = [committed.commit("g/ü", {FIRST: at(number)}) for number in (7, 8, 9)]
        await asyncio.gather(*together, committed.commit("other", {FIRST: at(1)}))
        assert committed.of("g/ü") == {FIRST: at(9), SECOND: at(6)}
        assert loaded(tmp_path).of("g/ü") == committed.of("g/ü")
        assert loaded(tmp_path).of("other") == {FIRST: at(1)}


async def test_files_and_their_names_are_durable_before_a_commit_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what a process has left that ended between a file and the sync of its name: a group is
    given no offset that a crash of the machine takes back.
    """
    done: list[tuple[str, Path]] = []

    def replaced(path: Path, content: bytes) -> None:
        replace_file(path, content)
        done.append(("file", path))

    def synced(path: Path) -> None:
        sync_path(path)
        done.append(("names", path))

    monkeypatch.setattr(of_groups, "replace_file", replaced)
    monkeypatch.setattr(of_groups, "sync_path", synced)
    folder = tmp_path / "groups"
    async with asyncio.TaskGroup() as tasks, offsets_in(folder, tasks) as committed:
        assert done == [("names", tmp_path), ("names", folder)]
        await committed.commit("g", {FIRST: at(5)})
        assert done[2:] == [("file", folder / file_name("g")), ("names", folder)]


async def test_other_clients_are_answered_while_a_large_file_is_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second of 10,000 partitions would be one without heartbeats, at each commit."""
    encoded_in: list[threading.Thread] = []
    encode = of_groups._encode

    def noted(group_id: str, offsets: Offsets) -> bytes:
        encoded_in.append(threading.current_thread())
        return encode(group_id, offsets)

    monkeypatch.setattr(of_groups, "_encode", noted)
    async with asyncio.TaskGroup() as tasks, offsets_in(tmp_path, tasks) as committed:
        await committed.commit("g", {FIRST: at(5)})
    assert encoded_in
    assert threading.current_thread() not in encoded_in


async def test_what_cannot_be_written_is_not_committed(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as tasks, offsets_in(tmp_path, tasks) as committed:
        await committed.commit("g", {FIRST: at(5)})
        content = (tmp_path / file_name("g")).read_bytes()
        (tmp_path / (file_name("g") + ".tmp")).mkdir()
        for _ in range(2):
            with pytest.raises(RemoteStorageError):
                await committed.commit("g", {FIRST: at(6)})
        assert committed.of("g") == {FIRST: at(5)}
        assert (tmp_path / file_name("g")).read_bytes() == content
        (tmp_path / (file_name("g") + ".tmp")).rmdir()
        await committed.commit("g", {FIRST: at(6)})
        assert loaded(tmp_path).of("g") == {FIRST: at(6)}


async def test_a_write_that_hung_replaces_nothing_later(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as tasks, offsets_in(tmp_path, tasks) as committed:
        await committed.commit("g", {FIRST: at(5)})
        await committed.commit("g", {FIRST: at(6)})
        with pytest.raises(Unavailable, match="a later write was faster"):
            committed._write(1, {"g": {FIRST: at(7)}})
        assert loaded(tmp_path).of("g") == {FIRST: at(6)}


async def test_groups_with_offsets_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_groups, "MOST_GROUPS", 1)
    async with asyncio.TaskGroup() as tasks, offsets_in(tmp_path, tasks) as committed:
        await committed.commit("g", {FIRST: at(5)})
        with pytest.raises(Invalid, match="there are 1 groups"):
            await committed.commit("another", {FIRST: at(5)})
        await committed.commit("g", {FIRST: at(6)})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[:20], "is damaged"),
        (lambda text: text.replace('"offset": 5', '"offsett": 5'), "is damaged .'offset'"),
        (lambda text: text.replace('"g"', '"h"'), "has the offsets of another group, h"),
        (lambda text: text.replace('"version": 1', '"version": 2'), "format 2 is of another"),
    ],
)
async def test_a_damaged_file_is_named(tmp_path: Path, change: Any, words: str) -> None:
    async with asyncio.TaskGroup() as tasks, offsets_in(tmp_path, tasks) as committed:
        await committed.commit("g", {FIRST: at(5)})
    path = tmp_path / file_name("g")
    path.write_text(change(path.read_text()))
    with pytest.raises((Corrupt, Invalid), match=words) as found:
        loaded(tmp_path)
    assert str(path) in str(found.value)
