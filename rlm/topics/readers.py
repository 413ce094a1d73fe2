"""Finds the readers that the first trim would harm: groups with offsets below it, and share groups
(H19).

Clients of the proxy are not harmed: trimmed data is read back there. On the direct listener a
classic consumer below the bound resets its position, and a share group skips without any error.
"""

from collections.abc import Mapping

from kafka_protocol.apis.offsets import LATEST_TIMESTAMP
from kip405.errors import Fenced, RemoteStorageError
from rlm.broker.answers import TopicDescription
from rlm.clock import Clock
from rlm.plans.retention import Retention, effective_local_retention
from rlm.topics.ports import GroupOffset, Groups, LeaderOffsets, ShareGroups

_SHOWN = 5


class ReaderCheck:
    """Checks the readers before trimming begins."""

    def __init__(
        self,
        *,
        offsets: LeaderOffsets,
        groups: Groups,
        share_groups: ShareGroups,
        clock: Clock,
    ) -> None:
        self._offsets = offsets
        self._groups = groups
        self._share_groups = share_groups
        self._clock = clock

    async def check(
        self, topic: TopicDescription, retention: Retention, *, force: bool
    ) -> tuple[str, ...]:
        """Warnings for the operator; Fenced with the same text unless `force`.

        Unavailable, unless `force`: some group could not be read.
        """
        try:
            findings = await self._findings(topic, retention)
        except RemoteStorageError as error:
            if not force:
                raise
            findings = (f"who reads {topic.name} could not be seen: {error}",)
        if findings and not force:
            raise Fenced("; ".join(findings) + "; --force goes on all the same")
        return findings

    async def _findings(self, topic: TopicDescription, retention: Retention) -> tuple[str, ...]:
        texts = (
            _share_text(topic.name, await self._share_groups.starts_now(topic.name)),
            _lagging_text(topic.name, await self._lagging(topic, retention)),
        )
        return tuple(text for text in texts if text)

    async def _lagging(
        self, topic: TopicDescription, retention: Retention
    ) -> tuple[tuple[GroupOffset, int], ...]:
        committed = await self._groups.committed(topic)
        bounds: dict[int, int] = {}
        for row in committed:
            if row.partition not in bounds:
                bounds[row.partition] = await self._first_bound(topic, row.partition, retention)
        return tuple(
            (row, bounds[row.partition]) for row in committed if row.offset < bounds[row.partition]
        )

    async def _first_bound(
        self, topic: TopicDescription, partition: int, retention: Retention
    ) -> int:
        """The first trim goes at most up to here; 0 = no trim."""
        local = effective_local_retention(retention)
        if local.is_unlimited:
            return 0
        latest = await self._offsets.offset(topic, partition, LATEST_TIMESTAMP)
        if local.max_bytes is not None or local.max_age_ms is None:
            return latest  # sizes are not known here: everything may be trimmed
        oldest_kept_ms = max(0, self._clock.now_ms() - local.max_age_ms)
        kept = await self._offsets.offset(topic, partition, oldest_kept_ms)
        return latest if kept < 0 else kept


def _share_text(topic: str, starts: Mapping[int, int]) -> str:
    if not starts:
        return ""
    places = [f"{topic}-{partition} from {start}" for partition, start in sorted(starts.items())]
    return (
        "share groups read this topic and would skip what is trimmed without any error: "
        f"{_some(places)}"
    )


def _lagging_text(topic: str, rows: tuple[tuple[GroupOffset, int], ...]) -> str:
    if not rows:
        return ""
    places = [
        f"{row.group} at {row.offset} of {topic}-{row.partition} (bound at most {bound})"
        for row, bound in sorted(rows, key=lambda pair: (pair[0].group, pair[0].partition))
    ]
    return (
        "groups stand below the first trim bound and would reset their position on the direct "
        f"listener (through the proxy they read on): {_some(places)}"
    )


def _some(items: list[str]) -> str:
    more = len(items) - _SHOWN
    return ", ".join(items[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
