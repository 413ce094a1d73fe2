"""Verifies every partition that we lead, at intervals and by size, and keeps what it found.

Objects that disappear from a store are noticed without a reader, also those whose records the local
log has no longer. One partition at a time, and one batch of its segments at a time with a pause
after it, so that the store notices little. The first verification of each partition comes within an
hour of its leadership, by a hash of its name: neither partitions nor services work in step. A
partition with a finding, or with something unchecked, is verified again sooner.

`rlm/plans/problem_rules.py` decides what is a problem. Lost and damaged segments are alarms already
(`Losses`), so only what they do not have is passed on.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from zlib import crc32

import structlog

from kip405.ids import PartitionKey
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock, jittered_ms
from rlm.plans.problem_rules import VerifyObservation, verify_findings
from rlm.plans.problems import Finding
from rlm.plans.verification import Issue
from rlm.remote_log.history import Losses
from rlm.tasks.verification import Checked, PartitionReport, PartitionVerifier

log = structlog.get_logger()
_POLL_MS = 5_000
_PAUSE_MS = 100
_FIRST_WITHIN_MS = 3_600_000
_AGAIN_MS = 600_000
_MOST_ISSUES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """Of one partition; times are monotonic. `whole_ms`: when all of it was last checked, or when
    we began to lead it.
    """

    due_ms: int
    whole_ms: int
    issues: tuple[Issue, ...] = ()
    unchecked: tuple[str, ...] = ()


class VerifyWatch:
    """`interval_ms` is verify.interval.ms; `led` as of VerifyRuns."""

    def __init__(
        self,
        *,
        verifier: PartitionVerifier,
        led: Callable[[], Collection[LedPartition]],
        losses: Losses,
        clock: Clock,
        interval_ms: int,
    ) -> None:
        self._verifier = verifier
        self._led = led
        self._losses = losses
        self._clock = clock
        self._interval_ms = interval_ms
        self._known: dict[PartitionKey, _Known] = {}

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self.verify_due()
            await self._clock.sleep_ms(_POLL_MS)

    async def verify_due(self) -> None:
        """Verify the partitions whose time has come, one after the other."""
        led = {row.key: row for row in self._led()}
        for key in self._known.keys() - led.keys():
            del self._known[key]
        for key, row in led.items():
            if key not in self._known:
                self._known[key] = self._first(row)
            if self._clock.monotonic_ms() >= self._known[key].due_ms:
                self._known[key] = await self._verify(row, self._known[key])

    def whole_ms(self) -> Mapping[PartitionKey, int]:
        """When (monotonic) all of each partition was last verified, or its leadership began."""
        return {key: known.whole_ms for key, known in self._known.items()}

    def findings(self) -> Iterator[Finding]:
        """Problems by the last verification of each partition."""
        now_ms = self._clock.monotonic_ms()
        for row in self._led():
            key = row.key
            known = self._known.get(key)
            if known is None or (not known.issues and now_ms - known.whole_ms <= self._interval_ms):
                continue
            lost = self._losses.segments(key)
            observed = VerifyObservation(
                partition=row.topic_partition,
                issues=tuple(one for one in known.issues if one.segment_id not in lost),
                unchecked=known.unchecked,
                whole_ms=known.whole_ms,
            )
            yield from verify_findings(observed, self._interval_ms, now_ms)

    def _first(self, row: LedPartition) -> _Known:
        now_ms = self._clock.monotonic_ms()
        within_ms = min(self._interval_ms, _FIRST_WITHIN_MS)
        delay_ms = crc32(str(row.topic_id_partition).encode()) % within_ms
        return _Known(due_ms=now_ms + delay_ms, whole_ms=now_ms)

    async def _verify(self, row: LedPartition, before: _Known) -> _Known:
        issues: list[Issue] = []
        unchecked: tuple[str, ...] = ()
        async with aclosing(self._verifier.run(row, deep=False)) as steps:
            async for step in steps:
                match step:
                    case Issue(is_finding=True) if len(issues) < _MOST_ISSUES:
                        issues.append(step)
                    case Checked():
                        await self._clock.sleep_ms(_PAUSE_MS)
                    case PartitionReport():
                        unchecked = step.unchecked
        now_ms = self._clock.monotonic_ms()
        wait_ms = self._interval_ms
        if issues or unchecked:
            wait_ms = min(wait_ms, _AGAIN_MS)
            log.info(
                "partition_verified",
                partition=str(row.topic_id_partition),
                findings=len(issues),
                unchecked=list(unchecked),
            )
        return _Known(
            due_ms=now_ms + int(jittered_ms(wait_ms)),
            whole_ms=before.whole_ms if unchecked else now_ms,
            issues=tuple(issues),
            unchecked=unchecked,
        )
