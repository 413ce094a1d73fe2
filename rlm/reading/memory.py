"""One bound on the memory of reads: bytes in flight, bytes kept, bytes that answers refer to.

Read-ahead has a smaller bound within it, so that a waiting reader finds room. This module must not
know what is loaded or for whom.
"""

from collections.abc import Callable

from rlm.reading.chunk_cache import ChunkCache
from rlm.reading.limits import ReadLimits

_SHARE_OF_ONE_ANSWER = 4
_LEAST_ANSWER_BYTES = 256 << 10
_LEAST_SHARE = 64


class ReadMemory:
    """Reservations for loads, beside what `chunks` keeps and what `indexes_kept_bytes` returns."""

    def __init__(
        self, limits: ReadLimits, chunks: ChunkCache, indexes_kept_bytes: Callable[[], int]
    ) -> None:
        self._limits = limits
        self._chunks = chunks
        self._indexes_kept_bytes = indexes_kept_bytes
        self.reserved_bytes = 0
        self._reserved_ahead_bytes = 0
        self._is_overdrawn = False

    @property
    def held_bytes(self) -> int:
        """Everything that counts against the bound."""
        return self.reserved_bytes + self._chunks.kept_bytes + self._indexes_kept_bytes()

    def reserve(self, size_bytes: int, *, is_ahead: bool) -> bool:
        """Room for a load, chunks evicted where needed; False: not now."""
        ahead_bytes = self._chunks.ahead_bytes + self._reserved_ahead_bytes
        if is_ahead and ahead_bytes + size_bytes > self._limits.ahead_bytes:
            return False
        lacking = self.held_bytes + size_bytes - self._limits.memory_bytes
        if lacking > 0 and self._chunks.evict(lacking, spares_ahead=is_ahead) < lacking:
            return False
        self._take(size_bytes, is_ahead)
        return True

    def take(self, size_bytes: int, *, is_ahead: bool) -> None:
        """Room for a small load that cannot wait, made where it can be: others wait instead."""
        if not self.reserve(size_bytes, is_ahead=is_ahead):
            self._take(size_bytes, is_ahead)

    @property
    def may_overdraw(self) -> bool:
        """Whether a load may go beyond the bound now: one at a time."""
        return not self._is_overdrawn

    def overdraw(self, size_bytes: int) -> None:
        """Room beyond the bound.

        For a read that holds part of a batch and cannot give anything before it has the rest: if
        all memory is held by such reads, none of them would ever end.
        """
        self._is_overdrawn = True
        self._take(size_bytes, False)

    def overdraft_ended(self) -> None:
        """The load beyond the bound is through."""
        self._is_overdrawn = False

    def release(self, size_bytes: int, *, is_ahead: bool) -> None:
        """A load ended; what it brought is kept, and counted there, or dropped."""
        self._take(-size_bytes, is_ahead)

    def wanted(self, size_bytes: int) -> None:
        """Somebody waits for a load that was reserved as read-ahead."""
        self._reserved_ahead_bytes -= size_bytes

    def _take(self, size_bytes: int, is_ahead: bool) -> None:
        self.reserved_bytes += size_bytes
        if is_ahead:
            self._reserved_ahead_bytes += size_bytes

    def answer_bytes(self) -> int:
        """The most that one answer may hold now: answers leave room for more answers.

        Never so little that clients ask for ever more of them: a chunk is held by its first byte.
        """
        whole = self._limits.chunk_bytes // _SHARE_OF_ONE_ANSWER
        unpinned = self._limits.chunk_bytes // 2 - self._chunks.pinned_bytes()
        return max(min(whole, unpinned // 2), min(whole // _LEAST_SHARE, _LEAST_ANSWER_BYTES), 1)
