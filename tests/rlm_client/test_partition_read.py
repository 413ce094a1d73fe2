"""Since when a position is beyond the end of the log: for that position alone, without a pause."""

from rlm_client.partition_read import MOST_PAUSE_MS, PartitionRead
from tiered_reads.values import ReadMode


def answered(*answers: tuple[int, int]) -> list[int]:
    """What each answer (position, time in ms) has proven so far."""
    read = PartitionRead(ReadMode.KAFKA_PREFERRED)
    return [read.beyond_for_ms(position, now_ms) for position, now_ms in answers]


def test_answers_about_one_position_add_up() -> None:
    assert answered((70, 1_000), (70, 3_500), (70, 11_000)) == [0, 2_500, 10_000]


def test_h37_another_position_needs_a_proof_of_its_own() -> None:
    assert answered((70, 0), (70, 9_000), (80, 10_000), (80, 12_000)) == [0, 9_000, 0, 2_000]
    assert answered((70, 0), (80, 9_000), (70, 10_000)) == [0, 0, 0], "nor does it come back"


def test_h37_a_pause_in_which_nothing_was_asked_proves_nothing() -> None:
    assert answered((70, 0), (70, MOST_PAUSE_MS)) == [0, MOST_PAUSE_MS]
    late_ms = MOST_PAUSE_MS + 1
    assert answered((70, 0), (70, late_ms), (70, late_ms + 100)) == [0, 0, 100]


def test_a_piece_or_kafka_ends_a_proof() -> None:
    for ends in (PartitionRead.progressed, lambda read: read.goes_to_kafka(5_000)):
        read = PartitionRead(ReadMode.REMOTE_PREFERRED)
        read.beyond_for_ms(70, 0)
        ends(read)
        assert read.beyond_for_ms(70, 6_000) == 0
