"""Lineage by property: every function against brute force over a model that writes one epoch number
per offset.
"""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kip405.lineage import Lineage, divergence, merge, remote_lineage, usable_end
from kip405.segments import EpochEntry, RemoteLogSegmentMetadata
from tests.kip405.segment_builder import is_within, lineage, segment

SPAN = 40


@st.composite
def lineages(draw: st.DrawFn, *, from_zero: bool = False, least_size: int = 0) -> Lineage:
    size = draw(st.integers(max(least_size, 1 if from_zero else 0), 6))
    epochs = sorted(draw(st.sets(st.integers(0, 12), min_size=size, max_size=size)))
    starts = sorted(draw(st.sets(st.integers(0, SPAN - 1), min_size=size, max_size=size)))
    if from_zero:
        starts[0] = 0
    return lineage(dict(zip(epochs, starts, strict=True)))


def epochs_by_offset(one: Lineage) -> list[int | None]:
    """The model: the epoch of each offset, spelled out."""
    model: list[int | None] = [None] * SPAN
    for entry in one.entries:
        for offset in range(entry.start_offset, SPAN):
            model[offset] = entry.epoch
    return model


def trimmed(one: Lineage, log_start: int) -> Lineage:
    """What LeaderEpochFileCache.truncateFromStart leaves in the broker's file."""
    kept = [entry for entry in one.entries if entry.start_offset > log_start]
    gone = [entry for entry in one.entries if entry.start_offset <= log_start]
    first = [EpochEntry(epoch=gone[-1].epoch, start_offset=log_start)] if gone else []
    return Lineage((*first, *kept))


def cut(one: Lineage, borders: list[int]) -> list[RemoteLogSegmentMetadata]:
    """Consecutive segments between the borders, with the epochs a copy would give them."""
    return [
        segment(start, end - 1, {entry.epoch: entry.start_offset for entry in one.clip(start, end)})
        for start, end in pairwise(sorted({0, *borders}))
    ]


borders = st.lists(st.integers(1, SPAN - 1), min_size=1, max_size=6)


@given(lineages(), st.integers(0, SPAN - 1))
def test_epoch_for_offset_agrees_with_brute_force(one: Lineage, offset: int) -> None:
    assert one.epoch_for_offset(offset) == epochs_by_offset(one)[offset]


@given(lineages(from_zero=True), st.integers(0, SPAN - 2), st.integers(1, SPAN))
def test_clip_describes_the_same_offsets(one: Lineage, start: int, size: int) -> None:
    end = min(start + size, SPAN)
    clipped = Lineage(one.clip(start, end))
    assert clipped.entries[0].start_offset == start
    assert epochs_by_offset(clipped)[start:end] == epochs_by_offset(one)[start:end]


@given(lineages(), st.integers(0, 13))
def test_end_offset_is_where_the_next_higher_epoch_begins(one: Lineage, epoch: int) -> None:
    answer = one.end_offset_for(epoch, SPAN)
    known = [entry.epoch for entry in one.entries]
    higher = [entry.start_offset for entry in one.entries if entry.epoch > epoch]
    if not known or epoch > known[-1]:
        assert answer is None
    else:
        floor = max((one for one in known if one <= epoch), default=epoch)
        assert answer == (floor, min(higher, default=SPAN))


@given(lineages(), lineages())
def test_merge_is_idempotent(remote: Lineage, local: Lineage) -> None:
    merged = merge(remote, local)
    assert merge(merged, local) == merged
    assert merge(remote, merged) == merged
    assert merge(merged, merged) == merged


@given(lineages(), lineages())
def test_merge_never_invents(remote: Lineage, local: Lineage) -> None:
    assert set(merge(remote, local).entries) <= {*remote.entries, *local.entries}


@given(lineages(), lineages())
def test_merge_keeps_every_epoch_of_the_leader_and_its_offsets(
    remote: Lineage, local: Lineage
) -> None:
    merged = merge(remote, local)
    for entry in local.entries:
        assert merged.epoch_for_offset(entry.start_offset) == entry.epoch
    assert merged.entries[-1:] == local.entries[-1:] or len(local.entries) < 2


@given(lineages(from_zero=True), st.integers(0, SPAN - 1), borders)
def test_h08_a_trimmed_file_and_the_remote_lineage_give_the_original_back(
    one: Lineage, log_start: int, ends: list[int]
) -> None:
    segments = cut(one, ends)
    # A trim never passes what was copied.
    local = trimmed(one, min(log_start, segments[-1].next_offset))
    assert merge(remote_lineage(segments), local) == one


@given(lineages(from_zero=True), st.integers(0, SPAN - 1), borders)
def test_h08_segments_of_the_leaders_own_history_are_within_whatever_was_trimmed(
    one: Lineage, log_start: int, ends: list[int]
) -> None:
    segments = cut(one, ends)
    merged = merge(remote_lineage(segments), trimmed(one, min(log_start, segments[-1].next_offset)))
    for made in segments:
        assert is_within(made, merged, SPAN)
        assert usable_end(made, merged) == made.next_offset
        assert divergence(made, merged) is None
        assert not is_within(made, merged, made.end_offset)


@given(lineages(from_zero=True), st.integers(0, SPAN - 1), borders)
def test_h04_unclean_election_cuts_every_segment_exactly_at_the_new_epochs_start(
    old: Lineage, elected_at: int, ends: list[int]
) -> None:
    segments = cut(old, ends)
    kept = old.below(elected_at).entries
    local = Lineage((*kept, EpochEntry(epoch=20, start_offset=elected_at)))
    merged = merge(remote_lineage(segments), local)
    for made in segments:
        assert usable_end(made, merged) == max(made.start_offset, min(made.next_offset, elected_at))
        diverges = made.end_offset >= elected_at
        assert divergence(made, merged) == (elected_at if diverges else None)
        assert is_within(made, merged, SPAN) is not diverges


@given(lineages(from_zero=True), lineages(from_zero=True), borders)
def test_usable_end_is_the_first_offset_whose_epoch_differs(
    leader: Lineage, other: Lineage, ends: list[int]
) -> None:
    mine, theirs = epochs_by_offset(leader), epochs_by_offset(other)
    for made in cut(other, ends):
        if made.segment_leader_epochs[0].epoch <= leader.entries[0].epoch:
            continue  # Kafka tolerates what is older than the lineage's first epoch
        same = [
            offset
            for offset in range(made.start_offset, made.next_offset)
            if mine[offset] == theirs[offset]
        ]
        differs = [
            offset
            for offset in range(made.start_offset, made.next_offset)
            if mine[offset] != theirs[offset]
        ]
        expected = min(differs, default=made.next_offset)
        assert usable_end(made, leader) == expected
        assert is_within(made, leader, SPAN) is (len(same) == made.next_offset - made.start_offset)


@given(lineages(), lineages(from_zero=True), borders)
def test_divergence_is_proof_of_a_higher_epoch_and_never_of_a_segment_within(
    leader: Lineage, other: Lineage, ends: list[int]
) -> None:
    theirs = epochs_by_offset(other)
    for made in cut(other, ends):
        at = divergence(made, leader)
        if at is not None:
            assert not is_within(made, leader, SPAN)
            assert at <= made.end_offset
            assert usable_end(made, leader) <= max(at, made.start_offset)
            written = theirs[max(at, made.start_offset)]
            held = leader.epoch_for_offset(at)
            assert written is not None and held is not None and held > written
