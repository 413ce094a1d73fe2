"""How a bug is planted into the running product, and what must notice it (H34)."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from tests.simulation.stories import Story

Patch = tuple[Any, str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A rule that is taken away, and what must be noticed, within so many seeds; by seeds with one
    of these stories where it concerns no others.
    """

    name: str
    broken: tuple[str, ...]
    patches: Callable[[], list[Patch]]
    among: tuple[Story, ...] = ()
    within: int = 200

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The product with the bug in it."""
        with contextlib.ExitStack() as stack:
            for owner, name, changed in self.patches():
                stack.enter_context(mock.patch.object(owner, name, changed))
            yield


async def nothing(*_: object, **__: object) -> None:
    return None
