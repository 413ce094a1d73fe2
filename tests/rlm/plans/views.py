"""Shorthand for plans' inputs: closed segments of 100 records, a topic in good order."""

from dataclasses import replace
from typing import Any

from kip405.lineage import Lineage
from kip405.segments import EpochEntry
from rlm.log_dir.scanner import Closed, LocalSegment
from rlm.plans.copy import CopyView, TopicState, plan_copy
from rlm.plans.coverage import Cover, OffsetRange
from rlm.plans.explanation import ExplainView, RemoteCopy
from rlm.plans.guards import DeletionGuards
from rlm.plans.retention import LocalRetention
from rlm.plans.trim import Held as TrimHeld
from rlm.plans.trim import NoTrim, TrimGuards, TrimOffsets
from rlmm.ledger import PartitionLedger
from rlmm.settings_records import HistoryRecord
from tests.builders.ledger import PARTITION, MemoryLedger, metadata

GOOD_TOPIC = TopicState(enabled=True, internal=False, cleanup_policy="delete", native_tiering=False)


def lineage(epochs: dict[int, int]) -> Lineage:
    return Lineage(tuple(EpochEntry(epoch=e, start_offset=at) for e, at in epochs.items()))


def history(epochs: dict[int, int], frozen: str | None = None) -> HistoryRecord:
    """As the leader of the partition published it."""
    return HistoryRecord(partition=PARTITION.key, frozen=frozen, lineage=lineage(epochs))


def copied(*segments: tuple[int, int, dict[int, int]]) -> PartitionLedger:
    """Segments [start, next) with their epochs."""
    ledger = MemoryLedger()
    for number, (start, following, epochs) in enumerate(segments):
        ledger.copied(metadata(number + 1, start, following, epochs))
    return ledger.view


def local(*bases: int, size_bytes: int = 1_000) -> tuple[LocalSegment, ...]:
    """Segments at these bases, the last one active; newest records are as old as the end."""
    nexts: list[int | None] = [*bases[1:], None]
    return tuple(
        LocalSegment(
            base_offset=base,
            next_offset=following,
            closed=Closed.ACTIVE if following is None else Closed.CLOSED,
            size_bytes=size_bytes,
            inode=base,
            path=f"/data/orders-0/{base:020d}.log",
            max_timestamp_ms=following or base,
        )
        for base, following in zip(bases, nexts, strict=True)
    )


def covered(*ranges: tuple[int, int]) -> Cover:
    return Cover.of(OffsetRange(start=start, next_offset=end) for start, end in ranges)


def copy_view(**changes: Any) -> CopyView:
    view = CopyView(
        topic=GOOD_TOPIC,
        segments=local(0, 100, 200, 300),
        local_log_start_offset=0,
        remote_log_start_offset=0,
        last_stable_offset=350,
        recovery_point=None,
        covered=Cover(),
        frozen=None,
    )
    return replace(view, **changes)


def remote_copy(number: int = 1, start: int = 0, next_offset: int = 100) -> RemoteCopy:
    """A whole segment in store `hot`, finished at 1970-01-01 00:01:00."""
    ledger = MemoryLedger()
    ledger.now_ms = 60_000
    ledger.copied(metadata(number, start, next_offset, {5: start}))
    [entry] = ledger.view.entries.values()
    return RemoteCopy(entry=entry, next_offset=next_offset, store="hot", objects_stem="c/orders/0")


def explain_view(**changes: Any) -> ExplainView:
    """Remote [50, 200), local [100, 350) in segments of 100, the active one from 300 on; the one
    from 200 on is not remote.
    """
    segments = local(100, 200, 300)
    view = ExplainView(
        partition=PARTITION.topic_partition,
        leader=1,
        leader_epoch=5,
        is_enabled=True,
        remote_log_start_offset=50,
        remote_log_start_cause="retention",
        remote_next_offset=200,
        remote_segments=2,
        remote_size_bytes=2_048,
        local_log_start_offset=100,
        high_watermark=340,
        last_stable_offset=320,
        log_end_offset=350,
        segments=segments,
        holes=(),
        unsettled_end=-1,
        frozen="",
        copy=plan_copy(
            copy_view(
                segments=segments,
                local_log_start_offset=100,
                covered=covered((50, 200)),
                last_stable_offset=320,
            )
        ),
        copy_failure="",
        trim=TrimHeld(reason=NoTrim.WITHIN_RETENTION),
        trim_failure="",
        offset_epoch=5,
    )
    return replace(view, **changes)


NOTHING_FORBIDS = DeletionGuards(ready=True, ledger_problem=None, freeze_record=None, frozen=None)


def guards(**changes: Any) -> TrimGuards:
    good = TrimGuards(
        deletion=NOTHING_FORBIDS,
        topic=GOOD_TOPIC,
        mode_is_tier=True,
        trim_on=True,
        retention_bounded=None,
        retention_unknown=None,
        replicas=(1, 2, 3),
        live_nodes=frozenset({1, 2, 3}),
        namers=(),
        replicas_short_ms=None,
        hold_max_ms=3_600_000,
    )
    return replace(good, **changes)


def offsets(**changes: Any) -> TrimOffsets:
    """Everything closed is copied and older than retention at now = 10,000."""
    all_copied = TrimOffsets(
        leader_epoch=5,
        lineage=lineage({5: 0}),
        segments=local(0, 100, 200, 300),
        local_size_bytes=4_000,
        local_log_start_offset=0,
        remote_log_start_offset=0,
        remote_log_start_epoch=5,
        high_watermark=350,
        last_stable_offset=350,
        contiguous_end=300,
        released_end=1 << 40,
        share_group_start=None,
        retention=LocalRetention(max_age_ms=1_000, max_bytes=None),
    )
    return replace(all_copied, **changes)
