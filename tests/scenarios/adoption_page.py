"""docs/adoption.md as a test walks it: the commands of each section, word for word."""

import re
import shlex
import subprocess
from collections.abc import Mapping

from tests.docs.reading import command_lines
from tests.docs.site import text_of
from tests.scenarios.cluster import Cluster

PAGE = "docs/adoption.md"
_AT_END = re.compile(r"\s+#.*$")


def sections(text: str) -> dict[str, list[str]]:
    """The commands of `rlm` and of Kafka under each heading of the second level, in order."""
    found: dict[str, list[str]] = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, _, rest = part.partition("\n")
        kafkas = re.findall(r"^    \$ (kafka-.*)$", rest, re.MULTILINE)
        lines = [_AT_END.sub("", one).strip() for one in command_lines(rest)]
        found[heading] = [*(one for one in lines if one.startswith("rlm ")), *kafkas]
    return found


class AdoptionPage:
    """Runs what the page says; `unused` has the commands that nobody has run.

    `instead`: other words for some of the page, as files have other paths here.
    """

    REFUSED = 1
    """The exit status of what asks for --yes."""

    def __init__(self, cluster: Cluster, instead: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._instead = instead
        self._commands = sections(text_of(PAGE))
        self._used: set[tuple[str, str]] = set()

    @property
    def unused(self) -> set[tuple[str, str]]:
        named = {(heading, one) for heading, all_ in self._commands.items() for one in all_}
        return named - self._used

    def kafkas(self, heading: str) -> list[str]:
        """The commands of Kafka's own tools."""
        return [one for one in self._commands[heading] if one.startswith("kafka-")]

    def words(self, heading: str, command: str, **names: str) -> list[str]:
        """The arguments of a command that the page has under this heading; `names` are put in the
        place of words, as of T.
        """
        assert command in self._commands[heading], f"{PAGE} has no {command!r} in {heading!r}"
        self._used.add((heading, command))
        words = shlex.split(command)[1:]
        return [names.get(one, self._instead.get(one, one)) for one in words]

    def run(
        self, heading: str, command: str, *options: str, status: int = 0, **names: str
    ) -> subprocess.CompletedProcess[str]:
        """Run it, with options that the page names besides."""
        words = self.words(heading, command, **names)
        done = self._cluster.rlm(*words, *options, check=False, timeout_s=600)
        shown = f"rlm {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.returncode == status, shown
        return done
