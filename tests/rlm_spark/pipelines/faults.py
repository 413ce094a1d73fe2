"""A file system that can die at any operation, and forgets what was never made to last."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from rlm_spark.pipelines.durable import LocalFiles


class Crash(BaseException):
    """The process is dead: no handler of ours may take this for an error."""


@dataclass
class Machine:
    """Counts operations of all processes on it; dies before or within the one that is chosen."""

    die_at: int | None = None
    done: int = 0
    is_dead: bool = False
    undo: list[tuple[Path, Callable[[], None]]] = field(default_factory=list)
    unsynced: set[Path] = field(default_factory=set)

    def step(self) -> None:
        if self.is_dead or self.done == self.die_at:
            self.is_dead = True
            raise Crash
        self.done += 1

    def named(self, folder: Path, undo: Callable[[], None]) -> None:
        """A name in a folder changed; unless the folder is synced, power loss may undo it."""
        self.undo.append((folder, undo))

    def synced(self, folder: Path) -> None:
        self.undo = [one for one in self.undo if one[0] != folder]

    def lose_power(self) -> None:
        """Undoes what was not synced, the newest first."""
        for path in self.unsynced:
            if path.exists():
                os.truncate(path, 0)
        for _, undo in reversed(self.undo):
            with contextlib.suppress(OSError):
                undo()
        self.undo.clear()
        self.unsynced.clear()


class FaultyFiles(LocalFiles):
    """LocalFiles on a machine that dies."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def make_dirs(self, path: Path) -> None:
        if not path.is_dir():
            self.machine.step()
        super().make_dirs(path)

    def make_unique_dir(self, parent: Path, prefix: str) -> Path:
        self.machine.step()
        return super().make_unique_dir(parent, prefix)

    def create(self, path: Path) -> BinaryIO:
        self.machine.step()
        file = super().create(path)
        self.machine.unsynced.add(path)
        self.machine.named(path.parent, lambda: path.unlink())
        return file

    def sync(self, file: BinaryIO) -> None:
        self.machine.step()
        file.flush()  # a real sync would add nothing to the model, and it is slow
        self.machine.unsynced.discard(Path(str(file.name)))

    def link(self, source: Path, target: Path) -> None:
        self.machine.step()
        super().link(source, target)
        self.machine.named(target.parent, lambda: target.unlink())

    def rename(self, source: Path, target: Path) -> None:
        self.machine.step()
        super().rename(source, target)

        def undo() -> None:
            # Without its old folder the file is gone altogether.
            target.rename(source) if source.parent.exists() else target.unlink()

        self.machine.named(target.parent, undo)

    def sync_dir(self, path: Path) -> None:
        self.machine.step()
        self.machine.synced(path)

    def remove(self, path: Path) -> None:
        self.machine.step()
        super().remove(path)

    def remove_tree(self, path: Path) -> None:
        for one in sorted(path.rglob("*"), reverse=True):
            self.machine.step()
            one.rmdir() if one.is_dir() else one.unlink(missing_ok=True)
        self.machine.step()
        super().remove_tree(path)
