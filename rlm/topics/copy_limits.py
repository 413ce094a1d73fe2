"""How many bytes a second services may copy: what each is configured for, and what operators decide
instead, for all services or for that of one node (KIP-956).

A decision is a settings record. Like a freeze it needs no leader and no store: any service writes
it, every service has read it within moments, and it counts until it is removed. A service of an
earlier version does not know such records and keeps to its configuration.
"""

from kip405.errors import Invalid, NotFound
from rlm.clock import Clock
from rlm.topics.ports import Settings
from rlmm.settings_records import LEAST_COPY_BYTES_PER_SECOND, CopyLimitRecord, copy_limit_key

_SETTING = "remote.log.manager.copy.max.bytes.per.second"


class CopyLimitDecisions:
    """Makes decisions for any node, and knows the limit of its own; `configured` in bytes a
    second.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        node_id: int,
        configured: int,
        clock: Clock,
        barrier_deadline_ms: int,
    ) -> None:
        self.configured = configured
        self._settings = settings
        self._node_id = node_id
        self._clock = clock
        self._barrier_deadline_ms = barrier_deadline_ms

    def in_effect(self) -> int:
        """Bytes a second that the service of our node may copy now."""
        overruling = self.overruling()
        return self.configured if overruling is None else overruling.bytes_per_second

    def overruling(self) -> CopyLimitRecord | None:
        """The decision that counts for our node; None = what is configured does."""
        return self._settings.view.copy_limit(self._node_id)

    def listed(self) -> tuple[CopyLimitRecord, ...]:
        """All decisions in force, that for every service first."""
        return self._settings.view.copy_limits()

    async def refresh(self) -> None:
        """Return once all decisions made before this call are known; Unavailable otherwise."""
        await self._settings.barrier(self._barrier_deadline_ms)

    async def decide(self, node_id: int | None, bytes_per_second: int, *, by: str) -> None:
        """Durable when this returns; None = every service but those with a decision of their own.

        Invalid: the limit is too low. NotFound: no service of this node ever said that it lives.
        """
        if bytes_per_second < LEAST_COPY_BYTES_PER_SECOND:
            raise Invalid(
                f"{_SETTING}: must be at least {LEAST_COPY_BYTES_PER_SECOND} (1 MiB a second), "
                f"got {bytes_per_second}"
            )
        await self.refresh()
        self._check_known(node_id)
        record = CopyLimitRecord(
            node_id=node_id,
            bytes_per_second=bytes_per_second,
            by=by,
            decided_ms=self._clock.now_ms(),
        )
        await self._settings.publish(record)

    async def remove(self, node_id: int | None) -> None:
        """Let the decision for all, or the configuration, count again; NotFound where nothing was
        decided.
        """
        await self.refresh()
        key = copy_limit_key(node_id)
        if self._settings.view.get(key) is None:
            whom = "all services" if node_id is None else f"node {node_id}"
            raise NotFound(f"no copy limit was decided for {whom}")
        await self._settings.tombstone(key)

    def _check_known(self, node_id: int | None) -> None:
        known = sorted(record.node_id for record, _ in self._settings.view.services())
        if node_id is not None and node_id not in known:
            raise NotFound(
                f"no service of node {node_id} is known; known nodes: "
                f"{', '.join(map(str, known)) or 'none'}"
            )
