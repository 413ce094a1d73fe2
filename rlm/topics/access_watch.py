"""Looks all the time whether this service still has every ACL that it needs (H40).

Rights are taken away without anybody's calls failing at once, and calls that fail for want of one
do so far from each other. A missing ACL is one problem until it is there again; the watch over
problems (rlm/problem_watch.py) tells it once.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import structlog

from kip405.acls import CLUSTER_NAME, Acl
from kip405.errors import RemoteStorageError
from rlm.clock import Clock
from rlm.plans.problem_rules import acl_finding
from rlm.plans.problems import Finding
from rlm.topics.needed_acls import needed_acls, not_granted, topics_of
from rlm.topics.ports import Settings

log = structlog.get_logger(__name__)


class ClusterRights(Protocol):
    """What the broker allows us now (rlm.broker.allowed.AllowedOperations)."""

    async def on_cluster(self) -> frozenset[str] | None: ...

    async def on_topics(self, topics: Sequence[str]) -> Mapping[str, frozenset[str] | None]: ...


class AccessWatch:
    """`run` for ever; `missing` is what the last look found, None = nobody could tell."""

    def __init__(
        self, *, allowed: ClusterRights, settings: Settings, clock: Clock, interval_ms: int
    ) -> None:
        self._allowed = allowed
        self._settings = settings
        self._clock = clock
        self._interval_ms = interval_ms
        self.missing: tuple[Acl, ...] | None = None

    def findings(self) -> tuple[Finding, ...]:
        """A problem a missing ACL."""
        return tuple(acl_finding(acl) for acl in self.missing or ())

    async def run(self) -> None:
        """Look at every interval; a broker that does not answer is asked again."""
        while True:
            await self.look()
            await self._clock.sleep_ms(self._interval_ms)

    async def look(self) -> None:
        """Ask now."""
        needed = needed_acls(self._settings.view.topics())
        try:
            allowed = {
                CLUSTER_NAME: await self._allowed.on_cluster(),
                **await self._allowed.on_topics(topics_of(needed)),
            }
        except RemoteStorageError as error:
            self.missing = None
            log.info("access_not_known", error=str(error))
            return
        if None in allowed.values():
            self.missing = None
            return
        self.missing = not_granted(needed, allowed)
