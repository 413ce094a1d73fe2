"""What happens to a refused setting: the first one ends the reading, or all are collected. Pure."""

from collections.abc import Iterator
from contextlib import contextmanager

from kip405.errors import Invalid


class Refusals:
    """Raises the first Invalid, as a service needs it at its start."""

    def __init__(self) -> None:
        self.found: list[Invalid] = []

    @contextmanager
    def taken(self) -> Iterator[None]:
        """An Invalid of the block is passed on."""
        yield


class CollectedRefusals(Refusals):
    """Keeps every Invalid in `found`, so that all can be shown at once."""

    @contextmanager
    def taken(self) -> Iterator[None]:
        """An Invalid of the block ends the block, and nothing more."""
        try:
            yield
        except Invalid as error:
            self.found.append(error)
