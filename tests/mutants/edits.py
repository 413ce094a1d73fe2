"""A planted bug as a value: exact text of a file, what it becomes, and who should notice.

A table of chosen bugs, not a tool that makes thousands: each stands for a way in which data is
lost, and a survivor is a sentence that somebody can judge. The old text must be in its file exactly
once: a table that no longer fits the code is an error, not fewer bugs.
"""

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
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
        changed = self.applied(text)
        if not _is_other_statement(text, self.old, self.new):
            self._check_whole(text, changed)
        for test in self.tests:
            if not (root / test).exists():
                raise DoesNotApply(f"{self.name}: there is no {test}")

    def _check_whole(self, text: str, changed_text: str) -> None:
        try:
            changed = ast.parse(changed_text)
        except SyntaxError as error:
            raise DoesNotApply(f"{self.name}: {error}") from error
        before = ast.parse(text)
        if ast.dump(changed) == ast.dump(before):
            raise DoesNotApply(f"{self.name}: it changes nothing")
        if unknown := _used(changed) - _used(before) - _bound(changed) - set(dir(builtins)):
            raise DoesNotApply(f"{self.name}: nothing has these names: {sorted(unknown)}")


@dataclass(frozen=True, slots=True)
class _Span:
    """Where the lines of a statement begin in the text, and end without the last line feed."""

    begin: int
    end: int
    is_of_class: bool


def _is_other_statement(text: str, old: str, new: str) -> bool:
    """Whether the edit is within one statement and makes it another, with names that the file has.

    That is nearly always so, and needs no tree of the whole file, of which there are thousands of
    edits; otherwise the whole file decides.
    """
    spans, used = _known(text)
    begin = text.index(old)
    end = begin + len(old)
    around = [one for one in spans if one.begin <= begin and end <= one.end]
    if not around:
        return False
    span = min(around, key=lambda one: one.end - one.begin)
    head = "class _:\n" if span.is_of_class else ""
    changed_text = text[span.begin : begin] + new + text[end : span.end]
    try:
        changed = ast.parse(head + changed_text)
    except SyntaxError:
        return False
    if span.is_of_class and len(changed.body) != 1:
        return False  # it has left its class
    is_other = ast.dump(changed) != _dump(head + text[span.begin : span.end])
    return is_other and not _used(changed) - used - set(dir(builtins))


@lru_cache(maxsize=1)
def _known(text: str) -> tuple[list[_Span], set[str]]:
    """The statements of a file and of its classes, and the names that it uses."""
    module = ast.parse(text)
    begins = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
    found: list[_Span] = []
    for statement in module.body:
        inner = statement.body if isinstance(statement, ast.ClassDef) else []
        for one in (statement, *inner):
            first = min([one.lineno, *(each.lineno for each in getattr(one, "decorator_list", []))])
            last = one.end_lineno or one.lineno
            found.append(_Span(begins[first - 1], begins[last] - 1, one is not statement))
    return found, _used(module)


@lru_cache(maxsize=64)
def _dump(text: str) -> str:
    return ast.dump(ast.parse(text))


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
