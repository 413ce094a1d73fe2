"""Remembers the last decisions of this service's tasks, with reasons, for `rlm events`.

After each run of a partition's tasks, what copy, trim and expiry have come to is compared with what
they had come to before. Only a change is a decision worth remembering: a new reason, a failure,
progress. The ring is bounded; what has left it is in the log. Nothing here waits.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kip405.ids import PartitionKey
from rlm.clock import Clock
from rlm.plans.problems import human_bytes
from rlm.tasks.copy import CopyStatus
from rlm.tasks.expiry import ExpiryStatus
from rlm.tasks.pool import TaskPool
from rlm.tasks.trim import TrimStatus

MOST_DECISIONS = 1_000
_NUMBERS_A_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDecision:
    """`number`: higher than those of all earlier decisions of the node, also before a restart.
    `task`: "copy", "trim", "expiry" or "cleanup". `at_ms`: wall time.
    """

    number: int
    at_ms: int
    task: str
    topic: str
    partition: int
    failed: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTask:
    """A job of the pool of that name that runs now."""

    pool: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """`same`: equal as long as nothing has changed that is worth a line."""

    task: str
    same: object
    text: str
    failed: bool = False


class Decisions:
    """`copied`, `trimmed` and `expired`: what the last runs have come to, as views of what the
    tasks keep. `name_of`: the topic's name of a partition that is led here, None = it is not known.
    """

    def __init__(
        self,
        *,
        copy_pool: TaskPool,
        cleanup_pool: TaskPool,
        copied: Mapping[PartitionKey, CopyStatus],
        trimmed: Mapping[PartitionKey, TrimStatus],
        expired: Mapping[PartitionKey, ExpiryStatus],
        name_of: Callable[[PartitionKey], str | None],
        clock: Clock,
        most: int = MOST_DECISIONS,
    ) -> None:
        self._copy_pool = copy_pool
        self._cleanup_pool = cleanup_pool
        self._copied = copied
        self._trimmed = trimmed
        self._expired = expired
        self._name_of = name_of
        self._clock = clock
        self._ring: deque[TaskDecision] = deque(maxlen=most)
        self._last: dict[PartitionKey, dict[str, object]] = {}
        self._number = self._first = clock.now_ms() * _NUMBERS_A_MS

    def copy_ended(self, key: PartitionKey) -> None:
        """A run of the partition's copy task has ended."""
        self._note(key, self._copy(key))

    def cleanup_ended(self, key: PartitionKey) -> None:
        """A run of the partition's expiration task has ended."""
        self._note(key, self._cleanup(key))

    def forget(self, key: PartitionKey) -> None:
        """The partition is no longer led here; what was decided stays in the ring."""
        self._last.pop(key, None)

    @property
    def newest(self) -> int:
        """The number of the newest decision, or that after which the first one comes."""
        return self._number

    def after(self, number: int) -> tuple[TaskDecision, ...]:
        """Those with a higher number that are still in the ring, oldest first."""
        return tuple(one for one in self._ring if one.number > number)

    def has_gap(self, number: int) -> bool:
        """Whether decisions after this one have left the ring."""
        oldest = self._ring[0].number if self._ring else self._number + 1
        return self._first <= number < oldest - 1

    def running(self) -> tuple[RunningTask, ...]:
        """The jobs that run now, by pool, topic and partition."""
        found = (
            RunningTask(pool=pool.name, topic=self._topic(key), partition=key.partition)
            for pool in (self._copy_pool, self._cleanup_pool)
            for key in pool.running
        )
        return tuple(sorted(found, key=lambda one: (one.pool, one.topic, one.partition)))

    def _note(self, key: PartitionKey, outcomes: Iterator[_Outcome]) -> None:
        known = self._last.get(key, {})
        for one in outcomes:
            if known.get(one.task) == one.same:
                continue
            known[one.task] = one.same
            self._last[key] = known
            self._number += 1
            self._ring.append(
                TaskDecision(
                    number=self._number,
                    at_ms=self._clock.now_ms(),
                    task=one.task,
                    topic=self._topic(key),
                    partition=key.partition,
                    failed=one.failed,
                    text=one.text,
                )
            )

    def _copy(self, key: PartitionKey) -> Iterator[_Outcome]:
        failure = self._copy_pool.last_error(key)
        if failure is not None:
            yield _Outcome(task="copy", same=failure.message, text=failure.message, failed=True)
            return
        status = self._copied.get(key)
        if status is not None:
            text = f"remote up to {status.copied_next_offset}; {reason_of(status)}"
            same = status.copied_next_offset, status.reason, status.frozen
            yield _Outcome(task="copy", same=same, text=text)

    def _cleanup(self, key: PartitionKey) -> Iterator[_Outcome]:
        failure = self._cleanup_pool.last_error(key)
        if failure is not None:
            yield _Outcome(task="cleanup", same=failure.message, text=failure.message, failed=True)
        elif self._last.get(key, {}).get("cleanup") is not None:
            yield _Outcome(task="cleanup", same=None, text="works again")
        trim = self._trimmed.get(key)
        if trim is not None:
            yield _trim(trim)
        expiry = self._expired.get(key)
        if expiry is not None:
            yield _expiry(expiry)

    def _topic(self, key: PartitionKey) -> str:
        return self._name_of(key) or str(key.topic_id)


def _trim(status: TrimStatus) -> _Outcome:
    done = "" if status.trimmed_to is None else f"trimmed up to {status.trimmed_to}"
    text = "; ".join(filter(None, (done, reason_of(status), status.alarm)))
    return _Outcome(
        task="trim",
        same=(status.trimmed_to, status.reason, status.alarm),
        text=text or "nothing prevents the next trim",
        failed=status.alarm is not None,
    )


def _expiry(status: ExpiryStatus) -> _Outcome:
    done = ""
    if status.deleted_at_ms is not None:
        size = human_bytes(status.deleted_bytes)
        done = f"deleted {status.deleted_segments} segments, {size}; "
    same = status.deleted_at_ms, status.held.reason
    return _Outcome(task="expiry", same=same, text=f"{done}{status.held.words}")


def reason_of(status: CopyStatus | TrimStatus) -> str:
    """Why a task does no more now, for people."""
    return " ".join((status.reason, status.detail)).strip()
