"""H4 and H8: which contradictions between log and remote data freeze a partition."""

from kip405.ids import MAX_OFFSET
from kip405.lineage import merge
from rlm.plans.coverage import cover
from rlm.plans.freeze import Frozen, freeze
from rlmm.ledger import PartitionLedger
from tests.builders.ledger import MemoryLedger, metadata
from tests.rlm.plans.views import lineage


def copied(epochs_of_segments: list[dict[int, int]], *, step: int = 100) -> PartitionLedger:
    """Segments of `step` offsets from 0 on."""
    ledger = MemoryLedger()
    for number, epochs in enumerate(epochs_of_segments):
        ledger.copied(metadata(number + 1, number * step, (number + 1) * step, epochs))
    return ledger.view


def of_epoch(epoch: int, count: int) -> PartitionLedger:
    return copied([{epoch: number * 100} for number in range(count)])


def decided(
    ledger: PartitionLedger,
    local: dict[int, int],
    leo: int,
    accepted: int = -1,
    accepted_offset: int = MAX_OFFSET,
) -> Frozen | None:
    whole = merge(ledger.remote_lineage, lineage(local))
    return freeze(
        ledger,
        whole,
        log_end_offset=leo,
        accepted_epoch=accepted,
        accepted_offset=accepted_offset,
    )


def test_h04_nothing_remote_and_ordinary_growth_freeze_nothing() -> None:
    assert decided(copied([]), {5: 0}, 0) is None
    assert decided(of_epoch(5, 10), {5: 0}, 1_000) is None
    assert decided(of_epoch(5, 10), {5: 0}, 1_500) is None


def test_h04_a_trimmed_log_with_a_rebased_epoch_file_freezes_nothing() -> None:
    assert decided(of_epoch(5, 10), {5: 900}, 1_500) is None
    assert decided(of_epoch(5, 10), {8: 1_200}, 1_500) is None


def test_h04_remote_end_beyond_the_log_end_freezes() -> None:
    found = decided(of_epoch(5, 10), {5: 0}, 999)
    assert found is not None
    assert "ends at 1000, beyond the log's end 999" in found.reason


def test_h04_an_emptied_log_without_any_epoch_freezes() -> None:
    assert decided(of_epoch(5, 10), {}, 0) is not None


def test_h04_unclean_election_with_small_overlap_goes_on_from_the_new_epoch() -> None:
    ledger = of_epoch(5, 10)
    local = {5: 0, 6: 750}
    assert decided(ledger, local, 2_000) is None
    whole = merge(ledger.remote_lineage, lineage(local))
    assert cover(ledger.usable(whole, 2_000)).end_from(0) == 750


def test_h04_unclean_election_that_orphans_many_segments_freezes() -> None:
    found = decided(of_epoch(5, 10), {5: 0, 6: 500}, 2_000)
    assert found is not None
    assert found.orphans == (500, 600, 700, 800, 900)


def test_h08_as_many_orphans_as_are_allowed_freeze_nothing_and_one_more_does() -> None:
    assert decided(of_epoch(5, 10), {5: 0, 6: 700}, 2_000) is None
    found = decided(of_epoch(5, 10), {5: 0, 6: 600}, 2_000)
    assert found is not None
    assert found.orphans == (600, 700, 800, 900)
    assert "at most 3 may be" in found.reason


def test_h04_one_big_segment_that_counts_in_part_is_no_orphan() -> None:
    ledger = copied([{5: 0}], step=1_001)
    assert decided(ledger, {5: 0, 6: 500}, 2_000) is None


def test_h04_an_emptied_disk_whose_new_epoch_starts_at_0_freezes_however_few() -> None:
    assert decided(of_epoch(5, 10), {7: 0}, 40) is not None
    found = decided(of_epoch(5, 2), {7: 0}, 5_000)
    assert found is not None
    assert found.orphans == (0, 100)


def test_h04_an_operator_accepts_a_divergence_but_not_the_next_one() -> None:
    assert decided(of_epoch(5, 10), {7: 0}, 40, accepted=7) is None
    assert decided(of_epoch(5, 10), {7: 0}, 40, accepted=6) is not None
    assert decided(of_epoch(5, 10), {9: 0}, 40, accepted=7) is not None


def test_h08_orphans_that_newer_copies_cover_count_no_more() -> None:
    ledger = MemoryLedger()
    for number in range(10):
        ledger.copied(metadata(number + 1, number * 100, number * 100 + 100, {5: number * 100}))
    ledger.copied(metadata(50, 500, 1_000, {6: 500}))
    whole = merge(ledger.view.remote_lineage, lineage({5: 0, 6: 500}))
    assert freeze(ledger.view, whole, log_end_offset=2_000) is None


def test_h08_an_absent_epoch_is_no_divergence() -> None:
    ledger = of_epoch(5, 10)
    assert freeze(ledger, lineage({9: 1_000}), log_end_offset=1_500) is None


def test_h04_accepting_an_empty_log_outlives_the_next_leader_epoch() -> None:
    """Kafka's epoch file drops an epoch without records when the next one begins."""
    assert decided(of_epoch(5, 10), {7: 0}, 0, accepted=7, accepted_offset=0) is None
    assert decided(of_epoch(5, 10), {8: 0}, 0, accepted=7, accepted_offset=0) is None
    assert decided(of_epoch(5, 10), {8: 0}, 500, accepted=7, accepted_offset=0) is None


def test_h04_a_log_lost_again_after_it_was_accepted_freezes() -> None:
    """Copies made under the accepted epoch or later are no old story."""
    again = copied([{7: number * 100} for number in range(10)])
    assert decided(again, {8: 0}, 0, accepted=7, accepted_offset=0) is not None
    assert decided(of_epoch(5, 10), {8: 0}, 0, accepted=7, accepted_offset=400) is not None


def test_h04_orphans_that_have_ended_freeze_nothing_and_later_epochs_are_not_ended() -> None:
    """Retention has ended all that was usable; what a dead lineage has below goes next."""
    ledger, local = of_epoch(5, 10), {7: 0}
    whole = merge(ledger.remote_lineage, lineage(local))

    def of(start: int, epoch: int) -> Frozen | None:
        return freeze(
            ledger,
            whole,
            log_end_offset=2_000,
            remote_log_start_offset=start,
            remote_log_start_epoch=epoch,
        )

    assert of(0, 7) is not None
    assert of(999, 7) is not None
    assert of(1_000, 4) is not None
    assert of(1_000, 5) is None
    assert of(1_000, 7) is None
