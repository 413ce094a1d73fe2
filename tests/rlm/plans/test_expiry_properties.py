"""For any partition: only a prefix that retention has ended goes, and nothing above the start."""

from hypothesis import given
from hypothesis import strategies as st

from rlm.plans.expiry import ExpiryPlan, ExpiryView, plan_expiry
from rlmm.settings_records import TotalRetention
from tests.builders.ledger import MemoryLedger
from tests.rlm.plans.test_expiry import DELETING, NOW_MS, STARTED, lineage, segment, view


@st.composite
def any_view(draw: st.DrawFn) -> ExpiryView:
    """Segments of two epochs with gaps, overlaps, ages and states of all kinds."""
    ledger = MemoryLedger()
    epoch_start = draw(st.integers(0, 60))
    for number in range(1, draw(st.integers(1, 8)) + 1):
        start = draw(st.integers(0, 60))
        end = start + draw(st.integers(1, 20))
        epoch = draw(st.sampled_from([0, 1]))
        made = segment(
            number,
            start,
            end,
            epochs={epoch: start},
            age_ms=draw(st.integers(0, 2_000)),
            size_bytes=draw(st.integers(1, 300)),
        )
        kind = draw(st.sampled_from(["finished", "finished", "finished", "started", "deleting"]))
        if kind == "started":
            ledger.write(made.in_state(STARTED, event_timestamp_ms=0, broker_id=1), epoch=epoch)
            continue
        ledger.copied(made)
        if kind == "deleting":
            gone = made.in_state(DELETING, event_timestamp_ms=0, broker_id=1)
            ledger.write(gone, epoch=1, previous=1)
    return view(
        ledger,
        total=TotalRetention(
            retention_ms=draw(st.sampled_from([-1, 500, 1_000])),
            retention_bytes=draw(st.sampled_from([-1, 0, 200, 500])),
        ),
        start=draw(st.integers(0, 40)),
        start_epoch=draw(st.sampled_from([0, 1])),
        of=lineage((0, 0), (1, epoch_start)) if epoch_start else lineage((1, 0)),
        local_start=draw(st.integers(0, 80)),
        most_percent=draw(st.sampled_from([None, 10, 50])),
    )


@given(any_view())
def test_a_plan_raises_over_a_prefix_that_retention_ended_and_deletes_only_below(
    one: ExpiryView,
) -> None:
    plan = plan_expiry(one)
    start = one.remote_log_start_offset
    assert start is not None
    assert plan.new_start >= start
    usable = one.ledger.usable(one.lineage, one.log_end_offset, start)
    assert plan.new_start <= max([start, *(found.next_offset for found in usable)])
    for metadata_ in plan.segments:
        assert metadata_.next_offset <= plan.new_start
        assert metadata_.state is not STARTED
    over = [found for found in usable if found.metadata.start_offset < plan.new_start]
    oldest_ms = NOW_MS - one.retention.retention_ms
    if plan.raises and one.retention.retention_bytes == -1:
        assert one.retention.retention_ms != -1
        assert all(
            found.metadata.max_timestamp_ms < oldest_ms for found in over if _ends(found, plan)
        )
    if plan.raises and one.retention.retention_ms == -1:
        kept = {
            offset
            for found in usable
            for offset in range(found.metadata.start_offset, found.next_offset)
            if offset >= plan.new_start
        }
        left = sum(
            found.metadata.segment_size_bytes
            for found in usable
            if found.next_offset > plan.new_start
        )
        assert left >= one.retention.retention_bytes or not kept


def _ends(found: object, plan: ExpiryPlan) -> bool:
    return getattr(found, "next_offset", 0) <= plan.new_start
