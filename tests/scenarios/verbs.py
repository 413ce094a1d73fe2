"""Every command of `rlm`, by the words of it: what there is, and what a test has run."""

import subprocess
from collections.abc import Iterator

import click

from rlm.cli.main import main
from tests.scenarios.cluster import Cluster
from tests.scenarios.eventually import comes_to, words_of

Leaf = tuple[str, ...]
_TIMEOUT_S = 600
"""Of a command that starts Spark on a busy machine; all others are much quicker."""

NOT_ASKED = ("attach", "import", "sandbox", "serve")
"""They start servers, which other tests do. `attach` knows no Kafka; its rights are a reader's.
`import` knows neither Kafka nor a service.
"""


def leaves() -> frozenset[Leaf]:
    """The words of every command that is no group, but for those of NOT_ASKED."""
    return frozenset(leaf for leaf in _below(main, ()) if leaf[0] not in NOT_ASKED)


def _below(command: click.Command, words: Leaf) -> Iterator[Leaf]:
    if not isinstance(command, click.Group):
        yield words
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None, name
        yield from _below(found, (*words, name))


class Verbs:
    """Runs commands as a user does, and notes which; `ran` has those that ended as expected."""

    def __init__(self, cluster: Cluster) -> None:
        self.ran: set[Leaf] = set()
        self._cluster = cluster
        self._leaves = leaves()

    def run(self, *words: str, says: str, status: int = 0) -> str:
        """Its standard output. It ends with this status, and says this on either stream."""
        done = self._done(*words)
        shown = f"{words_of(done)} of rlm {' '.join(words)}"
        assert done.returncode == status, shown
        assert says in done.stdout + done.stderr, f"no {says!r} in {shown}"
        self._note(words)
        return done.stdout

    def wait(self, *words: str, says: str, status: int = 0) -> None:
        """Run it again and again until it is so."""

        comes_to(
            self._cluster,
            words,
            lambda done: done.returncode == status and says in done.stdout + done.stderr,
        )
        self._note(words)

    def _done(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._cluster.rlm(*words, check=False, timeout_s=_TIMEOUT_S)

    def _note(self, words: tuple[str, ...]) -> None:
        [leaf] = self._leaves & {words[:1], words[:2]}
        self.ran.add(leaf)
