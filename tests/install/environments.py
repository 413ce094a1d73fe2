"""Environments that hold a built wheel and exactly what it asks for, made without a network.

What a distribution asks for is linked from the environment of the tests, so an environment is made
in a second. It has no package that the wheel's own metadata does not lead to.
"""

import os
import subprocess
import sys
import venv
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.parser import Parser
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

VERSION = "9.8.7"
"""Of the wheels that the tests build."""
_OURS = ("RLM_", "PYTHON", "KAFKA_RLM_")
_OF_DOWNLOADS = ("RLM_CACHE_DIR", "RLM_MAVEN_REPO")
"""Where this machine has Kafka, or gets it from: nothing is fetched a second time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A virtual environment with one wheel of ours in it."""

    folder: Path

    def run(
        self, *command: str, check: bool = False, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """What a program of the environment answers, with no setting of ours but those given."""
        done = subprocess.run(
            [str(self.folder / "bin" / command[0]), *command[1:]],
            cwd=self.folder,
            env={**handed_on(os.environ), **(variables or {})},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def python(
        self, code: str, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """What a program in Python answers."""
        return self.run("python", "-c", code, variables=variables)


def handed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """What a program gets of the variables of the tests."""
    return {
        key: value
        for key, value in environ.items()
        if key in _OF_DOWNLOADS or not key.startswith(_OURS)
    }


def make_environment(folder: Path, wheel: Path, extras: Sequence[str] = ()) -> Environment:
    """Install the wheel as pip does, and link what it and its extras ask for."""
    venv.EnvBuilder(symlinks=True).create(folder)
    packages = next(folder.glob("lib/python*/site-packages"))
    _link(closure(requirements_of(wheel), extras), packages)
    command = [sys.executable, "-m", "uv", "--quiet", "pip", "install", "--offline", "--no-deps"]
    subprocess.run([*command, "--python", str(folder), str(wheel)], check=True)
    return Environment(folder=folder)


def requirements_of(wheel: Path) -> list[Requirement]:
    """What the metadata of a wheel asks for."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    return [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]


def closure(wanted: Iterable[Requirement], extras: Sequence[str]) -> set[str]:
    """Names of all distributions that are needed, as pip would find them."""
    found: set[tuple[str, str]] = set()
    todo = [one for one in wanted if _applies(one, extras)]
    while todo:
        one = todo.pop()
        name = canonicalize_name(one.name)
        for extra in ("", *sorted(one.extras)):
            if (name, extra) not in found:
                found.add((name, extra))
                needed = map(Requirement, distribution(name).requires or ())
                todo += [more for more in needed if _applies(more, [extra])]
    return {name for name, _ in found}


def _applies(wanted: Requirement, extras: Sequence[str]) -> bool:
    marker = wanted.marker
    return marker is None or any(marker.evaluate({"extra": one}) for one in ("", *extras))


def _link(names: Iterable[str], packages: Path) -> None:
    """Whole folders where one distribution alone has them, otherwise file by file."""
    owners = Counter(top for one in distributions() for top in _tops(one))
    for name in sorted(names):
        one = distribution(name)
        for top in _tops(one):
            if owners[top] == 1:
                (packages / top).symlink_to(Path(str(one.locate_file(top))))
                continue
            for file in one.files or ():
                if file.parts[0] == top and file.suffix != ".pyc":
                    link = packages / file
                    link.parent.mkdir(parents=True, exist_ok=True)
                    link.symlink_to(Path(str(one.locate_file(file))))


def _tops(one: Distribution) -> Iterator[str]:
    """What a distribution has directly in site-packages."""
    tops = {file.parts[0] for file in one.files or ()}
    return (top for top in sorted(tops) if top not in ("..", "__pycache__"))
