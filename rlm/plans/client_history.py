"""How much of the past a Kafka client is shown, and at which offset that begins. Pure.

A limit raises the log start of a partition for some clients, so that `earliest` need not mean
everything that was ever stored. It is never above the broker's own log start, and a fetch below it
is out of range. The client then does what it does at any broker; committed offsets are never
changed here.

A rule for the principal comes before one for the client id: a principal is proved, and a client
chooses its id itself. Within a window are the remote segments from the first one on whose newest
record is young enough, which is the rule of Kafka's own retention by time
(UnifiedLog.deleteRetentionMsBreachedSegments).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from kip405.history import FULL, History, HistoryRule, windows_of

_USER = "User:"


@dataclass(frozen=True, slots=True)
class HistoryRules:
    """`proxy.history`, which is that of the listener, and `proxy.history.rules`."""

    listener: History = FULL
    rules: tuple[HistoryRule, ...] = ()
    _patterns: tuple[tuple[re.Pattern[str], HistoryRule], ...] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        compiled = ((re.compile(rule.principals or rule.client_ids), rule) for rule in self.rules)
        object.__setattr__(self, "_patterns", tuple(compiled))

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "HistoryRules":
        """What `content` gave; what a later version has added is left out."""
        rules = (
            HistoryRule(
                history=History(rule["history"]),
                principals=rule["principals"],
                client_ids=rule["client_ids"],
            )
            for rule in content["rules"]
        )
        return cls(listener=History(content["listener"]), rules=tuple(rules))

    def content(self) -> dict[str, Any]:
        """For JSON."""
        rules = [
            {"history": one.history, "principals": one.principals, "client_ids": one.client_ids}
            for one in self.rules
        ]
        return {"listener": self.listener, "rules": rules}

    @property
    def is_full(self) -> bool:
        """Whether no client is limited."""
        return all(one == FULL for one in (self.listener, *(rule.history for rule in self.rules)))

    @property
    def windows_ms(self) -> tuple[int, ...]:
        """Every window that a client may be limited to, ascending."""
        return windows_of(self.listener, self.rules)

    def history(self, principal: str | None, client_id: str | None) -> History:
        """What this client is shown. None: it has no proved principal, or named no client id."""
        for pattern, rule in self._patterns:
            if rule.principals and principal is not None and _is_principal(pattern, principal):
                return rule.history
        for pattern, rule in self._patterns:
            if rule.client_ids and client_id is not None and pattern.fullmatch(client_id):
                return rule.history
        return self.listener


def _is_principal(pattern: re.Pattern[str], principal: str) -> bool:
    return bool(pattern.fullmatch(principal) or pattern.fullmatch(_USER + principal))


class Extent(Protocol):
    """A usable remote segment (rlmm.cover.UsableExtent)."""

    @property
    def start_offset(self) -> int: ...

    @property
    def max_timestamp_ms(self) -> int: ...


class WindowStart(NamedTuple):
    """Where a window begins in a partition."""

    window_ms: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStart:
    """The first offset within a window, until the wall clock has passed `until_ms`; None = until
    the segments change.
    """

    offset: int
    until_ms: int | None


def window_start(
    segments: Iterable[Extent],
    *,
    window_ms: int,
    now_ms: int,
    remote_log_start_offset: int,
    local_log_start_offset: int,
) -> FoundStart:
    """Where a window begins; `segments` ascend by their start offset.

    A segment of which no timestamp is known is not old. Without a segment that is young enough the
    window begins where the broker's log does.
    """
    for segment in segments:
        newest_ms = segment.max_timestamp_ms
        if 0 <= newest_ms < now_ms - window_ms:
            continue
        until_ms = None if newest_ms < 0 else newest_ms + window_ms
        start = min(segment.start_offset, local_log_start_offset)
        return FoundStart(offset=max(start, remote_log_start_offset), until_ms=until_ms)
    return FoundStart(offset=max(local_log_start_offset, remote_log_start_offset), until_ms=None)
