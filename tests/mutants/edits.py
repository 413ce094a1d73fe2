"""A planted bug as a value: exact text of a file, what it becomes, and who should notice.

A table of chosen bugs, not a tool that makes thousands: each stands for a way in which data is
lost, and a survivor is a sentence that somebody can judge. The old text must be in its file exactly
once: a table that no longer fits the code is an error, not fewer bugs.
"""

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


class DoesNotApply(Exception):
    """The edit does not fit the file as it is now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """`hazard`: what goes wrong with it. `harmless`: why it is no bug; empty = a test must fail.

    `tests` are files, or folders, of tests without real servers.
    """

    file: str
    hazard: str
    old: str
    new: str
    tests: tuple[str, ...]
    harmless: str = ""

    @property
    def name(self) -> str:
        return f"{self.file}: {self.hazard}"

    def applied(self, text: str) -> str:
        """The file with the bug in it."""
        found = text.count(self.old)
        if found != 1:
            raise DoesNotApply(f"{self.name}: {self.old!r} is there {found} times")
        return text.replace(self.old, self.new)

    def check(self, root: Path = ROOT) -> None:
        """DoesNotApply unless it leaves a program, and another one than before."""
        text = (root / self.file).read_text(encoding="utf-8")
        try:
            changed = ast.parse(self.applied(text))
        except SyntaxError as error:
            raise DoesNotApply(f"{self.name}: {error}") from error
        before = ast.parse(text)
        if ast.dump(changed) == ast.dump(before):
            raise DoesNotApply(f"{self.name}: it changes nothing")
        if unknown := _used(changed) - _used(before) - _bound(changed) - set(dir(builtins)):
            raise DoesNotApply(f"{self.name}: nothing has these names: {sorted(unknown)}")
        for test in self.tests:
            if not (root / test).exists():
                raise DoesNotApply(f"{self.name}: there is no {test}")


def _used(module: ast.Module) -> set[str]:
    """Names that are read, and attributes of `self`. A bug that needs another one only raises
    NameError: any test would notice that.
    """
    return {
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(module)
        if isinstance(node, ast.Name)
        or (isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self")
    }


def _bound(module: ast.Module) -> set[str]:
    """Names that the file itself defines: variables, fields, arguments, functions, classes."""
    found: set[str] = set()
    for node in ast.walk(module):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name):
                found.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found.update(one.asname or one.name for one in names)
    return found


@dataclass(frozen=True, slots=True)
class Target:
    """One file of the product and the tests that should notice what is wrong with it."""

    file: str
    tests: tuple[str, ...]

    def edits(self, *bugs: tuple[str, str, str]) -> Iterator[Edit]:
        """From (hazard, old text, new text)."""
        for hazard, old, new in bugs:
            yield Edit(file=self.file, hazard=hazard, old=old, new=new, tests=self.tests)

    def harmless(self, reason: str, hazard: str, old: str, new: str) -> Edit:
        """One that no test can notice, because nothing is wrong with it."""
        return Edit(
            file=self.file, hazard=hazard, old=old, new=new, tests=self.tests, harmless=reason
        )
