"""A page that a reader follows from top to bottom: its commands and programs, run word for word by
one shell, and compared with what the page shows of their output.

A command is an indented line that begins with `$`; a program is a block of Python, given to
`python`. What is indented below, without `$`, is shown output.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_STEP = re.compile(
    r"^```python\n(?P<program>(?s:.*?))^```\n\n?(?P<printed>(?:    [^$\n][^\n]*\n)*)"
    r"|^    \$ (?P<command>[^\n]*)\n(?P<shown>(?:    [^$\n][^\n]*\n)*)",
    re.MULTILINE,
)
_REMEMBERED = re.compile(r"(?:export |[A-Z]+=)")
_END = "walk: this was step"
_MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "TIME"),
    (re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])"), "ID"),
    (re.compile(r"-[\w-]{22}\.log"), "-ID.log"),
    (re.compile(r"\.{4,}"), "...."),
)
_NUMBERS = re.compile(r"\d+(?:\.\d+)?(?: [KMG]?i?B\b)?")
REST = "..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What the reader types, and what the page shows of its output. `is_program`: for `python`."""

    text: str
    shown: tuple[str, ...]
    is_program: bool = False

    @property
    def script(self) -> str:
        """Lines of a shell."""
        return f"python <<'PROGRAM'\n{self.text}PROGRAM" if self.is_program else self.text

    @property
    def is_exact(self) -> bool:
        """Whether the numbers in the output are the same each time."""
        return self.is_program or self.text.startswith("rlm fetch ")


def steps_of(page: str) -> list[Step]:
    """All of a page, or of a part of it, in its order."""
    return [
        Step(
            text=found["program"] or found["command"],
            shown=tuple(map(str.strip, (found["printed"] or found["shown"] or "").splitlines())),
            is_program=found["program"] is not None,
        )
        for found in _STEP.finditer(page)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """Runs steps in `folder`, a checkout of the project. `instead`: other texts for some of the
    page, as a test needs a directory of its own.
    """

    folder: Path
    instead: Mapping[str, str]

    def run(
        self, steps: Sequence[Step], *, after: Iterable[Step] = (), timeout_s: int
    ) -> list[str]:
        """The output of each step; the first that fails or takes too long is an AssertionError.
        Variables that earlier steps, `after`, have set are set again.
        """
        kept = [one.text for one in after if _REMEMBERED.match(one.text)]
        lines = [f"{one.script}\necho; echo '{_END}' {number}" for number, one in enumerate(steps)]
        stdout, stderr, is_done = self._shell("\n".join([*kept, *lines]), timeout_s)
        outputs = re.split(rf"\n?^{_END} \d+\n", stdout, flags=re.MULTILINE)
        if not is_done:
            failed = steps[len(outputs) - 1].text
            raise AssertionError(f"{failed}\n{outputs[-1][-2000:]}{stderr[-3000:]}")
        return outputs[:-1]

    def _shell(self, script: str, timeout_s: int) -> tuple[str, str, bool]:
        """Output, errors, and whether all went well; after `timeout_s` everything is terminated."""
        with subprocess.Popen(
            ["sh", "-euc", self._replaced(script)],
            cwd=self.folder,
            env=self._environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as shell:
            try:
                stdout, stderr = shell.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(shell.pid, signal.SIGTERM)  # who runs in the background ignores SIGINT
                stdout, stderr = shell.communicate()
                return stdout, f"{stderr}\nnot done after {timeout_s} s", False
            return stdout, stderr, shell.returncode == 0

    def _replaced(self, text: str) -> str:
        for of_the_page, other in self.instead.items():
            text = text.replace(of_the_page, other)
        return text

    def _environ(self) -> dict[str, str]:
        here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, "PATH": here}


def not_shown(step: Step, output: str, instead: Mapping[str, str]) -> list[str]:
    """Lines of the page that the output has not, in this order; `...` stands for any number of
    lines, and at the end of a line for the rest of it.
    """
    lines = [_masked(line, is_exact=step.is_exact) for line in output.splitlines()]
    missing = []
    for wanted in step.shown:
        for of_the_page, other in instead.items():
            wanted = wanted.replace(of_the_page, other)
        if wanted == REST:
            continue
        pattern = re.escape(_masked(wanted, is_exact=step.is_exact))
        pattern = pattern.replace(r"/\.\.\./", "/.*/").removesuffix(r"\.\.\.")
        is_open = wanted.endswith(REST)
        found = next(
            (at for at, one in enumerate(lines) if _matches(pattern, one, is_open=is_open)), None
        )
        if found is None:
            missing.append(wanted)
        else:
            lines = lines[found + 1 :]
    return missing


def _matches(pattern: str, line: str, *, is_open: bool) -> bool:
    compiled = re.compile(pattern)
    return bool(compiled.match(line) if is_open else compiled.fullmatch(line))


def _masked(line: str, *, is_exact: bool) -> str:
    """Without what differs from run to run, and with one space between columns."""
    for pattern, name in _MASKS:
        line = pattern.sub(name, line)
    return " ".join((line if is_exact else _NUMBERS.sub("N", line)).split())
