"""Which stores take no segments: the last writes failed and none has succeeded since.

A store that is full or read-only answers every read, so nothing else notices it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kip405.errors import RemoteStorageError
from kip405.ids import Uuid

_LEAST_FAILURES = 2
"""One failure may be an accident of one segment or one connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failed:
    error: RemoteStorageError
    count: int


class StoreWrites:
    """Told of each write by who writes."""

    def __init__(self) -> None:
        self._failed: dict[Uuid, _Failed] = {}

    @contextmanager
    def noted(self, store_id: Uuid) -> Iterator[None]:
        """Around one write to a store; errors pass."""
        try:
            yield
        except RemoteStorageError as error:
            before = self._failed.get(store_id)
            count = before.count + 1 if before else 1
            self._failed[store_id] = _Failed(error=error, count=count)
            raise
        self._failed.pop(store_id, None)

    def error(self, store_id: Uuid | None) -> str | None:
        """Why the store takes nothing, None while there is no sign of that."""
        found = None if store_id is None else self._failed.get(store_id)
        return str(found.error) if found is not None and found.count >= _LEAST_FAILURES else None
