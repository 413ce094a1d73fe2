"""Carries out a Dockerfile below a folder instead of in an image, where there is no engine.

Every absolute path of the image is the same path below the folder of its stage. RUN is a shell,
COPY copies, and what a container would start is started with the stage's environment alone. What
this cannot show: users, read-only file systems, and that the base images have what RUN needs.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from tests.deploy.dockerfile import Dockerfile, Instruction, Stage
from tests.project.tree import ROOT

_OF_THE_IMAGE = re.compile(r"(?<![\w./:-])/(build|opt|var|run|etc)(?=[/\s\"'\]]|$)")
_RUN_SECONDS = 900


class StepFailed(Exception):
    """A step ended with another status than 0."""


@dataclass(kw_only=True)
class Built:
    """`roots`: the folder of each stage by its name, the last one's by "". `environment`: what ENV
    has set in the last stage.
    """

    roots: dict[str, Path] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    workdir: Path = field(default_factory=Path)

    @property
    def root(self) -> Path:
        return self.roots[""]

    def run(self, command: Sequence[str], **more: str) -> subprocess.CompletedProcess[str]:
        """A command of a container: its environment is the image's, and nothing of this process."""
        below = [_below(word, self.root) for word in command]
        return subprocess.run(
            below,
            cwd=self.workdir,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            timeout=_RUN_SECONDS,
            check=False,
            executable=shutil.which(below[0], path=self.environment["PATH"]),
        )


def build(
    parsed: Dockerfile, folder: Path, instead: Mapping[str, str], context: Path = ROOT
) -> Built:
    """Carry out every stage. `instead`: what replaces a RUN that contains these words."""
    built = Built()
    for number, stage in enumerate(parsed.stages):
        root = folder / str(number)
        root.mkdir(parents=True)
        is_last = stage is parsed.stages[-1]
        built.roots["" if is_last else stage.name] = root
        _carry_out(stage, built, root, instead, context)
    return built


def _carry_out(
    stage: Stage, built: Built, root: Path, instead: Mapping[str, str], context: Path
) -> None:
    tools = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    environment = {"PATH": tools, "HOME": str(root), **_network()}
    workdir = root
    for one in stage.instructions:
        match one.name:
            case "ENV":
                environment |= {name: _below(value, root) for name, value in _pairs(one.rest)}
            case "WORKDIR":
                workdir = Path(_below(one.rest, root))
                workdir.mkdir(parents=True, exist_ok=True)
            case "COPY":
                _copy(one, built, root, context)
            case "RUN":
                _shell(_replaced(one.rest, instead), root, workdir, environment)
    built.environment = {name: environment[name] for name in environment if name not in _network()}
    built.workdir = workdir


def _network() -> dict[str, str]:
    """What pip needs here where a step asks the index."""
    names = ("PIP_INDEX_URL", "PIP_FIND_LINKS", "PIP_CERT", "HTTPS_PROXY", "https_proxy")
    return {name: os.environ[name] for name in names if name in os.environ}


def _replaced(command: str, instead: Mapping[str, str]) -> str:
    for words, other in instead.items():
        if words in command:
            return other
    return command


def _shell(command: str, root: Path, workdir: Path, environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        ["sh", "-eu", "-c", _below(command, root)],
        cwd=workdir,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_RUN_SECONDS,
        check=False,
    )
    if done.returncode:
        raise StepFailed(f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def _copy(one: Instruction, built: Built, root: Path, context: Path) -> None:
    *sources, target = one.words
    here = Path(_below(target, root))
    if "from" in one.flags:
        (source,) = sources
        other = built.roots[one.flags["from"]]
        shutil.copytree(Path(_below(source, other)), here, symlinks=True, dirs_exist_ok=True)
        _moved(here / "bin", other, root)
        return
    for source in sources:
        if (context / source).is_dir():
            shutil.copytree(context / source, here, ignore=Ignored(context), dirs_exist_ok=True)
        else:
            here.mkdir(parents=True, exist_ok=True)
            shutil.copy(context / source, here)


def _moved(programs: Path, other: Path, root: Path) -> None:
    """In an image an interpreter has the same path in every stage, and scripts name it."""
    for path in programs.glob("*"):
        if path.is_file() and not path.is_symlink():
            path.write_bytes(path.read_bytes().replace(bytes(other), bytes(root)))


class Ignored:
    """What .dockerignore leaves out of the context, as shutil.copytree asks for it."""

    def __init__(self, context: Path) -> None:
        self._context = context
        text = (context / ".dockerignore").read_text(encoding="utf-8")
        self._patterns = [line for line in text.splitlines() if line and line[0] != "#"]

    def __call__(self, folder: str, names: list[str]) -> set[str]:
        below = Path(folder).relative_to(self._context)
        return {name for name in names if self.leaves_out(below / name)}

    def leaves_out(self, path: Path) -> bool:
        for pattern in self._patterns:
            if pattern.startswith("**/"):
                if fnmatch(path.name, pattern[3:]):
                    return True
            elif path.as_posix() == pattern:
                return True
        return False


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (one.partition("=") for one in text.split())]


def _below(text: str, root: Path) -> str:
    """The text with every path of the image moved below the folder of its stage."""
    return _OF_THE_IMAGE.sub(lambda found: f"{root}/{found[1]}", text)
