"""What happens to a refused setting: the first one ends the reading, or all are collected. Pure."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kip405.errors import Invalid


class Refusals:
    """Raises the first Invalid, as a service needs it at its start."""

    def __init__(self, complete: Callable[[str], str] = str) -> None:
        """`complete` adds to the text of a refusal what its reader needs besides."""
        self._complete = complete
        self.found: list[Invalid] = []

    @contextmanager
    def taken(self) -> Iterator[None]:
        """An Invalid of the block is passed on."""
        try:
            yield
        except Invalid as error:
            raise Invalid(self._complete(str(error))) from error


class CollectedRefusals(Refusals):
    """Keeps every Invalid in `found`, so that all can be shown at once."""

    @contextmanager
    def taken(self) -> Iterator[None]:
        """An Invalid of the block ends the block, and nothing more."""
        try:
            yield
        except Invalid as error:
            self.found.append(Invalid(self._complete(str(error))))
