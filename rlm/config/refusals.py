"""What happens to a refused setting: the first one ends the reading, or all are collected. Pure."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kip405.errors import Invalid


class Refusals:
    """Raises the first Invalid, as a service needs it at its start."""

    def __init__(self, complete: Callable[[str], str] = str) -> None:
        """`complete` adds to the text of a refusal what its reader needs besides."""
        self._completions = [complete]
        self.found: list[Invalid] = []

    def complete_also(self, complete: Callable[[str], str]) -> None:
        """From now on, this adds to the texts, too."""
        self._completions.append(complete)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """An Invalid of the block is passed on."""
        try:
            yield
        except Invalid as error:
            raise self._completed(error) from error

    def _completed(self, error: Invalid) -> Invalid:
        text = str(error)
        for complete in self._completions:
            text = complete(text)
        return Invalid(text)


class CollectedRefusals(Refusals):
    """Keeps every Invalid in `found`, each once, so that all can be shown at once."""

    @contextmanager
    def taken(self) -> Iterator[None]:
        """An Invalid of the block ends the block, and nothing more."""
        try:
            yield
        except Invalid as error:
            completed = self._completed(error)
            if str(completed) not in map(str, self.found):
                self.found.append(completed)
