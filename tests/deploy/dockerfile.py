"""docker/Dockerfile as values: its instructions and stages. Knows nothing of what they are for."""

import json
import re
import shlex
from dataclasses import dataclass

_CONTINUED = re.compile(r"\\\n\s*")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction; `flags` are its --name=value, `rest` is what follows them."""

    name: str
    flags: dict[str, str]
    rest: str

    @property
    def words(self) -> list[str]:
        """The exec form where it is one, otherwise the words of a shell."""
        if self.rest.startswith("["):
            found: list[str] = json.loads(self.rest)
            return found
        return shlex.split(self.rest)

    @property
    def is_exec_form(self) -> bool:
        return self.rest.startswith("[")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """From one FROM to the next; `image` has no variable any more."""

    name: str
    image: str
    instructions: tuple[Instruction, ...]

    def all(self, name: str) -> list[Instruction]:
        return [one for one in self.instructions if one.name == name]

    @property
    def environment(self) -> dict[str, str]:
        """What ENV sets in it."""
        words = (word.partition("=") for one in self.all("ENV") for word in one.words)
        return {name: value for name, _, value in words}

    def last(self, name: str) -> Instruction:
        """The one that counts of those of which only one can."""
        return self.all(name)[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dockerfile:
    """`arguments`: name and default of each ARG before the first stage."""

    arguments: dict[str, str]
    stages: tuple[Stage, ...]


def parse(text: str) -> Dockerfile:
    """ValueError for a line that is no instruction."""
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    pending: list[Instruction] = []
    for one in reversed(_instructions(text)):
        if one.name == "FROM":
            image, _, name = one.rest.partition(" AS ")
            stages.append(Stage(name=name, image=image, instructions=tuple(reversed(pending))))
            pending = []
        else:
            pending.append(one)
    for one in pending:
        name, _, default = one.rest.partition("=")
        arguments[name] = default
    return Dockerfile(
        arguments=arguments,
        stages=tuple(
            Stage(
                name=one.name,
                image=_VARIABLE.sub(lambda found: arguments[found[1]], one.image),
                instructions=one.instructions,
            )
            for one in reversed(stages)
        ),
    )


def _instructions(text: str) -> list[Instruction]:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = _CONTINUED.sub(" ", "\n".join(lines))
    return [_instruction(line.strip()) for line in joined.splitlines() if line.strip()]


def _instruction(line: str) -> Instruction:
    name, _, rest = line.partition(" ")
    if not re.fullmatch(r"[A-Z]+", name) or not rest:
        raise ValueError(f"not an instruction: {line}")
    flags: dict[str, str] = {}
    while found := re.match(r"--([a-z-]+)=(\S+)\s+", rest):
        flags[found[1]] = found[2]
        rest = rest[found.end() :]
    return Instruction(name=name, flags=flags, rest=rest)
